"""The unit-time cost model: the cost of a plan per unit of event time, from rates and selectivities.

With arrival rates λ, windows of |S| rows and distinct counts per class, a node n over the aliases N holds
|S_n| = Π |S_i| · Π_c d_c^-(members of c in N - 1) rows and makes λ_n = Σ_i λ_i · |S_n| / |S_i| rows per unit of time.
If the share of pairs that agree was measured for pairs of streams, the product is over pairs that connect all members
of N in every class, the most selective pairs first. With uniform keys both products are equal.

A hash join costs one probe for each row of either child, and one unit for each row that it makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.cql import Source, Stream, Subquery
from penstock.expr import find_aliases
from penstock.plan.join_graph import JoinGraph
from penstock.plan.tree import Leaf, Tree, list_leaves

_UNBOUNDED_ROWS = 1e6
_SUBQUERY_ROWS = 100.0
_FILTER_SELECTIVITY = 1 / 3
_MICROSECONDS = 1e6


@dataclass(frozen=True)
class Statistics:
    """For each alias: tuples per unit of time and rows in its window. For each class: the number of distinct values.

    `pairs`, if measured, replaces the distinct counts: for two aliases with classes in common, the share of all pairs
    of their rows that agree in these classes.
    """

    rates: Mapping[str, float]
    rows: Mapping[str, float]
    distinct: Mapping[int, float]
    pairs: Mapping[frozenset[str], float] | None = None


def assume_statistics(graph: JoinGraph, sources: tuple[Source, ...], table_rows: Mapping[str, int]) -> Statistics:
    """Statistics without measurements: one tuple per unit of time, and as many distinct keys as rows."""
    rows = {}
    for source in sources:
        passes = _FILTER_SELECTIVITY ** len(graph.filters_of(source.alias))
        rows[source.alias] = max(1.0, passes * _estimate_window_rows(source, table_rows))
    rates = {source.alias: 0.0 if source.is_table else 1.0 for source in sources}
    distinct = {c.id: max(rows[alias] for alias in c.aliases) for c in graph.classes}
    return Statistics(rates, rows, distinct)


def _estimate_window_rows(source: Source, table_rows: Mapping[str, int]) -> float:
    """Rows in a window if a stream has one tuple per second, or per tick of integer time."""
    window, relation = source.window, source.relation
    if isinstance(relation, Subquery):
        return _SUBQUERY_ROWS
    if not isinstance(relation, Stream):
        return float(table_rows.get(source.alias, 1))
    if window.row_count is not None:
        return float(window.row_count)
    if window.lifetime is None:
        return _UNBOUNDED_ROWS
    return window.lifetime / (_MICROSECONDS if pa.types.is_timestamp(relation.time_type) else 1.0)


def estimate_state_rows(names: frozenset[str], graph: JoinGraph, stats: Statistics) -> float:
    """|S_n| of a node over these aliases."""
    rows = 1.0
    for name in names:
        rows *= stats.rows[name]
    rows *= (
        _assume_selectivity(names, graph, stats.distinct)
        if stats.pairs is None
        else _combine_selectivities(names, graph, stats.pairs)
    )
    residuals = sum(len(find_aliases(expr)) > 1 and find_aliases(expr) <= names for expr in graph.residuals)
    return rows * _FILTER_SELECTIVITY**residuals


def _assume_selectivity(names: frozenset[str], graph: JoinGraph, distinct: Mapping[int, float]) -> float:
    """The share of all combinations that agree, if values are uniform and independent."""
    share = 1.0
    for class_ in graph.classes:
        members = sum(alias in names for alias in class_.aliases)
        if members > 1:
            share *= distinct[class_.id] ** (1 - members)
    return share


def _combine_selectivities(names: frozenset[str], graph: JoinGraph, pairs: Mapping[frozenset[str], float]) -> float:
    """The share from measured pairs: a pair counts if it connects aliases that no pair before it connects."""
    share = 1.0
    connected = {(class_.id, alias): frozenset((alias,)) for class_ in graph.classes for alias in class_.aliases}
    for pair in sorted((pair for pair in pairs if pair <= names), key=pairs.__getitem__):
        one, other = pair
        shared = [class_.id for class_ in graph.classes if pair <= frozenset(class_.aliases)]
        loose = [id_ for id_ in shared if other not in connected[id_, one]]
        share *= pairs[pair] if loose else 1.0
        for id_ in loose:
            together = connected[id_, one] | connected[id_, other]
            connected |= {(id_, alias): together for alias in together}
    return share


def estimate_output_rate(names: frozenset[str], graph: JoinGraph, stats: Statistics) -> float:
    """λ_n of a node over these aliases."""
    rows = estimate_state_rows(names, graph, stats)
    return sum(stats.rates[name] * rows / stats.rows[name] for name in names)


def compute_tree_cost(tree: Tree, graph: JoinGraph, stats: Statistics) -> float:
    """The cost of a whole plan per unit of time."""
    if isinstance(tree, Leaf):
        return 0.0
    parts = [frozenset(list_leaves(part)) for part in (tree.left, tree.right, tree)]
    below = compute_tree_cost(tree.left, graph, stats) + compute_tree_cost(tree.right, graph, stats)
    return below + sum(estimate_output_rate(part, graph, stats) for part in parts)
