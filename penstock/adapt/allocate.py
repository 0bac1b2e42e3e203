"""Allocation of a probe budget to the half-way joins of a plan: a pure function, with policies by name.

`jaqpot` meets the refresh rates by a greedy set cover and spends the remaining budget on the most productive paths.
`lp` finds the exact optimum of both at once, so no other policy is better in the paper's model, where sizes of states
are given. `steady`, the default, is the optimum if a state holds only the rows its join made, as in this engine. The
others are for comparison: `grepp` ignores freshness, `discrete-greedy` and `discrete-dp` allocate whole tuples per
second, and the heuristics rate single half-way joins. No path gets more than the rate of its stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.adapt.freshness import Cover, RefreshRates, Shortage, find_greedy_cover, limit_to_supply
from penstock.adapt.heuristics import (
    allocate_best_hjp,
    allocate_ebest_hjp,
    allocate_equal_hj,
    allocate_global_hjpr,
    allocate_sbest_hjp,
)
from penstock.adapt.knapsack import allocate_grepp, allocate_whole_tuples
from penstock.adapt.linear_program import LinearProgram
from penstock.adapt.steady import allocate_steady, compute_completeness
from penstock.plan import Allowances, PlanLoad


@dataclass(frozen=True)
class Allocation:
    """Probes per second for every half-way join, and the throughput expected of them.

    `freshness_cost` is the part Δμ of the budget that refreshing by whole paths takes. With a `shortage` the refresh
    rates are met only in part.
    """

    policy: str
    mu: float
    allowances: Allowances
    throughput: float
    freshness_cost: float = 0.0
    shortage: Shortage | None = None

    @property
    def feasible(self) -> bool:
        return self.shortage is None


_TUPLE_POLICIES: dict[str, Callable[[PlanLoad, float], Mapping[str, float]]] = {
    "discrete-greedy": lambda load, mu: allocate_whole_tuples(load, mu, optimal=False),
    "discrete-dp": lambda load, mu: allocate_whole_tuples(load, mu, optimal=True),
}
_TABLE_POLICIES: dict[str, Callable[[PlanLoad, float], Allowances]] = {
    "grepp": lambda load, mu: allocate_grepp(load, mu, {}),
    "steady": allocate_steady,
    "equal-hj": allocate_equal_hj,
    "global-hjpr": allocate_global_hjpr,
    "ebest-hjp": allocate_ebest_hjp,
    "sbest-hjp": allocate_sbest_hjp,
    "best-hjp": allocate_best_hjp,
}
POLICIES = ("lp", "jaqpot", *_TUPLE_POLICIES, *_TABLE_POLICIES)
HEURISTICS = ("equal-hj", "global-hjpr", "ebest-hjp", "sbest-hjp", "best-hjp")


def allocate(load: PlanLoad, mu: float, policy: str = "lp", refreshes: RefreshRates | None = None) -> Allocation:
    """Divide μ probes per second among the half-way joins of a plan."""
    if policy == "steady":
        return _allocate_steady(load, mu, refreshes or {})
    if policy in _TABLE_POLICIES:
        return _make_allocation(load, mu, policy, _TABLE_POLICIES[policy](load, mu))
    if policy in _TUPLE_POLICIES:
        return _make_allocation(load, mu, policy, load.compute_allowances(_TUPLE_POLICIES[policy](load, mu)))
    possible, shortage = limit_to_supply(load, refreshes or {})
    return (_allocate_lp if policy == "lp" else _allocate_jaqpot)(load, mu, possible, shortage)


def predict_output(load: PlanLoad, table: Allowances, policy: str) -> float:
    """The results that a table of allowances gives, in the model of the policy that made it; for comparison only."""
    return compute_completeness(load, dict(table)) if policy == "steady" else load.compute_output(table)[load.tree]


def _allocate_steady(load: PlanLoad, mu: float, refreshes: RefreshRates) -> Allocation:
    """The steady state divides without regard to refresh rates; what no division could meet is reported."""
    possible, shortage = limit_to_supply(load, refreshes)
    cover = find_greedy_cover(load, possible)
    return _make_allocation(
        load, mu, "steady", allocate_steady(load, mu), shortage=shortage or _find_cover_shortage(cover, possible, mu)
    )


def _find_cover_shortage(cover: Cover, refreshes: RefreshRates, mu: float) -> Shortage | None:
    """Why a budget does not suffice to meet the rates; None if it does."""
    if cover.costliest is None or cover.cost <= mu:
        return None
    return Shortage(refreshes[cover.costliest].stream, cover.costliest, cover.cost)


def _allocate_jaqpot(load: PlanLoad, mu: float, refreshes: RefreshRates, shortage: Shortage | None) -> Allocation:
    cover = find_greedy_cover(load, refreshes)
    lack = _find_cover_shortage(cover, refreshes, mu)
    shortage, part = shortage or lack, 1.0 if lack is None else mu / cover.cost
    refreshing = {alias: (part * tuples, cover.hops[alias]) for alias, tuples in cover.tuple_rates.items()}
    return _make_allocation(load, mu, "jaqpot", allocate_grepp(load, mu, refreshing), part * cover.cost, shortage)


def _allocate_lp(load: PlanLoad, mu: float, refreshes: RefreshRates, shortage: Shortage | None) -> Allocation:
    greedy = _allocate_jaqpot(load, mu, refreshes, shortage)
    program = LinearProgram(load, refreshes)
    table: Allowances | None = load.full_allowances if mu >= load.saturation else program.maximize_results(mu)
    if table is None and not greedy.feasible and (cover := program.minimize_probes()) is not None:
        cheapest, costliest = cover
        cost = sum(cheapest.values())
        shortage = shortage or Shortage(refreshes[costliest].stream, costliest, cost)
        table = {node: probes * min(1.0, mu / cost) for node, probes in cheapest.items()}
        return _make_allocation(load, mu, "lp", table, min(mu, cost), shortage)
    if table is None or (greedy.shortage is shortage and load.compute_output(table)[load.tree] < greedy.throughput):
        table = greedy.allowances  # the solver works to a tolerance
    over = max(1.0, sum(table.values()) / mu)
    table = {node: probes / over for node, probes in table.items()}
    return _make_allocation(load, mu, "lp", table, greedy.freshness_cost, shortage)


def _make_allocation(
    load: PlanLoad,
    mu: float,
    policy: str,
    table: Allowances,
    for_freshness: float = 0.0,
    shortage: Shortage | None = None,
) -> Allocation:
    return Allocation(policy, mu, table, load.compute_output(table)[load.tree], for_freshness, shortage)
