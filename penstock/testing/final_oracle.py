"""EMIT ON WINDOW CLOSE over outer joins by brute force: the join of all tuples, where partners share an instant."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from penstock.cql import OuterJoin, Select, Source, Subquery
from penstock.expr import Expr
from penstock.testing.interval_operators import ALWAYS, FOREVER, ValidRow
from penstock.testing.row_evaluator import Row, compile_expr


class _Tuple(Protocol):
    @property
    def row(self) -> Row: ...
    @property
    def born(self) -> float: ...
    @property
    def dies(self) -> float: ...


ListTuples = Callable[[Source], Sequence[_Tuple]]


class FinalTuple(NamedTuple):
    """A row that is valid in [born, dies) and final at `at`."""

    row: Row
    born: float
    dies: float
    at: float


def compute_final_rows(select: Select, list_tuples: ListTuples) -> list[ValidRow]:
    """The rows of a SELECT over outer joins, from the instant at which they are final."""
    items = [compile_expr(item.expr) for item in select.items]
    found = _join_sources(select.sources, select.where, list_tuples)
    return [
        ValidRow(tuple(item(rows) for item in items), at, FOREVER)
        for rows, _, _, at in found
        if at not in (ALWAYS, FOREVER)
    ]


def _list_final(source: Source, list_tuples: ListTuples) -> list[FinalTuple]:
    query = source.relation
    if isinstance(query, Subquery) and isinstance(query.body, Select):
        found = _join_sources(query.body.sources, query.body.where, list_tuples)
    elif isinstance(query, Subquery) and isinstance(query.body, OuterJoin):
        found = _join_outer(query.body, list_tuples)
    else:
        tuples = list_tuples(source)
        return [FinalTuple(each.row, each.born, each.dies, each.born) for each in tuples if each.born < each.dies]
    items = {item.name: compile_expr(item.expr) for item in query.body.items}
    return [
        FinalTuple({name: item(rows) for name, item in items.items()}, born, dies, at) for rows, born, dies, at in found
    ]


_Found = Iterator[tuple[dict[str, Any], float, float, float]]


def _join_sources(sources: Sequence[Source], where: Sequence[Expr], list_tuples: ListTuples) -> _Found:
    tests = [compile_expr(term) for term in where]
    for parts in itertools.product(*(_list_final(source, list_tuples) for source in sources)):
        born, dies = max(part.born for part in parts), min(part.dies for part in parts)
        rows = {source.alias: part.row for source, part in zip(sources, parts, strict=True)}
        if born < dies and all(test(rows) is True for test in tests):
            yield rows, born, dies, max(part.at for part in parts)


def _join_outer(body: OuterJoin, list_tuples: ListTuples) -> _Found:
    sides = body.left, body.right
    pools = [_list_final(side, list_tuples) for side in sides]
    tests = [compile_expr(term) for term in body.on]
    partners: dict[tuple[int, int], list[FinalTuple]] = {}
    for one, left in enumerate(pools[0]):
        for other, right in enumerate(pools[1]):
            born, dies = max(left.born, right.born), min(left.dies, right.dies)
            rows = {sides[0].alias: left.row, sides[1].alias: right.row}
            if born < dies and all(test(rows) is True for test in tests):
                partners.setdefault((0, one), []).append(right)
                partners.setdefault((1, other), []).append(left)
                if body.kind in ("left", "full"):
                    yield rows, born, dies, max(left.at, right.at)
    for side in range(2 if body.kind == "full" else 1):
        other_alias = sides[1 - side].alias
        nulls = dict.fromkeys(sides[1 - side].relation.schema.names)
        for place, row in enumerate(pools[side]):
            rows = {sides[side].alias: row.row, other_alias: nulls}
            found = partners.get((side, place), [])
            if body.kind == "semi" and found:
                first = min(max(row.born, partner.born) for partner in found)
                yield rows, row.born, row.dies, max(row.at, first)
            elif body.kind != "semi" and not found:
                yield rows, row.born, row.dies, max(row.at, row.born if sides[1].is_table else row.dies)
