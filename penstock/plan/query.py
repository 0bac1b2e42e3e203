"""The plan of a whole query as a tree of frozen parts: joins and sequences below, groups and set operations above."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from penstock.cql import SeqMode, Source
from penstock.errors import InternalError
from penstock.expr import Aggregate, Call, Column, Expr, find_columns, walk
from penstock.plan.join_graph import JoinGraph
from penstock.plan.physical import JoinPlan, plan_join
from penstock.plan.tree import PlanShape, parse_tree

Outputs = tuple[tuple[str, Expr], ...]


@dataclass(frozen=True)
class JoinPart:
    """A join of one or more FROM items, and its output columns."""

    sources: tuple[Source, ...]
    graph: JoinGraph
    outputs: Outputs
    plan: JoinPlan

    def replan(self, text: str) -> JoinPlan:
        """The same join in the shape of a plan string."""
        return self.plan_shape(parse_tree(text, self.graph.aliases))

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
class SequencePart:
    """FROM SEQ(...): the items, the conditions over one item, and the steps between items."""

    mode: SeqMode
    sources: tuple[Source, ...]
    filters: tuple[tuple[Expr, ...], ...]
    steps: tuple[SequenceStep, ...]


@dataclass(frozen=True)
class GroupPlan:
    """The computation of a GROUP BY: `keys`, and `items` and `having` over keys and aggregates."""

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
            return Call(expr.op, tuple(self.to_group_columns(arg) for arg in expr.args), expr.type)
        if isinstance(expr, Column):
            name = f"{expr.alias}.{expr.name}"
            raise InternalError("UNGROUPED_COLUMN", f"{name} is neither a key nor in an aggregate", column=name)
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
    """EXCEPT: the first part without the others. `order` has the positions of the others, in the order of tests."""

    inputs: tuple[PlanPart, ...]
    columns: tuple[tuple[str, pa.DataType], ...]
    order: tuple[int, ...]

    @property
    def subtrahends(self) -> tuple[PlanPart, ...]:
        """The parts that are subtracted, in the order of the plan."""
        return tuple(self.inputs[place] for place in self.order)


PlanPart = JoinPart | SequencePart | GroupPart | DistinctPart | UnionPart | DifferencePart


def walk_parts(part: PlanPart) -> Iterator[PlanPart]:
    """A part and all parts below it, inputs first."""
    match part:
        case GroupPart(input=below) | DistinctPart(input=below):
            yield from walk_parts(below)
        case UnionPart(inputs=inputs) | DifferencePart(inputs=inputs):
            for each in inputs:
                yield from walk_parts(each)
    yield part


def map_parts(part: PlanPart, change: Callable[[PlanPart], PlanPart]) -> PlanPart:
    """The plan with `change` applied to every part, inputs first. A part below a group or DISTINCT keeps its type."""
    match part:
        case GroupPart() | DistinctPart():
            below: Any = map_parts(part.input, change)
            part = part if below is part.input else replace(part, input=below)
        case UnionPart() | DifferencePart():
            part = replace(part, inputs=tuple(map_parts(each, change) for each in part.inputs))
    return change(part)


def list_join_parts(part: PlanPart) -> tuple[JoinPart, ...]:
    """The joins of a plan, in the order of the text."""
    return tuple(each for each in walk_parts(part) if isinstance(each, JoinPart))


def list_difference_parts(part: PlanPart) -> tuple[DifferencePart, ...]:
    """The set differences of a plan, inner ones first."""
    return tuple(each for each in walk_parts(part) if isinstance(each, DifferencePart))


def list_planned_joins(part: PlanPart) -> tuple[JoinPart, ...]:
    """The joins of a plan, in the order of its plan string: subtrahends of EXCEPT are in the order of the plan."""
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
