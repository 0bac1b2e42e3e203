"""CAST of an operand to a type, as Spark computes it without ANSI mode."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from penstock.cql.operands import Operand, OperandTyper
from penstock.cql.types import ZONED_TIMESTAMP, can_cast, format_type
from penstock.expr import FUNCTIONS, INT, STRING, Expr, Literal, classify_type

_COUNT = pa.decimal128(20, 0)
_MICROSECOND = Literal(Decimal("0.000001"), pa.decimal128(6, 6))  # in seconds


def bind_cast(typer: OperandTyper, operand: Operand, target: pa.DataType, whole: exp.Expr) -> Expr:
    """The operand in another type; an error if there is no CAST from its type."""
    seconds = _convert_seconds(typer, operand, target)
    if seconds is not None:
        if pa.types.is_timestamp(target) and target.tz is not None:
            seconds = typer.cast(Operand(whole, seconds), ZONED_TIMESTAMP)  # an instant, not a wall clock's time
        return typer.cast(Operand(whole, seconds), target)
    if not can_cast(operand.expr.type, target):
        raise typer.mismatch_error(f"cannot cast to {format_type(target)}:", [operand], whole)
    return typer.cast(operand, target)


def _convert_seconds(typer: OperandTyper, operand: Operand, target: pa.DataType) -> Expr | None:
    """A timestamp as its seconds since 1970, or the timestamp of a number of seconds; else None.

    A boolean is a count of microseconds: TRUE is the instant after 1970-01-01 00:00:00.
    """
    node = operand.node

    def call(name: str, *args: Expr) -> Expr:
        return typer.call(FUNCTIONS[name], [Operand(node, each) for each in args], node)

    match classify_type(operand.expr.type), classify_type(target):
        case "timestamp", "integer":
            return call("unix_timestamp", operand.expr)
        case "timestamp", "float":
            return call("date_part", Literal("epoch", STRING), operand.expr)
        case "timestamp", "decimal":
            return call("*", typer.cast(Operand(node, call("unix_micros", operand.expr)), _COUNT), _MICROSECOND)
        case "timestamp", "boolean":
            return call("unix_micros", operand.expr)
        case "integer" | "float" | "decimal", "timestamp":
            return call("to_timestamp", operand.expr)
        case "boolean", "timestamp":
            return call("timestamp_micros", typer.cast(operand, INT))
    return None
