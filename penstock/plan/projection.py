"""A SELECT over one subquery: a filter and a projection, without a join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from penstock.expr import Expr, to_sql
from penstock.plan.explain import ExplainNode
from penstock.plan.query import Outputs, PlanPart


@dataclass(frozen=True)
class ProjectPart(PlanPart):
    """The rows of a subquery that satisfy all conditions, with the output columns."""

    input: PlanPart
    alias: str
    conditions: tuple[Expr, ...]
    outputs: Outputs

    @property
    def inputs(self) -> tuple[PlanPart, ...]:
        return (self.input,)

    def with_inputs(self, inputs: Sequence[Any]) -> Self:
        return replace(self, input=inputs[0])

    def describe(self, inputs: tuple[ExplainNode, ...]) -> ExplainNode:
        where = " AND ".join(to_sql(condition) for condition in self.conditions)
        return ExplainNode(f"select from query {self.alias}", (("where", where),) if where else (), inputs)
