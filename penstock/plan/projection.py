"""Relations inside a query: parts that several parts may read, and a filter with a projection over one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import pyarrow as pa

from penstock.expr import Expr, to_sql
from penstock.plan.explain import ExplainNode
from penstock.plan.part import PlanPart, ShapeQueue
from penstock.plan.query import Outputs


@dataclass(frozen=True)
class RelationPart(PlanPart):
    """A relation that other parts read. Equal relations of a query are computed once."""

    is_relation = True
    input: PlanPart

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return RelationPart, (self.input,)  # hashes of texts differ between processes

    @cached_property
    def _hash(self) -> int:
        """Computed once: a relation below n outer joins has up to 3**n paths to it."""
        return hash((RelationPart, self.input))

    @property
    def inputs(self) -> tuple[PlanPart, ...]:
        return (self.input,)

    def with_inputs(self, inputs: Sequence[Any]) -> Self:
        return replace(self, input=inputs[0])

    def describe(self, inputs: tuple[ExplainNode, ...]) -> ExplainNode:
        return inputs[0]

    def replan(self, shapes: ShapeQueue) -> PlanPart:
        return shapes.replan_once(self, lambda: replace(self, input=self.input.replan(shapes)))


@dataclass(frozen=True)
class ViewPart(PlanPart):
    """The rows of a view, which another query computes."""

    name: str
    columns: tuple[tuple[str, pa.DataType], ...]

    @property
    def inputs(self) -> tuple[PlanPart, ...]:
        return ()

    def with_inputs(self, inputs: Sequence[Any]) -> Self:  # noqa: ARG002 - a view is planned by its own query
        return self

    def describe(self, inputs: tuple[ExplainNode, ...]) -> ExplainNode:  # noqa: ARG002
        return ExplainNode(f"view {self.name}", ())


@dataclass(frozen=True)
class ProjectPart(PlanPart):
    """The rows of another part that satisfy all conditions, with the output columns."""

    input: PlanPart
    title: str
    conditions: tuple[Expr, ...]
    outputs: Outputs

    @property
    def inputs(self) -> tuple[PlanPart, ...]:
        return (self.input,)

    def with_inputs(self, inputs: Sequence[Any]) -> Self:
        return replace(self, input=inputs[0])

    def describe(self, inputs: tuple[ExplainNode, ...]) -> ExplainNode:
        where = " AND ".join(to_sql(condition) for condition in self.conditions)
        return ExplainNode(self.title, (("where", where),) if where else (), inputs)
