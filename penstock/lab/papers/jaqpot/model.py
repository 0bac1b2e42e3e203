"""The execution model of the JAQPOT paper, to repeat Figure 9: every state is a window of a fixed number of rows.

In the model a row leaves a state when enough new rows have arrived, not when its parts expire. So the state above a
join with few allowed probes keeps old rows, and results from them have parts of any age: this is the staleness that the
paper measures. In the engine rows expire with their parts, so no result is stale.

A second is simulated in steps. A probe finds Poisson(ρ) matches, drawn uniformly from the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.plan import (
    Allowances,
    JoinPair,
    Leaf,
    PlanLoad,
    Tree,
    list_directions,
    list_halfway_joins,
    list_joins,
    list_leaves,
)

ArrivalTimes = NDArray[np.float64]
"""The arrival time of each part of a row: a column for each leaf of the tree, NaN where the row has no such part."""

_STEPS = 10


@dataclass
class _CountWindow:
    """A window of the newest `size` rows."""

    size: int
    arrivals: ArrivalTimes

    def insert(self, rows: ArrivalTimes) -> None:
        self.arrivals = np.concatenate([self.arrivals, rows])[-self.size :]


class CountModel:
    """Simulates a plan whose states have fixed numbers of rows, under a table of allowances."""

    def __init__(self, load: PlanLoad, table: Allowances, seed: int = 1) -> None:
        self._load = load
        self._allowances = table
        self._rng = np.random.default_rng(seed)
        self._width = len(list_leaves(load.tree))
        self._tokens = dict.fromkeys(table, 0.0)
        self._states = {
            node: _CountWindow(round(load.states[node]), self._fill_state(node))
            for node in list_halfway_joins(load.tree)
        }

    def _fill_state(self, node: Tree) -> ArrivalTimes:
        """A state after exact execution: the age of a row follows from its place, and all its parts have that age."""
        size = round(self._load.states[node])
        arrivals = np.full((size, self._width), np.nan)
        rate = self._load.rates[node.alias] if isinstance(node, Leaf) else self._compute_full_rate(node)
        ages = np.arange(size, 0, -1) / rate
        for alias in list_leaves(node):
            arrivals[:, list_leaves(self._load.tree).index(alias)] = -ages
        return arrivals

    def _compute_full_rate(self, node: JoinPair) -> float:
        return sum(
            self._load.full_allowances[side] * self._load.productivity[side] for side, _ in list_directions(node)
        )

    def compute_stale_fraction(self, freshness: Mapping[str, float], warm: float, seconds: float) -> float:
        """The share of results with a part older than its freshness, after `warm` seconds."""
        bound = np.array([freshness[alias] for alias in list_leaves(self._load.tree)])
        stale = results = 0
        for step in range(round((warm + seconds) * _STEPS)):
            now = (step + 1) / _STEPS
            rows = self._step(now)
            if now > warm:
                results += len(rows)
                stale += int(np.count_nonzero((now - rows > bound).any(axis=1)))
        return stale / results if results else 0.0

    def _step(self, now: float) -> ArrivalTimes:
        new: dict[Tree, ArrivalTimes] = {}
        for place, alias in enumerate(list_leaves(self._load.tree)):
            rows = np.full((self._rng.poisson(self._load.rates[alias] / _STEPS), self._width), np.nan)
            rows[:, place] = now
            new[Leaf(alias)] = rows
        for join in list_joins(self._load.tree):
            joined = [self._probe(side, other, new[side]) for side, other in list_directions(join)]
            for side, _ in list_directions(join):
                self._states[side].insert(new[side])
            new[join] = np.concatenate(joined)
        return new[self._load.tree]

    def _probe(self, side: Tree, other: Tree, rows: ArrivalTimes) -> ArrivalTimes:
        self._tokens[side] = min(self._tokens[side] + self._allowances[side] / _STEPS, max(1.0, self._allowances[side]))
        allowed = min(len(rows), int(self._tokens[side]))
        self._tokens[side] -= allowed
        rows = rows[len(rows) - allowed :]
        matches = self._rng.poisson(self._load.productivity[side], allowed)
        found = self._states[other].arrivals[self._rng.integers(0, len(self._states[other].arrivals), matches.sum())]
        joined: ArrivalTimes = np.fmax(np.repeat(rows, matches, axis=0), found)
        return joined
