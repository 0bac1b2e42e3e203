"""Where queries are placed that read derived streams: what is derived in a cell is read there.

A query that takes such a stream row by row is in its cells. One that joins it can stay cut if all that hangs together
by derived streams can be cut by one key: every stream below has a term for it, and the derived streams pass it on as a
column. Law: then rows that agree in the key are in one cell, base rows and derived ones. Else all of it is in one cell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.cql.bound import Query, Select, Source
from penstock.expr.nodes import Column, Expr, columns
from penstock.plan.join_graph import join_graph
from penstock.spark.placement import (
    Hashed,
    Placement,
    Route,
    Step,
    covered,
    grouping_keys,
    pinned,
    place,
    sequence_key,
    spread,
    streams,
    why_pinned,
    without_alias,
)


@dataclass(frozen=True)
class Cut:
    """A way to cut a query: the key of each base stream, by alias; and the columns of its results that hold the key."""

    terms: Mapping[str, Expr]
    columns: frozenset[str]
    nulls: bool = False
    """Whether rows whose key is NULL count."""


def placed(queries: Mapping[str, Query], derived: Collection[str], cells: int) -> dict[str, Placement]:
    """The placements of queries, and of those that make the `derived` streams, which others of them read."""
    found: dict[str, Placement] = {}
    reads = {name: [source for source in query.body.inputs if source.relation.name in derived]
             for name, query in queries.items()}  # fmt: skip
    for together in _hanging_together(queries, reads):
        awkward = next((name for name in together if reads[name] and not row_by_row(queries[name])), None)
        cuts = None if awkward is None else _cuts({name: queries[name] for name in together}, {})
        bases = [source for name in together for _, source in _base(queries[name], derived)]
        for name in together:
            own = _base(queries[name], derived)
            if not own:
                found[name] = Placement({}, follows=reads[name][0].relation.name)
            elif awkward is None:
                found[name] = place(queries[name], cells)
            elif cuts is not None:
                cut = cuts[name]
                found[name] = Placement({(side, each.alias): _route(each, cut, cells) for side, each in own})
            else:
                why = f"{awkward} needs all rows of the derived stream {reads[awkward][0].relation.name}"
                found[name] = pinned(own, Route(spread(bases, cells), ()), why)
    return {name: found[name] for name in queries}


def row_by_row(query: Query) -> bool:
    """Whether a query over one stream answers each row by itself, wherever it is."""
    body, items = query.body, streams(query.body)
    if not isinstance(body, Select) or len(items) != 1 or why_pinned(query) is not None:
        return False
    window = items[0][1].window
    whole = window is not None and window.kind == "rows"
    return not whole and grouping_keys(body) is None


def _route(source: Source, cut: Cut, cells: int) -> Route:
    key = Hashed(without_alias(cut.terms[source.alias]), nulls=cut.nulls)
    return Route(0, (Step(cells, key),) if cells > 1 else ())


def _base(query: Query, derived: Collection[str]) -> list[tuple[int, Source]]:
    return [(side, source) for side, source in streams(query.body) if source.relation.name not in derived]


def _hanging_together(names: Iterable[str], reads: Mapping[str, Sequence[Source]]) -> list[list[str]]:
    """The names in groups, by who reads whom."""
    groups: dict[str, list[str]] = {}
    for name in names:  # a derived stream comes before those that read it
        others = {id(groups[source.relation.name]): groups[source.relation.name] for source in reads[name]}
        together = [*(member for group in others.values() for member in group), name]
        groups |= dict.fromkeys(together, together)
    return list({id(group): group for group in groups.values()}.values())


def _cuts(queries: Mapping[str, Query], chosen: dict[str, Cut]) -> dict[str, Cut] | None:
    """A cut for each of the queries, streams before their readers, such that they agree; None if there is none."""
    name = next((name for name in queries if name not in chosen), None)
    if name is None:
        return chosen
    for cut in _ways(queries[name], chosen):
        found = _cuts(queries, {**chosen, name: cut})
        if found is not None:
            return found
    return None


def _ways(query: Query, chosen: Mapping[str, Cut]) -> Iterator[Cut]:
    """The ways to cut a query that agree with the cuts of the derived streams it reads."""
    body, items = query.body, [source for _, source in streams(query.body)]
    if not isinstance(body, Select) or why_pinned(query) is not None:
        return
    keys = grouping_keys(body)  # rows of a group must stay together
    if len(items) == 1:
        (source,) = items
        for term in dict.fromkeys(keys or (item.expr for item in body.items)):
            if {column.alias for column in columns(term)} == {source.alias} and _agrees(source, term, chosen):
                own = {} if source.relation.name in chosen else {source.alias: term}
                yield Cut(own, _holding(body, {term}), nulls=True)
        if row_by_row(query) and source.relation.name in chosen:
            yield Cut({}, frozenset())
        return
    pairing = sequence_key(body) if body.sequence is not None else None
    graph = join_graph(tuple(source.alias for source in body.sources), body.where)
    for terms in (dict(class_.terms) for class_ in graph.classes) if pairing is None else (pairing,):
        grouped = keys is None or not set(keys).isdisjoint(terms.values())
        if grouped and all(s.alias in terms and _agrees(s, terms[s.alias], chosen) for s in items):
            own = {source.alias: terms[source.alias] for source in items if source.relation.name not in chosen}
            yield Cut(own, _holding(body, set(terms.values())))


def _agrees(source: Source, term: Expr, chosen: Mapping[str, Cut]) -> bool:
    """Whether the rows of a FROM item that agree in a term, and those that count together, are in one cell."""
    below = chosen.get(source.relation.name)
    return covered(source, term) and (below is None or _is_key(term, below))


def _is_key(term: Expr, cut: Cut) -> bool:
    return isinstance(term, Column) and term.name in cut.columns


def _holding(body: Select, terms: Collection[Expr]) -> frozenset[str]:
    return frozenset(item.name for item in body.items if item.expr in terms)
