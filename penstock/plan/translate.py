"""From a bound body to parts: one for every clause, in the structure of the text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.cql import (
    WINDOW_END,
    WINDOW_START,
    FramedRows,
    OuterJoin,
    QueryBody,
    RankedRows,
    RowTransform,
    Select,
    SetOperation,
    Source,
    Stream,
    Subquery,
    View,
    WindowedRows,
    reads_final_joins,
)
from penstock.errors import InternalError
from penstock.expr import Column, Expr, find_columns
from penstock.plan.final_rows import FinalRows
from penstock.plan.join_graph import build_join_graph
from penstock.plan.outer_join import OuterJoinParts, is_final_join_of_streams
from penstock.plan.part import PlanPart
from penstock.plan.physical import plan_join
from penstock.plan.projection import ProjectPart, RelationPart, ViewPart
from penstock.plan.query import (
    DifferencePart,
    DistinctPart,
    GroupPart,
    GroupPlan,
    JoinPart,
    Outputs,
    RowSlide,
    SetOperationPart,
    UnionPart,
)
from penstock.plan.row_transforms import EVENT_TIME, FramePart, RankPart, SortColumn, TimeWindow, WindowPart
from penstock.plan.sequences import plan_sequence
from penstock.plan.tree import build_left_deep


@dataclass(frozen=True)
class Translation:
    """How bodies are translated. `stream_ranks`: the order in which streams were declared."""

    stream_ranks: Mapping[str, int]
    _translated: dict[tuple[int, frozenset[str]], RelationPart] = field(default_factory=dict)
    """The relations by the identity of their bodies and the columns that are read."""
    _relations: dict[RelationPart, RelationPart] = field(default_factory=dict)
    """One object for equal relations: what reads it is compared fast."""

    def translate(self, body: QueryBody, needed: Collection[str] | None = None) -> PlanPart:
        """The parts of a body; joins are left-deep in the order of FROM. `needed`: the columns that are read."""
        match body:
            case OuterJoin():
                return self._translate_outer_join(body, needed)
            case SetOperation():
                return self._translate_set(body)
            case WindowedRows():
                return _translate_window(body, needed)
            case RankedRows():
                return self._translate_ranked(body, needed)
            case FramedRows():
                return self._translate_framed(body, needed)
            case RowTransform():
                raise InternalError("UNKNOWN_BODY", f"the planner has no part for {type(body).__name__}")
        columns = tuple((item.name, item.expr.type) for item in body.items)
        items = tuple((item.name, item.expr) for item in body.items)
        if reads_final_joins(body) and not is_final_join_of_streams(body):
            return FinalRows(_join_sources, _translate_window).build(body, items)
        if body.group_by is None:
            kept = None if body.distinct else needed
            below = self._translate_rows(body, tuple(each for each in items if kept is None or each[0] in kept))
        else:
            # The binder refuses windows of one SELECT that slide by different amounts.
            slide = next((source.window.slide for source in body.sources if source.window.slide), None)
            counted = next((source for source in body.sources if source.window.row_slide), None)
            row_slide = None if counted is None else RowSlide(counted.relation.name, counted.window.row_slide or 0)
            group = GroupPlan(body.group_by, items, body.having, slide, row_slide)
            below = GroupPart(self._translate_rows(body, group.inputs), group)
        return DistinctPart(below, columns) if body.distinct else below

    def _translate_ranked(self, body: RankedRows, needed: Collection[str] | None) -> PlanPart:
        """The ranks over all columns of the source, because these order equal rows."""
        schema = body.source.relation.schema
        exprs = [Column(body.source.alias, field.name, field.type) for field in schema]
        below = self._translate_relations((body.source,), exprs)[body.source.alias]
        shown = tuple(name for name in schema.names if needed is None or name in needed)
        order = tuple(SortColumn(term.column.name, term.descending, term.nulls_first) for term in body.order)
        return RankPart(
            below,
            body.function,
            tuple(column.name for column in body.partition),
            order,
            tuple((field.name, field.type) for field in schema),
            shown,
            body.rank,
            body.offset,
            body.limit,
        )

    def _translate_framed(self, body: FramedRows, needed: Collection[str] | None) -> PlanPart:
        """The functions that are read, over the columns that they, the reader and the order of rows need."""
        windows = [
            replace(window, functions=tuple(each for each in window.functions if needed is None or each.name in needed))
            for window in body.windows
        ]
        windows = [window for window in windows if window.functions or window.frame.ahead]
        exprs: list[Expr] = [body.time]
        for window in windows:
            exprs += [*window.partition, *(each.value for each in window.functions)]
            exprs += [each.default for each in window.functions if each.default is not None]
        used = {column.name for expr in exprs for column in find_columns(expr)}
        schema = body.source.relation.schema
        shown = tuple(name for name in schema.names if needed is None or name in needed)
        if body.by_arrival:
            schema = pa.schema([field for field in schema if field.name in used or field.name in shown])
        columns = [Column(body.source.alias, field.name, field.type) for field in schema]
        return FramePart(
            self._translate_relations((body.source,), columns)[body.source.alias],
            tuple(windows),
            body.time.name,
            body.time.type,
            () if body.by_arrival else tuple(schema.names),
            tuple((field.name, field.type) for field in schema),
            shown,
        )

    def _translate_set(self, body: SetOperation) -> PlanPart:
        columns = tuple((item.name, item.expr.type) for item in body.items)
        sides = self.translate(body.left), self.translate(body.right)
        match body.kind:
            case "except":
                return DifferencePart(sides, columns, (1,))
            case "union all":
                return UnionPart(sides, columns)
            case "union":
                return DistinctPart(UnionPart(sides, columns), columns)
        return SetOperationPart(body.kind, sides, columns)

    def _translate_rows(self, select: Select, outputs: Outputs) -> PlanPart:
        """The rows of FROM and WHERE."""
        if select.sequence is not None:
            return plan_sequence(select, select.sequence.mode, outputs, self.stream_ranks)
        exprs = (*(expr for _, expr in outputs), *select.where)
        return _join_sources(select, outputs, self._translate_relations(select.sources, exprs))

    def _translate_relations(self, sources: Iterable[Source], exprs: Iterable[Expr]) -> dict[str, PlanPart]:
        """The subqueries among the sources, by alias, with the columns that the expressions read."""
        read = [column for expr in exprs for column in find_columns(expr)]
        found: dict[str, PlanPart] = {}
        for source in sources:
            if isinstance(source.relation, Subquery):
                names = frozenset(column.name for column in read if column.alias == source.alias)
                found[source.alias] = self._translate_relation(source.relation, names)
        return found

    def _translate_relation(self, query: Subquery, names: frozenset[str]) -> RelationPart:
        key = id(query.body), names
        if key not in self._translated:
            part = RelationPart(
                ViewPart(query.name, tuple((field.name, field.type) for field in query.schema))
                if isinstance(query, View)
                else self.translate(query.body, names)
            )
            self._translated[key] = self._relations.setdefault(part, part)
        return self._translated[key]

    def _translate_outer_join(self, body: OuterJoin, needed: Collection[str] | None) -> PlanPart:
        shown = tuple(item for item in body.items if needed is None or item.name in needed)
        exprs = (*(item.expr for item in shown), *body.on)
        relations = self._translate_relations((body.left, body.right), exprs)
        return OuterJoinParts(body, shown, relations, _join_sources).build()


def _translate_window(body: WindowedRows, needed: Collection[str] | None) -> PlanPart:
    """The windows over the rows of the stream, with the columns that are read."""
    source, stream = body.source, body.source.relation
    if not isinstance(stream, Stream):
        raise InternalError("NOT_A_STREAM", f"a window over {stream.name}, which is not a stream")
    kept = {item.name: item.expr for item in body.items[:-2] if needed is None or item.name in needed}
    divided = {column.name: column for column in body.partition}
    time = Column(source.alias, stream.time, stream.time_type)
    below = _join_sources(Select((source,), (), ()), tuple({**kept, **divided, EVENT_TIME: time}.items()), {})
    start, end = (name if needed is None or name in needed else None for name in (WINDOW_START, WINDOW_END))
    window = TimeWindow(body.kind, body.size, body.slide, stream.time_type, tuple(divided))
    return WindowPart(below, window, tuple((name, expr.type) for name, expr in kept.items()), start, end)


def _join_sources(select: Select, outputs: Outputs, relations: Mapping[str, PlanPart]) -> PlanPart:
    """A join of sources, or a projection of one subquery. `relations` are the subqueries, by alias."""
    subqueries = tuple(relations[source.alias] for source in select.sources if source.alias in relations)
    if subqueries and len(select.sources) == 1:
        return ProjectPart(subqueries[0], f"select from query {select.sources[0].alias}", select.where, outputs)
    graph = build_join_graph(tuple(source.alias for source in select.sources), select.where)
    shown = tuple(expr for _, expr in outputs)
    plan = plan_join(graph, select.sources, shown, build_left_deep(graph.aliases))
    return JoinPart(select.sources, graph, outputs, plan, subqueries)
