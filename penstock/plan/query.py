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

from penstock.cql.bound import Body, Select, SeqMode, SetOperation, Source
from penstock.errors import QueryError
from penstock.expr.nodes import Aggregate, Call, Column, Expr, Literal, aliases, columns, walk
from penstock.plan.cost import assumed_statistics
from penstock.plan.join_graph import JoinGraph, join_graph
from penstock.plan.join_order import best_tree
from penstock.plan.physical import JoinPlan, plan_join
from penstock.plan.tree import Outline, left_deep, parse_tree

Outputs = tuple[tuple[str, Expr], ...]


@dataclass(frozen=True)
class JoinPart:
    """A join of one or more FROM items, and what is shown of it."""

    sources: tuple[Source, ...]
    graph: JoinGraph
    outputs: Outputs
    plan: JoinPlan

    def replanned(self, text: str) -> JoinPlan:
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

    recent: bool
    tie: int
    keys: tuple[tuple[Expr, Expr], ...]
    residuals: tuple[Expr, ...]
    outputs: Outputs | None
    carried: tuple[Column, ...] = ()

    @property
    def needed(self) -> tuple[Column, ...]:
        """The columns of the left that are read when it pairs, and those of the right that are read then."""
        shown = [expr for _, expr in self.outputs or ()]
        exprs = [*(left for left, _ in self.keys), *self.residuals, *shown, *self.carried]
        return tuple(dict.fromkeys(column for expr in exprs for column in columns(expr)))


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
    def names(self) -> dict[Expr, str]:
        """The input column of each key and argument."""
        return {expr: name for name, expr in self.inputs}

    def shown(self, expr: Expr) -> Expr:
        """An expression over what is known of a group: its keys and aggregates are columns."""
        if expr in self.keys:
            return Column("key", f"{self.keys.index(expr)}", expr.type)
        if isinstance(expr, Aggregate):
            return Column("aggregate", f"{self.aggregates.index(expr)}", expr.type)
        if isinstance(expr, Call):
            return Call(expr.op, tuple(self.shown(arg) for arg in expr.args), expr.type)
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

    inputs: tuple[Part, ...]
    columns: tuple[tuple[str, pa.DataType], ...]


@dataclass(frozen=True)
class DifferencePart:
    """EXCEPT of any number of parts from the first; `order` says in which order they are asked, by their places."""

    inputs: tuple[Part, ...]
    columns: tuple[tuple[str, pa.DataType], ...]
    order: tuple[int, ...]

    @property
    def subtrahends(self) -> tuple[Part, ...]:
        """What is taken away, in the order of the plan."""
        return tuple(self.inputs[place] for place in self.order)


Part = JoinPart | SequencePart | GroupPart | DistinctPart | UnionPart | DifferencePart


def parts(part: Part) -> Iterator[Part]:
    """A part and all below it, inputs first."""
    match part:
        case GroupPart(input=below) | DistinctPart(input=below):
            yield from parts(below)
        case UnionPart(inputs=inputs) | DifferencePart(inputs=inputs):
            for each in inputs:
                yield from parts(each)
    yield part


def joins(part: Part) -> tuple[JoinPart, ...]:
    """The joins of a plan, in the order of the text."""
    return tuple(each for each in parts(part) if isinstance(each, JoinPart))


def differences(part: Part) -> tuple[DifferencePart, ...]:
    """The set differences of a plan, inner ones first."""
    return tuple(each for each in parts(part) if isinstance(each, DifferencePart))


def planned_joins(part: Part) -> tuple[JoinPart, ...]:
    """The joins of a plan, in the order of its text form: what is taken away by EXCEPT stands in the plan's order."""
    match part:
        case JoinPart():
            return (part,)
        case SequencePart():
            return ()
        case GroupPart(input=below) | DistinctPart(input=below):
            return planned_joins(below)
        case UnionPart(inputs=inputs):
            return tuple(join for each in inputs for join in planned_joins(each))
        case DifferencePart():
            return tuple(join for each in (part.inputs[0], *part.subtrahends) for join in planned_joins(each))


def replanned(part: Part, text: str) -> Part:
    """The same plan with joins in other shapes, and with what EXCEPT takes away in another order."""
    return _replanned(part, deque(_split(text, len(joins(part)))))


def _replanned(part: Part, shapes: deque[str]) -> Part:
    match part:
        case JoinPart():
            return replace(part, plan=part.replanned(shapes.popleft()))
        case SequencePart():
            return part
        case GroupPart() | DistinctPart():
            below: Any = _replanned(part.input, shapes)  # of the same kind as before
            return replace(part, input=below)
        case UnionPart():
            return replace(part, inputs=tuple(_replanned(each, shapes) for each in part.inputs))
        case DifferencePart():
            inputs, order = [_replanned(part.inputs[0], shapes), *part.inputs[1:]], []
            left = list(range(1, len(inputs)))
            while left:
                place = next((place for place in left if _is_named(inputs[place], shapes)), left[0])
                inputs[place] = _replanned(inputs[place], shapes)
                order.append(place)
                left.remove(place)
            return replace(part, inputs=tuple(inputs), order=tuple(order))


def _is_named(part: Part, shapes: Iterable[str]) -> bool:
    """Whether the next shapes are about the streams of this part."""
    pairs = zip(planned_joins(part), shapes, strict=False)
    return all({name.casefold() for name in join.graph.aliases} == _words(shape) for join, shape in pairs)


def _words(shape: str) -> set[str]:
    return {word.casefold() for word in re.findall(r"[^\s(),{}]+", shape)}


def _split(text: str, count: int) -> list[str]:
    """A plan string for each join: they stand behind one another, divided by semicolons."""
    given = [each.strip() for each in text.split(";")]
    if not count:
        raise QueryError("PLAN_WITHOUT_JOIN", "a sequence is matched from left to right and takes no plan")
    if len(given) != count:
        message = f"the query has {count} joins, but {len(given)} plans were given; write one for each, divided by ;"
        raise QueryError("PLAN_COUNT", message)
    return given


def plan_body(body: Body, plan: str | None, rows: Mapping[str, int], ranks: Mapping[str, int]) -> Part:
    """The plan of a body. `rows` are the sizes of the tables, `ranks` the order in which streams were declared."""
    if plan is None:
        return _Planning(_cheapest, rows, ranks).part(body)
    return replanned(_Planning(_as_written, rows, ranks).part(body), plan)


def _cheapest(graph: JoinGraph, sources: tuple[Source, ...], rows: Mapping[str, int]) -> Outline:
    return best_tree(graph, assumed_statistics(graph, sources, rows))


def _as_written(graph: JoinGraph, _sources: tuple[Source, ...], _rows: Mapping[str, int]) -> Outline:
    """A shape that gives way to the one asked for."""
    return left_deep(graph.aliases)


@dataclass(frozen=True)
class _Planning:
    shape: Callable[[JoinGraph, tuple[Source, ...], Mapping[str, int]], Outline]
    rows: Mapping[str, int]
    ranks: Mapping[str, int]

    def part(self, body: Body) -> Part:
        columns_of = tuple((item.name, item.expr.type) for item in body.items)
        if isinstance(body, SetOperation):
            left, right = self.part(body.left), self.part(body.right)
            if body.kind == "except":
                inputs = (*left.inputs, right) if isinstance(left, DifferencePart) else (left, right)
                return DifferencePart(inputs, columns_of, tuple(range(1, len(inputs))))
            flat = [*(left.inputs if isinstance(left, UnionPart) else [left])]
            flat += right.inputs if isinstance(right, UnionPart) else [right]
            return UnionPart(tuple(flat), columns_of)
        below: JoinPart | SequencePart | GroupPart
        items = tuple((item.name, item.expr) for item in body.items)
        if body.group_by is None:
            below = self._rows(body, items)
        else:
            group = GroupPlan(body.group_by, items, body.having, _slide(body.sources))
            below = GroupPart(self._rows(body, group.inputs), group)
        return DistinctPart(below, columns_of) if body.distinct else below

    def _rows(self, select: Select, outputs: Outputs) -> JoinPart | SequencePart:
        if select.sequence is not None:
            return _sequence(select, outputs, self.ranks)
        graph = join_graph(tuple(source.alias for source in select.sources), select.where)
        tree = self.shape(
            graph, select.sources, {s.alias: self.rows[s.relation.name] for s in select.sources if s.is_table}
        )
        shown = tuple(expr for _, expr in outputs)
        return JoinPart(select.sources, graph, outputs, plan_join(graph, select.sources, shown, tree))


def _slide(sources: Sequence[Source]) -> int | None:
    """By how much the report slides; windows of one SELECT that slide by different amounts do not bind."""
    return next((source.window.slide for source in sources if source.window and source.window.slide), None)


def _sequence(select: Select, outputs: Outputs, ranks: Mapping[str, int]) -> SequencePart:
    assert select.sequence is not None
    recent = select.sequence.mode == "recent"
    names = [source.alias for source in select.sources]
    steps: list[SequenceStep] = []
    for place, name in enumerate(names[1:], 1):
        known = set(names[:place])
        here = [t for t in select.where if name in aliases(t) and aliases(t) - {name} and aliases(t) <= known | {name}]
        keys = [pair for term in here if (pair := _key(term, name)) is not None]
        residuals = [term for term in here if _key(term, name) is None]
        left, right = select.sources[place - 1], select.sources[place]
        order = ranks[left.relation.name] - ranks[right.relation.name]
        tie = (order > 0) - (order < 0)
        steps.append(SequenceStep(recent, tie, tuple(keys), tuple(residuals), None))
    steps[-1] = replace(steps[-1], outputs=outputs)
    for place in range(len(steps) - 2, -1, -1):
        seen = set(names[: place + 2])
        wanted = tuple(column for column in steps[place + 1].needed if column.alias in seen)
        steps[place] = replace(steps[place], carried=wanted)
    filters = tuple(
        tuple(term for term in select.where if aliases(term) == {name} or (name == names[0] and not aliases(term)))
        for name in names
    )
    return SequencePart(select.sequence.mode, select.sources, filters, tuple(steps))


def _key(term: Expr, name: str) -> tuple[Expr, Expr] | None:
    """The sides of an equality between the item `name` and earlier ones."""
    if not (isinstance(term, Call) and term.op == "="):
        return None
    one, two = term.args
    for left, right in ((one, two), (two, one)):
        if aliases(right) == {name} and aliases(left) and name not in aliases(left):
            return left, right
    return None
