"""Allocation by the productivity of single half-way joins: the baselines of JAQPOT (its appendix B).

They ignore paths as a whole, so a join may produce rows for which the next join has no allowance, or have an allowance
for rows that are never produced. They ignore freshness.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.plan import JoinPair, PlanLoad, Tree, list_directions, list_halfway_joins, list_joins


def allocate_equal_hj(load: PlanLoad, mu: float) -> dict[Tree, float]:
    """EqualHJ: an equal share for each half-way join."""
    nodes = list_halfway_joins(load.tree)
    return dict.fromkeys(nodes, mu / len(nodes))


def allocate_global_hjpr(load: PlanLoad, mu: float) -> dict[Tree, float]:
    """GlobalHJPR: in the ratio of the half-way joins' productivities."""
    total = sum(load.productivity[node] for node in list_halfway_joins(load.tree))
    if not total:
        return allocate_equal_hj(load, mu)
    return {node: mu * load.productivity[node] / total for node in list_halfway_joins(load.tree)}


def allocate_ebest_hjp(load: PlanLoad, mu: float) -> dict[Tree, float]:
    """EBestHJP: an equal share for each join, spent on its more productive direction first."""
    found = list(list_joins(load.tree))
    return _allocate_per_join(load, {join: mu / len(found) for join in found})


def allocate_sbest_hjp(load: PlanLoad, mu: float) -> dict[Tree, float]:
    """SBestHJP: in the ratio of the joins' selectivities, spent on the more productive direction first."""
    selectivity = {join: load.compute_selectivity(join) for join in list_joins(load.tree)}
    total = sum(selectivity.values())
    if not total:
        return allocate_ebest_hjp(load, mu)
    return _allocate_per_join(load, {join: mu * each / total for join, each in selectivity.items()})


def allocate_best_hjp(load: PlanLoad, mu: float) -> dict[Tree, float]:
    """BestHJP: the most productive half-way join as far as its rows go, then the next."""
    return _fill_by_productivity(load, list(list_halfway_joins(load.tree)), mu)


def _allocate_per_join(load: PlanLoad, shares: Mapping[JoinPair, float]) -> dict[Tree, float]:
    table: dict[Tree, float] = {}
    for join, share in shares.items():
        table |= _fill_by_productivity(load, [side for side, _ in list_directions(join)], share)
    return table


def _fill_by_productivity(load: PlanLoad, nodes: list[Tree], mu: float) -> dict[Tree, float]:
    table = {}
    for node in sorted(nodes, key=lambda node: -load.productivity[node]):
        table[node] = min(mu, load.full_allowances[node])
        mu -= table[node]
    return table
