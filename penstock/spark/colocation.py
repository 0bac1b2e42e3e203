"""Placement of queries that read derived streams: a row that is derived in a cell is read in that cell.

A query that reads such a stream row by row runs in its cells. A query that joins it can be divided if all queries that
are connected by derived streams can be divided by one key: every base stream has a term for it, and the derived streams
contain it as a column. Law: then rows that agree in the key are in one cell, base rows and derived ones. Otherwise all
of these queries run in one cell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.cql import Query, Select, Source
from penstock.expr import Column, Expr, find_columns
from penstock.plan import build_join_graph
from penstock.spark.grid import find_grouping_keys, find_sequence_key, is_covered, reads_subqueries
from penstock.spark.placement import Placement, choose_cell, find_pin_reason, list_streams, pin_streams, place_query
from penstock.spark.route import HashCoordinate, Route, RouteDimension, strip_alias


@dataclass(frozen=True)
class Partitioning:
    """A way to divide a query: the key of each base stream, by alias, and the result columns that hold the key."""

    keys: Mapping[str, Expr]
    key_columns: frozenset[str]
    keeps_nulls: bool = False
    """Whether rows whose key is NULL are kept."""


def place_queries(queries: Mapping[str, Query], derived: Collection[str], cells: int) -> dict[str, Placement]:
    """The placements of queries, some of which make the `derived` streams that others read."""
    found: dict[str, Placement] = {}
    reads = {name: [source for source in query.body.inputs if source.relation.name in derived]
             for name, query in queries.items()}  # fmt: skip
    for together in _group_connected(queries, reads):
        reader = next((name for name in together if reads[name] and not is_row_by_row(queries[name])), None)
        partitionings = (
            None if reader is None else _choose_partitionings({name: queries[name] for name in together}, {})
        )
        bases = [source for name in together for _, source in _list_base_streams(queries[name], derived)]
        for name in together:
            own = _list_base_streams(queries[name], derived)
            if not own:
                found[name] = Placement({}, follows_stream=reads[name][0].relation.name)
            elif reader is None:
                found[name] = place_query(queries[name], cells)
            elif partitionings is not None:
                partitioning = partitionings[name]
                found[name] = Placement(
                    {(side, each.alias): _build_route(each, partitioning, cells) for side, each in own}
                )
            else:
                why = f"{reader} needs all rows of the derived stream {reads[reader][0].relation.name}"
                found[name] = pin_streams(own, Route(choose_cell(bases, cells), ()), why)
    return {name: found[name] for name in queries}


def is_row_by_row(query: Query) -> bool:
    """Whether a query over one stream answers each row by itself, in any cell."""
    body, items = query.body, list_streams(query.body)
    if not isinstance(body, Select) or len(items) != 1 or find_pin_reason(query) is not None or reads_subqueries(body):
        return False
    return not items[0][1].window.counted and find_grouping_keys(body) is None


def _build_route(source: Source, partitioning: Partitioning, cells: int) -> Route:
    key = HashCoordinate(strip_alias(partitioning.keys[source.alias]), keeps_nulls=partitioning.keeps_nulls)
    return Route(0, (RouteDimension(cells, key),) if cells > 1 else ())


def _list_base_streams(query: Query, derived: Collection[str]) -> list[tuple[int, Source]]:
    return [(side, source) for side, source in list_streams(query.body) if source.relation.name not in derived]


def _group_connected(names: Iterable[str], reads: Mapping[str, Sequence[Source]]) -> list[list[str]]:
    """The names in groups of queries that are connected by derived streams."""
    groups: dict[str, list[str]] = {}
    for name in names:  # a derived stream comes before those that read it
        others = {id(groups[source.relation.name]): groups[source.relation.name] for source in reads[name]}
        together = [*(member for group in others.values() for member in group), name]
        groups |= dict.fromkeys(together, together)
    return list({id(group): group for group in groups.values()}.values())


def _choose_partitionings(
    queries: Mapping[str, Query], chosen: dict[str, Partitioning]
) -> dict[str, Partitioning] | None:
    """A partitioning for each query, streams before their readers, such that they agree; None if there is none."""
    name = next((name for name in queries if name not in chosen), None)
    if name is None:
        return chosen
    for partitioning in _list_partitionings(queries[name], chosen):
        found = _choose_partitionings(queries, {**chosen, name: partitioning})
        if found is not None:
            return found
    return None


def _list_partitionings(query: Query, chosen: Mapping[str, Partitioning]) -> Iterator[Partitioning]:
    """The partitionings of a query that agree with those of the derived streams it reads."""
    body, items = query.body, [source for _, source in list_streams(query.body)]
    if not isinstance(body, Select) or find_pin_reason(query) is not None or reads_subqueries(body):
        return
    keys = find_grouping_keys(body)  # rows of a group must stay together
    if len(items) == 1:
        (source,) = items
        for term in dict.fromkeys(keys or (item.expr for item in body.items)):
            if {column.alias for column in find_columns(term)} == {source.alias} and _is_compatible(
                source, term, chosen
            ):
                own = {} if source.relation.name in chosen else {source.alias: term}
                yield Partitioning(own, _find_key_columns(body, {term}), keeps_nulls=True)
        if is_row_by_row(query) and source.relation.name in chosen:
            yield Partitioning({}, frozenset())
        return
    pairing = find_sequence_key(body) if body.sequence is not None else None
    graph = build_join_graph(tuple(source.alias for source in body.sources), body.where)
    for terms in (dict(class_.terms) for class_ in graph.classes) if pairing is None else (pairing,):
        grouped = keys is None or not set(keys).isdisjoint(terms.values())
        if grouped and all(s.alias in terms and _is_compatible(s, terms[s.alias], chosen) for s in items):
            own = {source.alias: terms[source.alias] for source in items if source.relation.name not in chosen}
            yield Partitioning(own, _find_key_columns(body, set(terms.values())))


def _is_compatible(source: Source, term: Expr, chosen: Mapping[str, Partitioning]) -> bool:
    """Whether the rows of a FROM item that agree in a term, and those of one window, are in one cell."""
    below = chosen.get(source.relation.name)
    return is_covered(source, term) and (below is None or _is_key_column(term, below))


def _is_key_column(term: Expr, partitioning: Partitioning) -> bool:
    return isinstance(term, Column) and term.name in partitioning.key_columns


def _find_key_columns(body: Select, terms: Collection[Expr]) -> frozenset[str]:
    return frozenset(item.name for item in body.items if item.expr in terms)
