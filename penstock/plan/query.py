"""The plan of a whole query: joins and sequences below, groups and set operations above them. Pure, frozen values.

`plan_body` turns a bound body into a tree of parts; each says which columns it shows. Joins take their shapes from the
plan strings given, one for each SELECT that joins, in the order of the text, or from the cost model.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from penstock.cql.bound import QueryBody, Select, SeqMode, SetOperation, Source
from penstock.errors import QueryError
from penstock.expr.nodes import Aggregate, Call, Column, Expr, Literal, find_aliases, find_columns, walk
from penstock.plan.cost import assume_statistics
from penstock.plan.join_graph import JoinGraph, build_join_graph
from penstock.plan.join_order import choose_tree
from penstock.plan.physical import JoinPlan, plan_join
from penstock.plan.tree import PlanShape, build_left_deep, parse_tree

Outputs = tuple[tuple[str, Expr], ...]


@dataclass(frozen=True)
class JoinPart:
    """A join of one or more FROM items, and what is shown of it."""

    sources: tuple[Source, ...]
    graph: JoinGraph
    outputs: Outputs
    plan: JoinPlan

    def replan(self, text: str) -> JoinPlan:
        """The same join in another shape."""
        shown = tuple(expr for _, expr in self.outputs)
        return plan_join(self.graph, self.sources, shown, parse_tree(text, self.graph.aliases))


@dataclass(frozen=True)
class SequenceStep:
    """What pairs in one step of a sequence, and what is known of the pairs afterwards.

    `tie` orders tuples of one time: -1 those of the left come first, 1 those of the right, 0 both are of one stream.
    `keys` are equal terms of the left and the right. `outputs` are what pairs show, or None for a step in between,
    which hands on the columns `carried`.
    """

    is_recent: bool
    tie_order: int
    keys: tuple[tuple[Expr, Expr], ...]
    residuals: tuple[Expr, ...]
    outputs: Outputs | None
    carried_columns: tuple[Column, ...] = ()

    @property
    def needed_columns(self) -> tuple[Column, ...]:
        """The columns of the left that are read when it pairs, and those of the right that are read then."""
        shown = [expr for _, expr in self.outputs or ()]
        exprs = [*(left for left, _ in self.keys), *self.residuals, *shown, *self.carried_columns]
        return tuple(dict.fromkeys(column for expr in exprs for column in find_columns(expr)))


@dataclass(frozen=True)
class SequencePart:
    """FROM SEQ(...): the items with their own conditions, and the steps between them."""

    mode: SeqMode
    sources: tuple[Source, ...]
    filters: tuple[tuple[Expr, ...], ...]
    steps: tuple[SequenceStep, ...]


@dataclass(frozen=True)
class GroupPlan:
    """What a GROUP BY computes: `keys`, and `items` and `having` over keys and aggregates of the input."""

    keys: tuple[Expr, ...]
    items: Outputs
    having: Expr | None
    slide: int | None = None

    @cached_property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """The distinct aggregates, in order of appearance."""
        shown = [expr for _, expr in self.items] + ([self.having] if self.having is not None else [])
        found = (node for expr in shown for node in walk(expr) if isinstance(node, Aggregate))
        return tuple(dict.fromkeys(found))

    @cached_property
    def inputs(self) -> Outputs:
        """The columns it reads: keys, and arguments of aggregates."""
        arguments = (arg for aggregate in self.aggregates for arg in aggregate.args)
        return tuple((f"{place}", expr) for place, expr in enumerate(dict.fromkeys((*self.keys, *arguments))))

    @cached_property
    def input_names(self) -> dict[Expr, str]:
        """The input column of each key and argument."""
        return {expr: name for name, expr in self.inputs}

    def to_group_columns(self, expr: Expr) -> Expr:
        """An expression over what is known of a group: its keys and aggregates are columns."""
        if expr in self.keys:
            return Column("key", f"{self.keys.index(expr)}", expr.type)
        if isinstance(expr, Aggregate):
            return Column("aggregate", f"{self.aggregates.index(expr)}", expr.type)
        if isinstance(expr, Call):
            return Call(expr.op, tuple(self.to_group_columns(arg) for arg in expr.args), expr.type)
        assert isinstance(expr, Literal), "the binder lets no other column through"
        return expr


@dataclass(frozen=True)
class GroupPart:
    """GROUP BY over the rows of a join or sequence."""

    input: JoinPart | SequencePart
    plan: GroupPlan


@dataclass(frozen=True)
class DistinctPart:
    """DISTINCT over the rows of another part."""

    input: JoinPart | SequencePart | GroupPart
    columns: tuple[tuple[str, pa.DataType], ...]


@dataclass(frozen=True)
class UnionPart:
    """UNION ALL of any number of parts."""

    inputs: tuple[PlanPart, ...]
    columns: tuple[tuple[str, pa.DataType], ...]


@dataclass(frozen=True)
class DifferencePart:
    """EXCEPT of any number of parts from the first; `order` says in which order they are asked, by their places."""

    inputs: tuple[PlanPart, ...]
    columns: tuple[tuple[str, pa.DataType], ...]
    order: tuple[int, ...]

    @property
    def subtrahends(self) -> tuple[PlanPart, ...]:
        """What is taken away, in the order of the plan."""
        return tuple(self.inputs[place] for place in self.order)


PlanPart = JoinPart | SequencePart | GroupPart | DistinctPart | UnionPart | DifferencePart


def walk_parts(part: PlanPart) -> Iterator[PlanPart]:
    """A part and all below it, inputs first."""
    match part:
        case GroupPart(input=below) | DistinctPart(input=below):
            yield from walk_parts(below)
        case UnionPart(inputs=inputs) | DifferencePart(inputs=inputs):
            for each in inputs:
                yield from walk_parts(each)
    yield part


def list_join_parts(part: PlanPart) -> tuple[JoinPart, ...]:
    """The joins of a plan, in the order of the text."""
    return tuple(each for each in walk_parts(part) if isinstance(each, JoinPart))


def list_difference_parts(part: PlanPart) -> tuple[DifferencePart, ...]:
    """The set differences of a plan, inner ones first."""
    return tuple(each for each in walk_parts(part) if isinstance(each, DifferencePart))


def list_planned_joins(part: PlanPart) -> tuple[JoinPart, ...]:
    """The joins of a plan, in the order of its text form: what is taken away by EXCEPT stands in the plan's order."""
    match part:
        case JoinPart():
            return (part,)
        case SequencePart():
            return ()
        case GroupPart(input=below) | DistinctPart(input=below):
            return list_planned_joins(below)
        case UnionPart(inputs=inputs):
            return tuple(join for each in inputs for join in list_planned_joins(each))
        case DifferencePart():
            return tuple(join for each in (part.inputs[0], *part.subtrahends) for join in list_planned_joins(each))


def replan(part: PlanPart, text: str) -> PlanPart:
    """The same plan with joins in other shapes, and with what EXCEPT takes away in another order."""
    return _replan_part(part, deque(_split_plans(text, len(list_join_parts(part)))))


def _replan_part(part: PlanPart, shapes: deque[str]) -> PlanPart:
    match part:
        case JoinPart():
            return replace(part, plan=part.replan(shapes.popleft()))
        case SequencePart():
            return part
        case GroupPart() | DistinctPart():
            below: Any = _replan_part(part.input, shapes)  # of the same kind as before
            return replace(part, input=below)
        case UnionPart():
            return replace(part, inputs=tuple(_replan_part(each, shapes) for each in part.inputs))
        case DifferencePart():
            inputs, order = [_replan_part(part.inputs[0], shapes), *part.inputs[1:]], []
            left = list(range(1, len(inputs)))
            while left:
                place = next((place for place in left if _matches_shapes(inputs[place], shapes)), left[0])
                inputs[place] = _replan_part(inputs[place], shapes)
                order.append(place)
                left.remove(place)
            return replace(part, inputs=tuple(inputs), order=tuple(order))


def _matches_shapes(part: PlanPart, shapes: Iterable[str]) -> bool:
    """Whether the next shapes are about the streams of this part."""
    pairs = zip(list_planned_joins(part), shapes, strict=False)
    return all({name.casefold() for name in join.graph.aliases} == _parse_aliases(shape) for join, shape in pairs)


def _parse_aliases(shape: str) -> set[str]:
    return {word.casefold() for word in re.findall(r"[^\s(),{}]+", shape)}


def _split_plans(text: str, count: int) -> list[str]:
    """A plan string for each join: they stand behind one another, divided by semicolons."""
    given = [each.strip() for each in text.split(";")]
    if not count:
        raise QueryError("PLAN_WITHOUT_JOIN", "a sequence is matched from left to right and takes no plan")
    if len(given) != count:
        message = f"the query has {count} joins, but {len(given)} plans were given; write one for each, divided by ;"
        raise QueryError("PLAN_COUNT", message)
    return given


def plan_body(body: QueryBody, plan: str | None, rows: Mapping[str, int], ranks: Mapping[str, int]) -> PlanPart:
    """The plan of a body. `rows` are the sizes of the tables, `ranks` the order in which streams were declared."""
    if plan is None:
        return _QueryPlanner(_choose_cheapest, rows, ranks).plan_part(body)
    return replan(_QueryPlanner(_choose_left_deep, rows, ranks).plan_part(body), plan)


def _choose_cheapest(graph: JoinGraph, sources: tuple[Source, ...], rows: Mapping[str, int]) -> PlanShape:
    return choose_tree(graph, assume_statistics(graph, sources, rows))


def _choose_left_deep(graph: JoinGraph, _sources: tuple[Source, ...], _rows: Mapping[str, int]) -> PlanShape:
    """A shape that gives way to the one asked for."""
    return build_left_deep(graph.aliases)


@dataclass(frozen=True)
class _QueryPlanner:
    choose_shape: Callable[[JoinGraph, tuple[Source, ...], Mapping[str, int]], PlanShape]
    table_rows: Mapping[str, int]
    ranks: Mapping[str, int]

    def plan_part(self, body: QueryBody) -> PlanPart:
        columns_of = tuple((item.name, item.expr.type) for item in body.items)
        if isinstance(body, SetOperation):
            left, right = self.plan_part(body.left), self.plan_part(body.right)
            if body.kind == "except":
                inputs = (*left.inputs, right) if isinstance(left, DifferencePart) else (left, right)
                return DifferencePart(inputs, columns_of, tuple(range(1, len(inputs))))
            flat = [*(left.inputs if isinstance(left, UnionPart) else [left])]
            flat += right.inputs if isinstance(right, UnionPart) else [right]
            return UnionPart(tuple(flat), columns_of)
        below: JoinPart | SequencePart | GroupPart
        items = tuple((item.name, item.expr) for item in body.items)
        if body.group_by is None:
            below = self._plan_rows(body, items)
        else:
            group = GroupPlan(body.group_by, items, body.having, _find_slide(body.sources))
            below = GroupPart(self._plan_rows(body, group.inputs), group)
        return DistinctPart(below, columns_of) if body.distinct else below

    def _plan_rows(self, select: Select, outputs: Outputs) -> JoinPart | SequencePart:
        if select.sequence is not None:
            return _plan_sequence(select, outputs, self.ranks)
        graph = build_join_graph(tuple(source.alias for source in select.sources), select.where)
        tree = self.choose_shape(
            graph, select.sources, {s.alias: self.table_rows[s.relation.name] for s in select.sources if s.is_table}
        )
        shown = tuple(expr for _, expr in outputs)
        return JoinPart(select.sources, graph, outputs, plan_join(graph, select.sources, shown, tree))


def _find_slide(sources: Sequence[Source]) -> int | None:
    """By how much the report slides; windows of one SELECT that slide by different amounts do not bind."""
    return next((source.window.slide for source in sources if source.window.slide), None)


def _plan_sequence(select: Select, outputs: Outputs, ranks: Mapping[str, int]) -> SequencePart:
    assert select.sequence is not None
    recent = select.sequence.mode == "recent"
    names = [source.alias for source in select.sources]
    steps: list[SequenceStep] = []
    for place, name in enumerate(names[1:], 1):
        known = set(names[:place])
        here = [
            t
            for t in select.where
            if name in find_aliases(t) and find_aliases(t) - {name} and find_aliases(t) <= known | {name}
        ]
        keys = [pair for term in here if (pair := _match_key(term, name)) is not None]
        residuals = [term for term in here if _match_key(term, name) is None]
        left, right = select.sources[place - 1], select.sources[place]
        order = ranks[left.relation.name] - ranks[right.relation.name]
        tie = (order > 0) - (order < 0)
        steps.append(SequenceStep(recent, tie, tuple(keys), tuple(residuals), None))
    steps[-1] = replace(steps[-1], outputs=outputs)
    for place in range(len(steps) - 2, -1, -1):
        seen = set(names[: place + 2])
        wanted = tuple(column for column in steps[place + 1].needed_columns if column.alias in seen)
        steps[place] = replace(steps[place], carried_columns=wanted)
    filters = tuple(
        tuple(
            term
            for term in select.where
            if find_aliases(term) == {name} or (name == names[0] and not find_aliases(term))
        )
        for name in names
    )
    return SequencePart(select.sequence.mode, select.sources, filters, tuple(steps))


def _match_key(term: Expr, name: str) -> tuple[Expr, Expr] | None:
    """The sides of an equality between the item `name` and earlier ones."""
    if not (isinstance(term, Call) and term.op == "="):
        return None
    one, two = term.args
    for left, right in ((one, two), (two, one)):
        if find_aliases(right) == {name} and find_aliases(left) and name not in find_aliases(left):
            return left, right
    return None
