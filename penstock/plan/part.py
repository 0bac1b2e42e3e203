"""The plan of a whole query is a tree of frozen parts, which this module walks, changes and explains.

A part says what the planner needs to know of it: its inputs, how it is explained, how plan strings change it, and what
becomes wrong above a join that sheds rows. The compiler of the engine chooses its operator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

from penstock.plan.explain import ExplainNode

DescribeJoin = Callable[[tuple[ExplainNode, ...]], ExplainNode]
"""Explains a running join, given the explained plans of its subqueries."""


class ShapeQueue(deque[str]):
    """The shapes of joins, in the order of a plan string. A relation that is read twice takes its shapes once."""

    def __init__(self, shapes: Iterable[str]) -> None:
        super().__init__(shapes)
        self._done: dict[PlanPart, PlanPart] = {}

    def replan_once(self, part: PlanPart, replan: Callable[[], PlanPart]) -> PlanPart:
        if part not in self._done:
            self._done[part] = replan()
        return self._done[part]


class PlanPart(ABC):
    """A part of a plan. The defaults hold for a part whose plan is that of its inputs."""

    distorted_as: ClassVar[str | None] = None
    """What is wrong, not partial, if a join below sheds rows: the name of the construct; None if nothing is."""
    is_relation: ClassVar[bool] = False
    """Whether equal parts of a query are computed once."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[PlanPart, ...]:
        """The parts below, in the order of the text."""

    @property
    def planned_inputs(self) -> tuple[PlanPart, ...]:
        """The parts below, in the order of the plan string."""
        return self.inputs

    @abstractmethod
    def with_inputs(self, inputs: Sequence[Any]) -> Self:
        """The same part over other inputs, which have the types of the old ones."""

    @abstractmethod
    def describe(self, inputs: tuple[ExplainNode, ...]) -> ExplainNode:
        """The part as an explained node, given its inputs in the order of the plan."""

    def replan(self, shapes: ShapeQueue) -> PlanPart:
        """The part with joins in other shapes; takes one shape for each join from the left."""
        return self.with_inputs([each.replan(shapes) for each in self.inputs])


def walk_parts(part: PlanPart) -> Iterator[PlanPart]:
    """A part and all parts below it, inputs first; of equal relations the first only."""
    return _walk(part, lambda each: each.inputs, set())


def walk_planned_parts(part: PlanPart) -> Iterator[PlanPart]:
    """The same in the order of the plan string: subtrahends of EXCEPT are in the order of the plan."""
    return _walk(part, lambda each: each.planned_inputs, set())


def _walk(
    part: PlanPart, list_inputs: Callable[[PlanPart], tuple[PlanPart, ...]], seen: set[PlanPart]
) -> Iterator[PlanPart]:
    if part.is_relation:
        if part in seen:
            return
        seen.add(part)
    for each in list_inputs(part):
        yield from _walk(each, list_inputs, seen)
    yield part


def count_readers(part: PlanPart, relation: PlanPart) -> int:
    """How many parts of a plan read a relation."""
    return sum(each is relation or each == relation for reader in walk_parts(part) for each in reader.inputs)


def map_parts(part: PlanPart, change: Callable[[PlanPart], PlanPart]) -> PlanPart:
    """The plan with `change` applied to every part, inputs first. A part below a group or DISTINCT keeps its type.

    A relation is changed once, so that its readers still read one object.
    """
    return _map(part, change, {})


def _map(part: PlanPart, change: Callable[[PlanPart], PlanPart], done: dict[PlanPart, PlanPart]) -> PlanPart:
    if part.is_relation and part in done:
        return done[part]
    below = [_map(each, change, done) for each in part.inputs]
    same = all(new is old for new, old in zip(below, part.inputs, strict=True))
    changed = change(part if same else part.with_inputs(below))
    if part.is_relation:
        done[part] = changed
    return changed


def describe_query(part: PlanPart, joins: Mapping[int, DescribeJoin]) -> ExplainNode:
    """The explained plan. `joins` describes the running joins, by the identity of their parts.

    A relation that is read again is named without what is below it.
    """
    return _describe(part, joins, {})


def _describe(part: PlanPart, joins: Mapping[int, DescribeJoin], done: dict[PlanPart, ExplainNode]) -> ExplainNode:
    if part.is_relation and part in done:
        return ExplainNode(f"{done[part].title}, as above", ())
    below = tuple(_describe(each, joins, done) for each in part.planned_inputs)
    node = joins[id(part)](below) if id(part) in joins else part.describe(below)
    if part.is_relation:
        done[part] = node
    return node
