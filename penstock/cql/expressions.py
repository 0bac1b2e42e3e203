"""Scalar expressions: sqlglot's trees as typed values, with every implicit cast made explicit.

`bind_columns`, `bind_operators` and `bind_calls` have a function for each type of node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlglot import exp

from penstock.cql import advice
from penstock.cql.bind_calls import CALL_HANDLERS
from penstock.cql.bind_columns import COLUMN_HANDLERS
from penstock.cql.bind_operators import OPERATOR_HANDLERS
from penstock.cql.catalog import UserDefined
from penstock.cql.operands import Operand, OperandTyper
from penstock.cql.over import WindowCalls
from penstock.cql.scope import Scope
from penstock.expr import (
    AGGREGATE_SYNONYMS,
    NAMED_AGGREGATES,
    NULL,
    STRING,
    Expr,
)

_CONSTRUCT_NAMES: dict[type[exp.Expr], str] = {
    exp.Window: "OVER",
    exp.IntDiv: "DIV",
}
# The arguments that a node can have besides its operands. A node with any other argument is refused.
_PLAIN_ARGS = frozenset({"this", "expression", "expressions", "to", "typed", "safe", "table", "unit", "low", "high"})
_EXTRA_ARGS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Column: frozenset({"db", "catalog"}),
    exp.Case: frozenset({"ifs", "default"}),
    exp.Literal: frozenset({"is_string"}),
    exp.Like: frozenset({"negate"}),
    exp.Window: frozenset({"partition_by", "order", "spec", "over", "alias"}),
}


@dataclass
class ExpressionBinder:
    """Binds the expressions of one clause.

    `no_aggregates_in` names the clause if aggregates are not allowed in it. `outputs` are the aliases of SELECT, if the
    clause can use them.
    """

    scope: Scope
    user_defined: UserDefined = field(default_factory=UserDefined)
    no_aggregates_in: str | None = None
    outputs: Mapping[str, Expr] = field(default_factory=dict)
    queries: Mapping[int, Expr] = field(default_factory=dict)
    """The values of subqueries, by the identity of their nodes."""
    ranks: WindowCalls | None = None
    """Collects window functions; None if they are not allowed."""

    @cached_property
    def typer(self) -> OperandTyper:
        return OperandTyper(self.scope.origin)

    def bind(self, node: exp.Expr) -> Expr:
        handler = _HANDLERS.get(type(node))
        if handler is None:
            construct = _CONSTRUCT_NAMES.get(type(node), type(node).key.upper())
            raise self.typer.unsupported_error(node, construct, advice.CONSTRUCTS.get(construct, ""))
        allowed = _PLAIN_ARGS | _EXTRA_ARGS.get(type(node), frozenset())
        for key, value in node.args.items():
            if value and key not in allowed:
                raise self.typer.unsupported_error(node, f"{type(node).key} with {key}".upper())
        return handler(self, node)

    def bind_condition(self, node: exp.Expr, what: str) -> Expr:
        """An expression that must be boolean."""
        return self.typer.require_boolean(Operand(node, self.bind(node)), what)

    def bind_value(self, node: exp.Expr) -> Expr:
        """An expression whose value is kept: a NULL without a type becomes a string."""
        expr = self.bind(node)
        return self.typer.cast(Operand(node, expr), STRING) if expr.type == NULL else expr

    def bind_all(self, nodes: Iterable[exp.Expr]) -> list[Operand]:
        return [Operand(node, self.bind(node)) for node in nodes]

    def check_arguments(self, node: exp.Expr, given: Sequence[exp.Expr], least: int, most: int | None) -> None:
        """Refuse a call with too few or too many arguments."""
        found = len(given)
        if found < least or (most is not None and found > most):
            needed = f"{least}" if most == least else f"at least {least}" if most is None else f"{least} to {most}"
            raise self.typer.error(
                "ARGUMENT_COUNT", f"{node.name.upper()} takes {needed} argument(s), found {found}", node
            )

    def is_aggregate(self, name: str) -> bool:
        return name in NAMED_AGGREGATES or name in AGGREGATE_SYNONYMS or name in self.user_defined.aggregates


Handler = Callable[[ExpressionBinder, Any], Expr]

_HANDLERS: dict[type[exp.Expr], Handler] = {**COLUMN_HANDLERS, **OPERATOR_HANDLERS, **CALL_HANDLERS}
