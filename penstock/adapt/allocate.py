"""Allocation of a probe budget to the half-way joins of a plan: a pure function, with policies by name.

`jaqpot` meets the refresh rates by a greedy set cover and spends the rest on the most productive paths; `lp` finds the
exact optimum of both at once, so that in the paper's model, where sizes of states are given, no other is better.
`steady` is the optimum where a state holds only what is made of it, as in this engine: its default. The others are what
these are compared with: `grepp` ignores freshness, `discrete-greedy` and `discrete-dp` allocate whole tuples per
second, the rest look at single half-way joins. No path gets more than its stream brings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.adapt.freshness import Refreshes, Shortage, greedy_cover, within_supply
from penstock.adapt.heuristics import best_hjp, ebest_hjp, equal_hj, global_hjpr, sbest_hjp
from penstock.adapt.knapsack import grepp, in_whole_tuples
from penstock.adapt.linear_program import Program
from penstock.adapt.steady import steady
from penstock.plan.input_paths import Load, Table


@dataclass(frozen=True)
class Allocation:
    """Probes per second for every half-way join, and what is to be expected of them.

    `for_freshness` is the part Δμ of the budget that refreshing by whole paths takes. With a `shortage` the rates are
    met as far as the budget goes.
    """

    policy: str
    mu: float
    allowances: Table
    throughput: float
    for_freshness: float = 0.0
    shortage: Shortage | None = None

    @property
    def feasible(self) -> bool:
        return self.shortage is None


_ENTERING: dict[str, Callable[[Load, float], Mapping[str, float]]] = {
    "discrete-greedy": lambda load, mu: in_whole_tuples(load, mu, optimal=False),
    "discrete-dp": lambda load, mu: in_whole_tuples(load, mu, optimal=True),
}
_TABLES: dict[str, Callable[[Load, float], Table]] = {
    "grepp": lambda load, mu: grepp(load, mu, {}),
    "steady": steady,
    "equal-hj": equal_hj,
    "global-hjpr": global_hjpr,
    "ebest-hjp": ebest_hjp,
    "sbest-hjp": sbest_hjp,
    "best-hjp": best_hjp,
}
POLICIES = ("lp", "jaqpot", *_ENTERING, *_TABLES)
HEURISTICS = ("equal-hj", "global-hjpr", "ebest-hjp", "sbest-hjp", "best-hjp")


def allocate(load: Load, mu: float, policy: str = "lp", refreshes: Refreshes | None = None) -> Allocation:
    """Divide μ probes per second among the half-way joins of a plan."""
    if policy in _TABLES:
        return _allocation(load, mu, policy, _TABLES[policy](load, mu))
    if policy in _ENTERING:
        return _allocation(load, mu, policy, load.table(_ENTERING[policy](load, mu)))
    possible, shortage = within_supply(load, refreshes or {})
    return (_lp if policy == "lp" else _jaqpot)(load, mu, possible, shortage)


def _jaqpot(load: Load, mu: float, refreshes: Refreshes, shortage: Shortage | None) -> Allocation:
    cover = greedy_cover(load, refreshes)
    part = 1.0
    if cover.dearest is not None and cover.cost > mu:
        shortage = shortage or Shortage(refreshes[cover.dearest].stream, cover.dearest, cover.cost)
        part = mu / cover.cost
    refreshing = {alias: (part * tuples, cover.hops[alias]) for alias, tuples in cover.entering.items()}
    return _allocation(load, mu, "jaqpot", grepp(load, mu, refreshing), part * cover.cost, shortage)


def _lp(load: Load, mu: float, refreshes: Refreshes, shortage: Shortage | None) -> Allocation:
    greedy = _jaqpot(load, mu, refreshes, shortage)
    program = Program(load, refreshes)
    table: Table | None = load.full if mu >= load.saturation else program.most_results(mu)
    if table is None and not greedy.feasible and (cover := program.cheapest()) is not None:
        cheapest, dearest = cover
        cost = sum(cheapest.values())
        shortage = shortage or Shortage(refreshes[dearest].stream, dearest, cost)
        table = {node: probes * min(1.0, mu / cost) for node, probes in cheapest.items()}
        return _allocation(load, mu, "lp", table, min(mu, cost), shortage)
    if table is None or (greedy.shortage is shortage and load.output(table)[load.tree] < greedy.throughput):
        table = greedy.allowances  # the solver works to a tolerance
    over = max(1.0, sum(table.values()) / mu)
    table = {node: probes / over for node, probes in table.items()}
    return _allocation(load, mu, "lp", table, greedy.for_freshness, shortage)


def _allocation(
    load: Load, mu: float, policy: str, table: Table, for_freshness: float = 0.0, shortage: Shortage | None = None
) -> Allocation:
    return Allocation(policy, mu, table, load.output(table)[load.tree], for_freshness, shortage)
