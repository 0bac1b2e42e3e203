"""The parts of which the plan of a query consists: joins and sequences below, groups and set operations above."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

import pyarrow as pa

from penstock.cql import SeqMode, Source, Stream, Subquery, format_duration
from penstock.errors import InternalError
from penstock.expr import Aggregate, Call, Column, Expr, find_columns, to_sql, walk
from penstock.plan.explain import ExplainNode, Properties, describe_join, format_source
from penstock.plan.join_graph import JoinGraph
from penstock.plan.part import PlanPart, ShapeQueue, walk_parts, walk_planned_parts
from penstock.plan.physical import JoinPlan, plan_join
from penstock.plan.tree import PlanShape, parse_aliases, parse_tree

Outputs = tuple[tuple[str, Expr], ...]


@dataclass(frozen=True)
class JoinPart(PlanPart):
    """A join of one or more FROM items, and its output columns."""

    sources: tuple[Source, ...]
    graph: JoinGraph
    outputs: Outputs
    plan: JoinPlan
    subqueries: tuple[PlanPart, ...] = ()
    """The plans of the subqueries among the sources, in their order."""

    @property
    def inputs(self) -> tuple[PlanPart, ...]:
        return self.subqueries

    def with_inputs(self, inputs: Sequence[Any]) -> Self:
        return replace(self, subqueries=tuple(inputs))

    @property
    def subquery_aliases(self) -> tuple[str, ...]:
        """The aliases of the subqueries among the sources, in their order."""
        return tuple(source.alias for source in self.sources if isinstance(source.relation, Subquery))

    def describe(self, inputs: tuple[ExplainNode, ...]) -> ExplainNode:
        return describe_join(self.plan, {}, dict(zip(self.subquery_aliases, inputs, strict=True)))

    def replan(self, shapes: ShapeQueue) -> PlanPart:
        """Take the shapes of the subqueries, then its own."""
        below = self.with_inputs([each.replan(shapes) for each in self.subqueries])
        return replace(below, plan=self.plan_text(shapes.popleft()))

    def plan_text(self, text: str) -> JoinPlan:
        """The same join in the shape of a plan string."""
        return self.plan_shape(parse_tree(text, self.graph.aliases))

    @property
    def probes(self) -> bool:
        """Whether the join has more than one input, so that tuples probe."""
        return len(self.sources) > 1

    def plan_shape(self, shape: PlanShape) -> JoinPlan:
        """The same join in another shape."""
        return plan_join(self.graph, self.sources, tuple(expr for _, expr in self.outputs), shape)


@dataclass(frozen=True)
class SequenceStep:
    """One step of a sequence: how tuples pair, and which columns the pairs have.

    `tie_order` orders tuples of one time: -1 if the left comes first, 1 if the right comes first, 0 if both are of one
    stream. `keys` are equal terms of the left and the right. `outputs` are the columns of the last step. Other steps
    have None and pass on `carried_columns`.
    """

    is_recent: bool
    tie_order: int
    keys: tuple[tuple[Expr, Expr], ...]
    residuals: tuple[Expr, ...]
    outputs: Outputs | None
    carried_columns: tuple[Column, ...] = ()

    @property
    def needed_columns(self) -> tuple[Column, ...]:
        """The columns of the left and of the right that a pair reads."""
        shown = [expr for _, expr in self.outputs or ()]
        exprs = [*(left for left, _ in self.keys), *self.residuals, *shown, *self.carried_columns]
        return tuple(dict.fromkeys(column for expr in exprs for column in find_columns(expr)))


@dataclass(frozen=True)
class SequencePart(PlanPart):
    """FROM SEQ(...): the items, the conditions over one item, and the steps between items."""

    mode: SeqMode
    sources: tuple[Source, ...]
    filters: tuple[tuple[Expr, ...], ...]
    steps: tuple[SequenceStep, ...]

    @property
    def inputs(self) -> tuple[PlanPart, ...]:
        return ()

    def with_inputs(self, inputs: Sequence[Any]) -> Self:  # noqa: ARG002 - a sequence reads streams
        return self

    def describe(self, inputs: tuple[ExplainNode, ...]) -> ExplainNode:  # noqa: ARG002
        node = _describe_source(self.sources[0], self.filters[0])
        for step, source, filters in zip(self.steps, self.sources[1:], self.filters[1:], strict=True):
            right = _describe_source(source, filters)
            node = ExplainNode(f"sequence {self.mode.upper()}", _describe_step(step), (node, right))
        return node


@dataclass(frozen=True)
class RowSlide:
    """[ROWS n SLIDE rows]: a report whenever so many more rows of the stream have come."""

    stream: str
    rows: int


@dataclass(frozen=True)
class GroupPlan:
    """The computation of a GROUP BY: `keys`, and `items` and `having` over keys and aggregates."""

    keys: tuple[Expr, ...]
    items: Outputs
    having: Expr | None
    slide: int | None = None
    row_slide: RowSlide | None = None

    @property
    def slides(self) -> bool:
        """Whether it reports at each slide only."""
        return self.slide is not None or self.row_slide is not None

    @cached_property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """The distinct aggregates, in order of appearance."""
        shown = [expr for _, expr in self.items] + ([self.having] if self.having is not None else [])
        found = (node for expr in shown for node in walk(expr) if isinstance(node, Aggregate))
        return tuple(dict.fromkeys(found))

    @cached_property
    def inputs(self) -> Outputs:
        """The columns that a group reads: keys, and arguments of aggregates."""
        arguments = (arg for aggregate in self.aggregates for arg in aggregate.args)
        return tuple((f"{place}", expr) for place, expr in enumerate(dict.fromkeys((*self.keys, *arguments))))

    @cached_property
    def input_names(self) -> dict[Expr, str]:
        """The input column of each key and argument."""
        return {expr: name for name, expr in self.inputs}

    def to_group_columns(self, expr: Expr) -> Expr:
        """The expression over the columns of a group, which are its keys and aggregates."""
        if expr in self.keys:
            return Column("key", f"{self.keys.index(expr)}", expr.type)
        if isinstance(expr, Aggregate):
            return Column("aggregate", f"{self.aggregates.index(expr)}", expr.type)
        if isinstance(expr, Call):
            return replace(expr, args=tuple(self.to_group_columns(arg) for arg in expr.args))
        if isinstance(expr, Column):
            name = f"{expr.alias}.{expr.name}"
            raise InternalError("UNGROUPED_COLUMN", f"{name} is neither a key nor in an aggregate", column=name)
        return expr


@dataclass(frozen=True)
class GroupPart(PlanPart):
    """GROUP BY over the rows of a join or sequence."""

    distorted_as = "an aggregate"
    input: PlanPart
    plan: GroupPlan

    @property
    def inputs(self) -> tuple[PlanPart, ...]:
        return (self.input,)

    def with_inputs(self, inputs: Sequence[Any]) -> Self:
        return replace(self, input=inputs[0])

    def describe(self, inputs: tuple[ExplainNode, ...]) -> ExplainNode:
        return ExplainNode("aggregate", _describe_group(self), inputs)


@dataclass(frozen=True)
class DistinctPart(PlanPart):
    """DISTINCT over the rows of another part."""

    distorted_as = "DISTINCT"
    input: PlanPart
    columns: tuple[tuple[str, pa.DataType], ...]

    @property
    def inputs(self) -> tuple[PlanPart, ...]:
        return (self.input,)

    def with_inputs(self, inputs: Sequence[Any]) -> Self:
        return replace(self, input=inputs[0])

    def describe(self, inputs: tuple[ExplainNode, ...]) -> ExplainNode:
        return ExplainNode("distinct", (), inputs)


@dataclass(frozen=True)
class UnionPart(PlanPart):
    """UNION ALL of any number of parts."""

    sides: tuple[PlanPart, ...]
    columns: tuple[tuple[str, pa.DataType], ...]

    @property
    def inputs(self) -> tuple[PlanPart, ...]:
        return self.sides

    def with_inputs(self, inputs: Sequence[Any]) -> Self:
        return replace(self, sides=tuple(inputs))

    def describe(self, inputs: tuple[ExplainNode, ...]) -> ExplainNode:
        return ExplainNode("union all", (), inputs)


@dataclass(frozen=True)
class DifferencePart(PlanPart):
    """EXCEPT: the first side without the others. `order` has the positions of the others, in the order of tests."""

    distorted_as = "EXCEPT"
    sides: tuple[PlanPart, ...]
    columns: tuple[tuple[str, pa.DataType], ...]
    order: tuple[int, ...]

    @property
    def inputs(self) -> tuple[PlanPart, ...]:
        return self.sides

    @property
    def planned_inputs(self) -> tuple[PlanPart, ...]:
        return (self.sides[0], *(self.sides[place] for place in self.order))

    def with_inputs(self, inputs: Sequence[Any]) -> Self:
        return replace(self, sides=tuple(inputs))

    def describe(self, inputs: tuple[ExplainNode, ...]) -> ExplainNode:
        return ExplainNode("except", (), inputs)

    def replan(self, shapes: ShapeQueue) -> PlanPart:
        """A shape names the streams that it joins, so the order of the shapes gives the order of the subtrahends."""
        sides, order = [self.sides[0].replan(shapes), *self.sides[1:]], []
        left = list(range(1, len(sides)))
        while left:
            place = next((place for place in left if _matches_shapes(sides[place], shapes)), left[0])
            sides[place] = sides[place].replan(shapes)
            order.append(place)
            left.remove(place)
        return replace(self, sides=tuple(sides), order=tuple(order))


@dataclass(frozen=True)
class SetOperationPart(PlanPart):
    """INTERSECT, INTERSECT ALL or EXCEPT ALL of two parts, or the rows of one part by value."""

    distorted_as = "a set operation"
    kind: Literal["intersect", "intersect all", "except all", "by value"]
    sides: tuple[PlanPart, ...]
    columns: tuple[tuple[str, pa.DataType], ...]

    @property
    def inputs(self) -> tuple[PlanPart, ...]:
        return self.sides

    def with_inputs(self, inputs: Sequence[Any]) -> Self:
        return replace(self, sides=tuple(inputs))

    def describe(self, inputs: tuple[ExplainNode, ...]) -> ExplainNode:
        return ExplainNode(self.kind, (), inputs)


# ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def list_join_parts(part: PlanPart) -> tuple[JoinPart, ...]:
    """The joins of a plan, in the order of the text."""
    return tuple(each for each in walk_parts(part) if isinstance(each, JoinPart))


def list_difference_parts(part: PlanPart) -> tuple[DifferencePart, ...]:
    """The set differences of a plan, inner ones first."""
    return tuple(each for each in walk_parts(part) if isinstance(each, DifferencePart))


def list_planned_joins(part: PlanPart) -> tuple[JoinPart, ...]:
    """The joins of a plan, in the order of its plan string."""
    return tuple(each for each in walk_planned_parts(part) if isinstance(each, JoinPart))


def find_distortion(part: PlanPart) -> str | None:
    """What above a join is wrong, not partial, if rows of the join are missing; None if nothing is."""
    for each in walk_parts(part):
        if each.distorted_as is not None and any(join.probes for join in list_join_parts(each)):
            return each.distorted_as
    return None


def _matches_shapes(part: PlanPart, shapes: Iterable[str]) -> bool:
    """Whether the next shapes are over the streams of this part."""
    pairs = zip(list_planned_joins(part), shapes, strict=False)
    return all({name.casefold() for name in join.graph.aliases} == parse_aliases(shape) for join, shape in pairs)


# ── explain ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _describe_group(part: GroupPart) -> Properties:
    plan = part.plan
    keys = ", ".join(to_sql(key) for key in plan.keys) or "nothing (one group)"
    shown = ", ".join(to_sql(aggregate) for aggregate in plan.aggregates)
    having = () if plan.having is None else (("having", to_sql(plan.having)),)
    return (("by", keys), *((("computes", shown),) if shown else ()), *having, *_describe_slide(part))


def _describe_slide(part: GroupPart) -> Properties:
    plan = part.plan
    if plan.row_slide is not None:
        return (("slide", f"{plan.row_slide.rows} rows of {plan.row_slide.stream}"),)
    return () if plan.slide is None else (("slide", format_duration(plan.slide, _find_time_type(part.input))),)


def _find_time_type(part: PlanPart) -> object:
    joined = (each for each in walk_parts(part) if isinstance(each, (JoinPart, SequencePart)))
    sources = (source.relation for each in joined for source in each.sources)
    return next(relation.time_type for relation in sources if isinstance(relation, Stream))


def _describe_step(step: SequenceStep) -> Properties:
    equal = " and ".join(f"{to_sql(left)} = {to_sql(right)}" for left, right in step.keys)
    where = " AND ".join(to_sql(term) for term in step.residuals)
    return (*((("on", equal),) if equal else ()), *((("where", where),) if where else ()))


def _describe_source(source: Source, filters: tuple[Expr, ...]) -> ExplainNode:
    where = (("filter", " AND ".join(to_sql(term) for term in filters)),) if filters else ()
    return ExplainNode(format_source(source), where)
