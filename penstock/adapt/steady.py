"""The best allocation if a state holds only the rows its join made: the steady state of this engine.

The path model takes the sizes of states as given. Here rows expire with their parts, so a state below which probes are
shed soon holds the same part of its rows as is made of them, and a probe into it finds that part. Let v_j be the part
of its pairs that join j compares, from either side: g_l u_l + g_r u_r, with u the part of the rows of a side that
probe and g the side's share of the results if nothing is shed. Then a node holds and makes the product of the v of the
joins below it, its own included, and the query's completeness is the product of all v. Maximise that, subject to
Σ u_s · (part made of s) · (full rate of s) <= μ.

In logarithms the objective is concave and the cost convex, except for a kink where a join's better direction is used
up. For a given price of a probe the best v of one join, all others fixed, has a closed form. Sweeps over the joins and
a search for the price, from two starts, find the solution for ten streams in a few milliseconds. At a kink it may be a
local optimum: of 360 random loads two had a better table, by 1.5 %.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.plan import PlanLoad, Tree, list_directions, list_joins

_MAX_SWEEPS = 6
_MAX_STEPS = 12
_TOLERANCE = 1e-3
_STARTS = (1.0, 0.1)
"""The initial values of v; the better result is taken."""


@dataclass
class _SteadyJoin:
    """A join with its sides: where they are made (None for a leaf), full rates and shares of its results."""

    below: tuple[int | None, int | None]
    rates: tuple[float, float]
    shares: tuple[float, float]
    nodes: tuple[Tree, Tree]
    v: float = 1.0


class _SteadyPlan:
    """The joins of a load, children first, with a v for each."""

    def __init__(self, load: PlanLoad) -> None:
        place: dict[Tree, int] = {}
        self.joins: list[_SteadyJoin] = []
        for join in list_joins(load.tree):
            made = [load.full_allowances[side] * load.productivity[side] for side, _ in list_directions(join)]
            total = sum(made)
            shares = (made[0] / total, made[1] / total) if total else (0.5, 0.5)
            rates = (load.full_allowances[join.left], load.full_allowances[join.right])
            below = (place.get(join.left), place.get(join.right))
            place[join] = len(self.joins)
            self.joins.append(_SteadyJoin(below, rates, shares, (join.left, join.right)))

    def compute_made(self) -> list[float]:
        """The part of each join's rows that is made."""
        parts: list[float] = []
        for join in self.joins:
            part = join.v
            for lower in join.below:
                part *= 1.0 if lower is None else parts[lower]
            parts.append(part)
        return parts

    def _compute_offered(self, join: _SteadyJoin, parts: list[float]) -> tuple[float, float]:
        """Rows per second of the two sides that could probe."""
        left, right = join.below
        return (
            join.rates[0] * (1.0 if left is None else parts[left]),
            join.rates[1] * (1.0 if right is None else parts[right]),
        )

    def _choose_first(self, join: _SteadyJoin, offered: tuple[float, float]) -> int:
        """The side that compares more pairs per probe."""
        return 0 if join.shares[0] * offered[1] >= join.shares[1] * offered[0] else 1

    def _compute_used(self, join: _SteadyJoin, first: int) -> tuple[float, float]:
        """u of the two sides for the join's v: the better side first."""
        share, other = join.shares[first], join.shares[1 - first]
        better = min(1.0, join.v / share) if share else 0.0
        rest = min(1.0, max(0.0, join.v - better * share) / other) if other else 0.0
        return (better, rest) if first == 0 else (rest, better)

    def compute_probes(self) -> dict[Tree, float]:
        parts = self.compute_made()
        table: dict[Tree, float] = {}
        for join in self.joins:
            offered = self._compute_offered(join, parts)
            used = self._compute_used(join, self._choose_first(join, offered))
            table[join.nodes[0]] = used[0] * offered[0]
            table[join.nodes[1]] = used[1] * offered[1]
        return table

    def sweep(self, price: float) -> None:
        """Set each join's v to its best for a price of a probe, the others as they are; from the root down."""
        parts = self.compute_made()
        onward = [0.0] * len(self.joins)  # probes of the rows that a join makes, on their whole way up
        for at in reversed(range(len(self.joins))):
            join = self.joins[at]
            offered = self._compute_offered(join, parts)
            first = self._choose_first(join, offered)
            share, other = join.shares[first], join.shares[1 - first]
            upward = onward[at] / join.v
            v = 1 / (price * max(offered[first] / max(share, 1e-300) + upward, 1e-300))
            if v > share:
                v = max(share, 1 / (price * max(offered[1 - first] / max(other, 1e-300) + upward, 1e-300)))
            onward[at] = min(1.0, max(v, 1e-6)) * upward
            join.v = min(1.0, max(v, 1e-6))
            used = self._compute_used(join, first)
            for side, lower in enumerate(join.below):
                if lower is not None:
                    onward[lower] = onward[at] + used[side] * offered[side]

    def settle(self, price: float) -> float:
        """Sweep until no v changes; returns the probes per second of all joins."""
        for _ in range(_MAX_SWEEPS):
            before = [join.v for join in self.joins]
            self.sweep(price)
            if all(abs(join.v - old) <= _TOLERANCE * old for join, old in zip(self.joins, before, strict=True)):
                break
        return sum(self.compute_probes().values())


def allocate_steady(load: PlanLoad, mu: float) -> dict[Tree, float]:
    """The allowances with the highest completeness in the steady state."""
    if mu >= load.saturation:
        return dict(load.full_allowances)
    tables = (table for start in _STARTS for table in _search(load, mu, start))
    return max(tables, key=lambda table: compute_completeness(load, table))


def _search(load: PlanLoad, mu: float, start: float) -> Iterator[dict[Tree, float]]:
    """Tables for the price at which all joins together use μ; every v begins at `start`."""
    plan = _SteadyPlan(load)
    for join in plan.joins:
        join.v = start
    low, high = 0.1 / load.saturation, 10 * len(plan.joins) / mu  # at the best point a join's v costs about μ / joins
    price = (low * high) ** 0.5
    expensive, cheap = dict(load.full_allowances), dict.fromkeys(load.full_allowances, 0.0)
    for _ in range(_MAX_STEPS):
        cost = plan.settle(price)
        if cost > mu:
            low, expensive = price, plan.compute_probes()
        else:
            high, cheap = price, plan.compute_probes()
        if abs(cost - mu) <= _TOLERANCE * mu:
            break
        price *= cost / mu  # the probes of a join are nearly in inverse proportion to the price
        if not low < price < high:
            price = (low * high) ** 0.5
    yield from _interpolate_tables(cheap, expensive, mu)


def _interpolate_tables(
    cheap: dict[Tree, float], expensive: dict[Tree, float], mu: float
) -> Iterator[dict[Tree, float]]:
    """Tables for μ between one that uses less and one that uses more: at a kink the two may be far apart."""
    less, more = sum(cheap.values()), sum(expensive.values())
    part = (mu - less) / max(more - less, 1e-300)
    yield {node: (1 - part) * probes + part * expensive[node] for node, probes in cheap.items()}
    yield {node: probes * mu / more for node, probes in expensive.items()}
    yield cheap


def compute_completeness(load: PlanLoad, table: dict[Tree, float]) -> float:
    """The part of the results that an allowance table produces in the steady state."""
    parts: dict[Tree, float] = {}
    for join in list_joins(load.tree):
        held = [parts.get(side, 1.0) for side, _ in list_directions(join)]
        made = [load.full_allowances[side] * load.productivity[side] for side, _ in list_directions(join)]
        offered = [
            load.full_allowances[side] * part for (side, _), part in zip(list_directions(join), held, strict=True)
        ]
        used = [
            min(1.0, table[side] / rows) if rows else 1.0
            for (side, _), rows in zip(list_directions(join), offered, strict=True)
        ]
        looked_at = sum(m * u for m, u in zip(made, used, strict=True)) / max(sum(made), 1e-300)
        parts[join] = held[0] * held[1] * looked_at
    return parts[load.tree]
