"""Allocation by the productivity of single half-way joins: what JAQPOT is measured against (its appendix B).

None of them looks at what a path as a whole brings, so that a join may make rows its successor has no allowance for, or
a successor may have an allowance for rows nobody makes; none of them looks at freshness.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.plan.input_paths import Load, halfway_joins, joins, sides
from penstock.plan.tree import Pair, Tree


def equal_hj(load: Load, mu: float) -> dict[Tree, float]:
    """EqualHJ: the same for each half-way join."""
    nodes = halfway_joins(load.tree)
    return dict.fromkeys(nodes, mu / len(nodes))


def global_hjpr(load: Load, mu: float) -> dict[Tree, float]:
    """GlobalHJPR: in the ratio of the half-way joins' productivities."""
    total = sum(load.productivity[node] for node in halfway_joins(load.tree))
    if not total:
        return equal_hj(load, mu)
    return {node: mu * load.productivity[node] / total for node in halfway_joins(load.tree)}


def ebest_hjp(load: Load, mu: float) -> dict[Tree, float]:
    """EBestHJP: the same for each join, and there to the most productive direction."""
    found = list(joins(load.tree))
    return _best_of_each(load, {join: mu / len(found) for join in found})


def sbest_hjp(load: Load, mu: float) -> dict[Tree, float]:
    """SBestHJP: in the ratio of the joins' selectivities, and there to the most productive direction."""
    selectivity = {join: load.selectivity(join) for join in joins(load.tree)}
    total = sum(selectivity.values())
    if not total:
        return ebest_hjp(load, mu)
    return _best_of_each(load, {join: mu * each / total for join, each in selectivity.items()})


def best_hjp(load: Load, mu: float) -> dict[Tree, float]:
    """BestHJP: the most productive half-way join as far as its rows go, then the next."""
    return _filled(load, list(halfway_joins(load.tree)), mu)


def _best_of_each(load: Load, shares: Mapping[Pair, float]) -> dict[Tree, float]:
    table: dict[Tree, float] = {}
    for join, share in shares.items():
        table |= _filled(load, [side for side, _ in sides(join)], share)
    return table


def _filled(load: Load, nodes: list[Tree], mu: float) -> dict[Tree, float]:
    table = {}
    for node in sorted(nodes, key=lambda node: -load.productivity[node]):
        table[node] = min(mu, load.full[node])
        mu -= table[node]
    return table
