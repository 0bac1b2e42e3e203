"""The exact continuous optimum: throughput, arrival rates, freshness and budget in one linear program.

The variables are the probes per second y of the 2(k - 1) half-way joins. Maximise the rows of the root subject to
Σ y <= μ, y <= λ at the leaves, y of a join's rows <= the rows it makes (Σ ρ y of the two directions below), and the
rows a susceptible state gets >= its refresh rate. So rows may refresh a state without probing further, which no
division among whole paths can express. Every allowance table is a feasible point, so no policy can do better.

In the program a variable is the part of the probes its half-way join would make if nothing were shed: all variables lie
in 0..1 and the coefficients near 1, whatever the sizes of windows.
"""

from __future__ import annotations

import numpy as np

from penstock.adapt.freshness import RefreshRates
from penstock.plan import JoinPair, PlanLoad, Tree, list_directions, list_joins
from penstock.state import F64


class LinearProgram:
    """The constraints of one load and its refresh rates."""

    def __init__(self, load: PlanLoad, refreshes: RefreshRates) -> None:
        self._load = load
        self._refreshes = refreshes
        self._index = {node: place for place, node in enumerate(load.full_allowances)}
        self._full = np.array(list(load.full_allowances.values()))
        made: dict[Tree, F64] = {
            node: self._production_row(node) for node in load.full_allowances if isinstance(node, JoinPair)
        }
        rows = [self._unit_row(node) - made[node] for node in made]
        limits = [0.0] * len(made)
        for node, refresh in refreshes.items():
            rows.append(-made[node])
            limits.append(-refresh.rate / max(load.full_allowances[node], 1e-300))
        self._rows, self._limits = rows, limits

    def _unit_row(self, node: Tree) -> F64:
        row = np.zeros(len(self._index))
        row[self._index[node]] = 1.0
        return row

    def _production_row(self, join: JoinPair) -> F64:
        """The rows a join produces, as parts of those it produces if nothing is shed."""
        row: F64 = np.zeros(len(self._index))
        for side, _ in list_directions(join):
            row[self._index[side]] = self._load.productivity[side] * self._load.full_allowances[side]
        row /= max(row.sum(), 1e-300)
        return row

    def maximize_results(self, mu: float) -> dict[Tree, float] | None:
        """The allowances with the highest throughput; None if μ is not enough for the refresh rates."""
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 (only a budget needs it)

        limited = LinearConstraint(np.array([*self._rows, self._full / mu]), -np.inf, [*self._limits, 1.0])
        *_, root = list_joins(self._load.tree)
        # `milp` calls HiGHS with less overhead than `linprog`
        found = milp(-self._production_row(root), constraints=limited, bounds=Bounds(0.0, 1.0))
        return None if found.x is None else self._to_table(np.clip(found.x, 0.0, 1.0))

    def minimize_probes(self) -> tuple[dict[Tree, float], Tree] | None:
        """The fewest probes that meet the refresh rates, and the state that takes most of them."""
        from scipy.optimize import linprog  # noqa: PLC0415

        rows, limits = np.array(self._rows), self._limits
        found = linprog(self._full / self._full.max(), A_ub=rows, b_ub=limits, bounds=(0.0, 1.0), method="highs")
        if found.x is None:
            return None
        marginals = np.array(found.ineqlin.marginals[-len(self._refreshes) :]) * limits[-len(self._refreshes) :]
        return self._to_table(np.clip(found.x, 0.0, 1.0)), list(self._refreshes)[int(np.argmax(marginals))]

    def _to_table(self, parts: F64) -> dict[Tree, float]:
        return {
            node: float(part * full)
            for (node, full), part in zip(self._load.full_allowances.items(), parts, strict=True)
        }
