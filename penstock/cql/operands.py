"""Operands of expressions: casts to the types that a function takes, and errors for operands that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from sqlglot import exp

from penstock.cql.dialect import find_span
from penstock.cql.errors import CqlError, Origin
from penstock.cql.literals import cast_literal
from penstock.cql.types import can_cast, format_type
from penstock.expr import (
    BOOL,
    INT,
    INTERVAL,
    NULL,
    Aggregate,
    AggregateFunction,
    Call,
    Expr,
    Function,
    Literal,
    Mismatch,
    Signature,
    classify_type,
    is_instant,
    unify,
)


class Operand(NamedTuple):
    """An argument as written and as bound."""

    node: exp.Expr
    expr: Expr


def type_null(operand: Operand, other: Operand) -> Operand:
    """A NULL operand of a binary operator, with a type that fits the other operand."""
    if operand.expr.type != NULL:
        return operand
    if other.expr.type == NULL:
        return Operand(operand.node, Literal(None, INT))
    return Operand(operand.node, Literal(None, INTERVAL if is_instant(other.expr.type) else other.expr.type))


@dataclass(frozen=True)
class OperandTyper:
    """Applies type rules to the operands of one text."""

    origin: Origin

    def call(self, function: Function, operands: Sequence[Operand], whole: exp.Expr) -> Call:
        """The call of a function, with its operands in the types that its rule gives."""
        signature = function.type_rule(function.name, [operand.expr for operand in operands])
        args = self._fit(operands, signature, function.mismatch, whole)
        return Call(function.name, args.exprs, args.result)

    def aggregate(self, function: AggregateFunction, operands: Sequence[Operand], *, distinct: bool) -> Aggregate:
        """The aggregate, with its operand in the type that its rule gives."""
        signature = function.type_rule(function.name, [operand.expr for operand in operands])
        args = self._fit(operands, signature, function.mismatch, operands[0].node)
        return Aggregate(function.name, args.exprs, distinct, args.result)

    def unify(self, operands: Sequence[Operand], what: str, whole: exp.Expr) -> tuple[Expr, ...]:
        """The operands in the type that they have in common."""
        goal = unify([operand.expr for operand in operands])
        signature = goal if isinstance(goal, Mismatch) else Signature((goal,) * len(operands), goal)
        return self._fit(operands, signature, what, whole).exprs

    def _fit(
        self, operands: Sequence[Operand], signature: Signature | Mismatch, what: str, whole: exp.Expr
    ) -> _Arguments:
        """A mismatch points at the operand that does not fit, or at the whole if several do not fit together."""
        if isinstance(signature, Mismatch):
            wrong = [operands[position] for position in signature.positions]
            raise self.mismatch_error(what, wrong, wrong[0].node if len(wrong) == 1 else whole)
        typed = zip(operands, signature.arguments, strict=True)
        return _Arguments(tuple(self.cast(operand, target) for operand, target in typed), signature.result)

    def cast(self, operand: Operand, target: pa.DataType) -> Expr:
        """The expression itself if it has the type, a new constant if it is a constant, else a cast."""
        node, expr = operand
        if expr.type == target:
            return expr
        if not isinstance(expr, Literal):
            return Call("cast", (expr,), target)
        literal = cast_literal(expr, target)
        if literal is None:
            raise self.error("CANNOT_CAST", f"{self.source_text(node)} cannot be read as {format_type(target)}", node)
        return literal

    def require_boolean(self, operand: Operand, what: str) -> Expr:
        node, expr = operand
        if classify_type(expr.type) not in ("boolean", "null"):
            message = f"{what} needs a boolean, but {self.source_text(node)} is {format_type(expr.type)}"
            raise self.error("TYPE_MISMATCH", message, node)
        return self.cast(operand, BOOL)

    def mismatch_error(self, what: str, operands: Sequence[Operand], node: exp.Expr) -> CqlError:
        sides = " and ".join(f"{self.source_text(each.node)} ({format_type(each.expr.type)})" for each in operands)
        return self.error("TYPE_MISMATCH", f"{what} {sides}{self._advise_cast(operands)}", node)

    def _advise_cast(self, operands: Sequence[Operand]) -> str:
        """The cast that lets a text be compared with a value of another type; empty if that is not the problem."""
        kinds = [classify_type(operand.expr.type) for operand in operands]
        if len(operands) != 2 or kinds.count("string") != 1:
            return ""
        text, other = sorted(operands, key=lambda operand: classify_type(operand.expr.type) != "string")
        if isinstance(text.expr, Literal) or not can_cast(text.expr.type, other.expr.type):
            return ""
        return f"; write CAST({self.source_text(text.node)} AS {format_type(other.expr.type).upper()})"

    def error(self, condition: str, message: str, node: exp.Expr) -> CqlError:
        return self.origin.error(condition, message, find_span(node))

    def unsupported_error(self, node: exp.Expr, construct: str, advice: str = "") -> CqlError:
        return self.origin.unsupported_error(construct, find_span(node), advice)

    def source_text(self, node: exp.Expr) -> str:
        """The text of a node, with single blanks."""
        start, end = find_span(node)
        return " ".join(self.origin.text[start:end].split())


class _Arguments(NamedTuple):
    """Operands in the types of a signature, and the type of the result."""

    exprs: tuple[Expr, ...]
    result: pa.DataType
