"""EMIT ON WINDOW CLOSE over outer joins: rows that are final, each once.

Law: two rows are partners if their windows have a common instant. The final rows are those of the join of all tuples by
this condition, whenever they arrive: what a batch query over the whole streams gives. A pair is final when both of its
rows are. A row without a partner is final when it expires, because until then a partner may come; beside a static table
it is final at once. A row of a semi join is final when its first partner comes.

A *candidate* is a pair, or a row of a preserved side with NULLs for the other side, for as long as its rows are valid.
Candidates are never retracted, so that they are plain unions and joins of other parts. A candidate is final if it
passes all of its *tests*: each says that a row has no partner, or has one. Rows are told apart by the numbers of the
base rows that they consist of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any, Self

import pyarrow as pa

from penstock.cql import WINDOW_START, OuterJoin, QueryBody, Select, SelectItem, Source, Subquery, WindowedRows
from penstock.errors import InternalError
from penstock.expr import HIDDEN, INT, ROW_NUMBER, Column, Expr, Literal, find_columns
from penstock.plan.explain import ExplainNode
from penstock.plan.outer_join import JoinSources, number_rows
from penstock.plan.part import PlanPart
from penstock.plan.projection import ProjectPart, RelationPart
from penstock.plan.query import Outputs, UnionPart

_BASE_ROW = f"{HIDDEN}base row"
"""The column of windowed rows with the number of the stream's row."""
_PARTNER_TESTS = {"left": False, "full": False, "anti": False, "semi": True}
TranslateWindow = Callable[[WindowedRows, Collection[str] | None], PlanPart]


@dataclass(frozen=True)
class PartnerTest:
    """Whether a row of a preserved side has a partner: what a candidate needs to be final."""

    alias: str
    wants_partner: bool
    keys: tuple[tuple[str, pa.DataType], ...]
    """The columns of a candidate with the numbers of the row."""
    other: str | None
    """The test is about candidates in which this column is NULL, the number of a partner; None: about all."""
    is_static: bool
    """Whether the other side is a static table."""


@dataclass(frozen=True)
class FinalRowsPart(PlanPart):
    """The candidates that are final. For each test: the pairs of its join, and the rows that it is about."""

    distorted_as = "an outer join"
    candidates: PlanPart
    tests: tuple[PartnerTest, ...]
    tested: tuple[tuple[PlanPart, PlanPart], ...]
    columns: tuple[tuple[str, pa.DataType], ...]

    @property
    def inputs(self) -> tuple[PlanPart, ...]:
        return (self.candidates, *chain.from_iterable(self.tested))

    def with_inputs(self, inputs: Sequence[Any]) -> Self:
        tested = tuple(zip(inputs[1::2], inputs[2::2], strict=True))
        return replace(self, candidates=inputs[0], tested=tested)

    def describe(self, inputs: tuple[ExplainNode, ...]) -> ExplainNode:
        return ExplainNode("final rows", tuple(("tests", _describe_test(test)) for test in self.tests), inputs[:1])


def _describe_test(test: PartnerTest) -> str:
    if test.wants_partner:
        return f"{test.alias} has a partner"
    return f"{test.alias} has no partner" + ("" if test.is_static else " until it expires")


@dataclass(frozen=True)
class _Candidates:
    """The candidates of a FROM item. `part` computes them; None for a stream or table. `numbers`: what tells them."""

    source: Source
    part: PlanPart | None
    numbers: Outputs


@dataclass(frozen=True)
class FinalRows:
    """Builds the part of one SELECT. `join` makes the parts of joins, `window` those of time windows."""

    join: JoinSources
    window: TranslateWindow
    _names: Iterator[int] = field(default_factory=count)
    _tests: list[tuple[PartnerTest, tuple[PlanPart, PlanPart]]] = field(default_factory=list)

    def build(self, select: Select, outputs: Outputs) -> FinalRowsPart:
        part, _ = self._join_select(select, outputs)
        tests, tested = zip(*self._tests, strict=True)
        return FinalRowsPart(part, tests, tested, tuple((name, expr.type) for name, expr in outputs))

    def _join_select(self, select: Select, outputs: Outputs) -> tuple[PlanPart, Outputs]:
        """The candidates of a SELECT, and the columns with their numbers."""
        exprs = (*(expr for _, expr in outputs), *select.where)
        found = [self._read(source, exprs) for source in select.sources]
        numbers = tuple(number for each in found for number in each.numbers)
        sources = tuple(each.source for each in found)
        return self.join(replace(select, sources=sources), (*outputs, *numbers), _list_parts(found)), numbers

    def _read(self, source: Source, exprs: Sequence[Expr]) -> _Candidates:
        """The candidates of a FROM item, with the columns that the expressions read."""
        if not isinstance(source.relation, Subquery):
            number = self._name(), Column(source.alias, ROW_NUMBER, INT)
            return _Candidates(number_rows(source), None, (number,))
        body = source.relation.body
        names = {column.name for expr in exprs for column in find_columns(expr) if column.alias == source.alias}
        outputs = tuple((item.name, item.expr) for item in body.items if item.name in names)
        if isinstance(body, WindowedRows):
            return self._read_window(source, body, names)
        part, numbers = self._join_body(body, outputs)
        hidden = tuple((name, expr.type) for name, expr in numbers)
        moved = tuple((name, Column(source.alias, name, type_)) for name, type_ in hidden)
        return _Candidates(replace(source, hidden=hidden), RelationPart(part), moved)

    def _join_body(self, body: QueryBody, outputs: Outputs) -> tuple[PlanPart, Outputs]:
        match body:
            case OuterJoin():
                return self._join_outer(body, outputs)
            case Select():
                return self._join_select(body, outputs)
        raise InternalError("NOT_FINAL", f"the rows of a {type(body).__name__} are not final")

    def _read_window(self, source: Source, body: WindowedRows, names: Collection[str]) -> _Candidates:
        base = number_rows(body.source)
        number = SelectItem(_BASE_ROW, Column(base.alias, ROW_NUMBER, INT))
        part = self.window(replace(body, source=base, items=(number, *body.items)), {*names, _BASE_ROW, WINDOW_START})
        start = next(item.expr.type for item in body.items if item.name == WINDOW_START)
        numbers = tuple(
            (self._name(), Column(source.alias, name, type_))
            for name, type_ in ((_BASE_ROW, INT), (WINDOW_START, start))
        )
        return _Candidates(replace(source, hidden=((_BASE_ROW, INT),)), RelationPart(part), numbers)

    def _join_outer(self, body: OuterJoin, shown: Outputs) -> tuple[PlanPart, Outputs]:
        """The candidates of an outer join, and the columns with their numbers."""
        exprs = (*(expr for _, expr in shown), *body.on)
        sides = [self._read(side, exprs) for side in (body.left, body.right)]
        shows_pairs = body.kind in ("left", "full")
        numbers = tuple(number for each in (sides if shows_pairs else sides[:1]) for number in each.numbers)
        pairs = RelationPart(
            self.join(
                Select(tuple(each.source for each in sides), body.on, ()),
                (*(shown if shows_pairs else ()), *numbers),
                _list_parts(sides),
            )
        )
        preserved = sides if body.kind == "full" else sides[:1]
        kept = [RelationPart(self._keep(side, (*shown, *numbers))) for side in preserved]
        for side, rows in zip(preserved, kept, strict=True):
            other = sides[1] if side is sides[0] else sides[0]
            test = PartnerTest(
                side.source.alias,
                _PARTNER_TESTS[body.kind],
                tuple((name, expr.type) for name, expr in side.numbers),
                other.numbers[0][0] if shows_pairs else None,
                other.source.is_table,
            )
            self._tests.append((test, (pairs, rows)))
        found = tuple((name, Column("", name, expr.type)) for name, expr in numbers)
        if not shows_pairs:
            return kept[0], found
        columns = tuple((name, expr.type) for name, expr in (*shown, *numbers))
        return UnionPart((pairs, *kept), columns), found

    def _keep(self, side: _Candidates, outputs: Outputs) -> PlanPart:
        """All rows of a side, with NULLs for the other one."""
        alias = side.source.alias
        own = tuple(
            (name, expr if {column.alias for column in find_columns(expr)} == {alias} else Literal(None, expr.type))
            for name, expr in outputs
        )
        if side.part is None:
            return self.join(Select((side.source,), (), ()), own, {})
        return ProjectPart(side.part, f"rows of {side.source.alias}", (), own)

    def _name(self) -> str:
        return f"{HIDDEN}n{next(self._names)}"


def _list_parts(found: Sequence[_Candidates]) -> dict[str, PlanPart]:
    return {each.source.alias: each.part for each in found if each.part is not None}
