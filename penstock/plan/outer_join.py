"""Outer, semi and anti joins as one part above the inner join that they contain.

    a LEFT JOIN b = pairs UNION ALL (rows of a that are in no pair, with NULLs for b)

The inner join has all that an inner join has: any shape, state policy, migration and sharing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import pyarrow as pa

from penstock.cql import OuterJoin, QueryBody, Select, SelectItem, Source, Stream, Subquery
from penstock.cql.bound import OuterJoinKind
from penstock.expr import BOOL, HIDDEN, INT, ROW_NUMBER, Column
from penstock.plan.explain import ExplainNode
from penstock.plan.part import PlanPart
from penstock.plan.query import JoinPart, Outputs


@dataclass(frozen=True)
class PreservedSide:
    """A side whose rows are counted. `columns`: the columns of the answer that it has, and their names in its rows."""

    alias: str
    pair_number: str
    """The column of the pairs with the number of this side's row."""
    row_number: str | None
    """The column of the side's rows with their numbers; None if these are the numbers of their changes."""
    columns: tuple[tuple[str, str], ...]

    @cached_property
    def names(self) -> dict[str, str]:
        """The name in the side's rows of each column."""
        return dict(self.columns)


@dataclass(frozen=True)
class OuterJoinPart(PlanPart):
    """An outer, semi or anti join: its pairs, and the rows of the preserved sides. A semi join reads pairs only.

    With `final` each row is written once, when it is final; then a semi join reads its left side too. `mark` is the
    column of a mark join; None if it is not read.
    """

    distorted_as = "an outer join"
    kind: OuterJoinKind
    pairs: PlanPart
    kept: tuple[PlanPart, ...]
    sides: tuple[PreservedSide, ...]
    columns: tuple[tuple[str, pa.DataType], ...]
    final: bool = False
    mark: str | None = None

    @property
    def inputs(self) -> tuple[PlanPart, ...]:
        return (self.pairs, *self.kept)

    def with_inputs(self, inputs: Sequence[Any]) -> Self:
        return replace(self, pairs=inputs[0], kept=tuple(inputs[1:]))

    @property
    def has_known_ends(self) -> bool:
        """Whether the end of every pair and of every row of a preserved side is known when it enters."""
        sources = [source for part in self.inputs if isinstance(part, JoinPart) for source in part.sources]
        return (
            (self.kind not in ("semi", "mark") or self.final)
            and all(isinstance(part, JoinPart) for part in self.inputs)
            and all(map(_has_known_end, sources))
        )

    def describe(self, inputs: tuple[ExplainNode, ...]) -> ExplainNode:
        kept = ", ".join(side.alias for side in self.sides)
        what = {"semi": "with a partner", "mark": "and whether they have a partner"}.get(self.kind, "without a partner")
        what += " when that is final" if self.final else ""
        return ExplainNode(f"{self.kind} join", (("keeps", f"rows of {kept} {what}"),), inputs)


def is_final_join_of_streams(body: QueryBody) -> bool:
    """Whether a body reads one outer join whose rows are written when they are final, of streams with known ends.

    Then a row without a partner is final at its end, if no pair came until then.
    """
    if not isinstance(body, Select) or len(body.sources) != 1:
        return False
    query = body.sources[0].relation
    if not isinstance(query, Subquery) or not isinstance(query.body, OuterJoin) or not query.body.final:
        return False
    return all(
        isinstance(side.relation, Stream) and _has_known_end(side) for side in (query.body.left, query.body.right)
    )


def _has_known_end(source: Source) -> bool:
    return not isinstance(source.relation, Subquery) and not source.window.counted


JoinSources = Callable[[Select, Outputs, Mapping[str, PlanPart]], PlanPart]
"""Makes the part of a join, given a SELECT without columns, its outputs, and its subqueries by alias."""


def number_rows(source: Source) -> Source:
    """A FROM item with the numbers of its rows as a hidden column."""
    return replace(source, hidden=((ROW_NUMBER, INT),))


@dataclass(frozen=True)
class OuterJoinParts:
    """The parts of one outer join. Every column has its name in the answer of the join."""

    body: OuterJoin
    items: tuple[SelectItem, ...]
    """The columns that are read."""
    relations: Mapping[str, PlanPart]
    """The subqueries among the two sides, by alias: pairs and preserved rows read the same ones."""
    join: JoinSources

    def build(self) -> OuterJoinPart:
        left, right = self.body.left, self.body.right
        preserved = (left, right) if self.body.kind == "full" else (left,)
        shown = preserved if self.body.kind in ("semi", "anti", "mark") else (left, right)
        items = tuple(item for item in self.items if _get_alias(item) in {each.alias for each in shown})
        sides = tuple(self._describe_side(side) for side in preserved)
        numbers = tuple(
            (side.pair_number, Column(source.alias, ROW_NUMBER, INT))
            for side, source in zip(sides, preserved, strict=True)
        )
        counted = {source.alias for source in preserved}
        sources = tuple(number_rows(each) if each.alias in counted else each for each in (left, right))
        pairs = self.join(Select(sources, self.body.on, ()), (*_read_items(items), *numbers), self.relations)
        reads_kept = self.body.kind != "semi" or self.body.final
        kept = tuple(self._build_kept(each) for each in preserved) if reads_kept else ()
        mark = next((item.name for item in self.items if _get_alias(item) == ""), None)
        columns = tuple((item.name, item.expr.type) for item in items)
        columns += () if mark is None else ((mark, BOOL),)
        return OuterJoinPart(self.body.kind, pairs, kept, sides, columns, self.body.final, mark)

    def _describe_side(self, side: Source) -> PreservedSide:
        own = [item for item in self.items if _get_alias(item) == side.alias]
        is_relation = side.alias in self.relations
        names = tuple(
            (item.name, item.expr.name if is_relation else item.name) for item in own if isinstance(item.expr, Column)
        )
        return PreservedSide(side.alias, f"{HIDDEN}{side.alias}", None if is_relation else ROW_NUMBER, names)

    def _build_kept(self, side: Source) -> PlanPart:
        """All rows of a side."""
        if side.alias in self.relations:
            return self.relations[side.alias]
        own = tuple(item for item in self.items if _get_alias(item) == side.alias)
        outputs = (*_read_items(own), (ROW_NUMBER, Column(side.alias, ROW_NUMBER, INT)))
        return self.join(Select((number_rows(side),), (), ()), outputs, {})


def _read_items(items: Collection[SelectItem]) -> Outputs:
    return tuple((item.name, item.expr) for item in items)


def _get_alias(item: SelectItem) -> str | None:
    return item.expr.alias if isinstance(item.expr, Column) else None
