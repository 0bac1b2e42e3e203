"""Expressions as SQL text, in Spark's spelling: for `explain`, and for filters pushed into Spark.

Law: the text parses back to the same tree. Parentheses appear only where precedence requires them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import UnsupportedError
from penstock.expr.aggregates import AGGREGATES
from penstock.expr.cast import try_cast
from penstock.expr.convert import to_ticks
from penstock.expr.functions import get_function
from penstock.expr.nodes import STRING, Aggregate, Call, Column, Expr, Literal
from penstock.expr.sql_formats import ATOM, SIGN, TextWithPrecedence
from penstock.expr.types import TypeKind, classify_type, format_spark_type

PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"})
INTERVAL_UNITS = {  # in microseconds
    "DAY": 86_400_000_000,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "MILLISECOND": 1_000,
    "MICROSECOND": 1,
}


def to_sql(expr: Expr) -> str:
    """The expression as SQL text."""
    return _format_expr(expr)[0]


def quote_name(name: str) -> str:
    """A name as an identifier, in backticks unless it is plain."""
    return name if PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _format_expr(expr: Expr) -> TextWithPrecedence:
    if isinstance(expr, Column):
        names = (expr.alias, expr.name) if expr.alias else (expr.name,)
        return ".".join(map(quote_name, names)), ATOM
    if isinstance(expr, Literal):
        text = _format_literal(expr)
        return text, SIGN if text.startswith("-") else ATOM
    if isinstance(expr, Aggregate):
        return _format_aggregate(expr), ATOM
    return _format_call(expr)


def _format_aggregate(expr: Aggregate) -> str:
    form = AGGREGATES[expr.function].form if expr.function in AGGREGATES else "plain"
    distinct = "DISTINCT " * expr.distinct
    if form == "percentile":
        fraction, descending = expr.parameters
        order = f"{to_sql(expr.args[0])}{' DESC' * descending}"
        return f"{expr.function}({distinct}{fraction}) WITHIN GROUP (ORDER BY {order})"
    if form in ("list", "array"):
        separator, *terms = expr.parameters
        keys = ", ".join(
            f"{to_sql(arg)}{' DESC' * descending} NULLS {'FIRST' if nulls_first else 'LAST'}"
            for arg, (descending, nulls_first) in zip(expr.args[1:], terms, strict=True)
        )
        order = f" ORDER BY {keys}" if keys else ""
        between = "" if separator is None else f", {_format_string(separator)}"
        return f"{expr.function}({distinct}{to_sql(expr.args[0])}{between}{order})"
    shown = expr.args[:1] if form == "by_time" else expr.args
    return f"{expr.function}({distinct}{', '.join(map(to_sql, shown)) or '*'})"


def _format_call(call: Call) -> TextWithPrecedence:
    if call.op == "not" and isinstance(inner := call.args[0], Call):
        negated = get_function(inner).negated_format
        if negated is not None:
            return negated(inner, _format_operand)
    return get_function(call).format(call, _format_operand)


def _format_operand(expr: Expr, precedence: int) -> str:
    """The expression as an operand: in parentheses if its outermost operator has less precedence."""
    text, own = _format_expr(expr)
    return text if own >= precedence else f"({text})"


# Literals


def _format_literal(literal: Literal) -> str:
    if literal.value is None:
        return "NULL"
    kind = literal.type
    write = LITERAL_FORMATS.get(classify_type(kind))
    if write is not None:
        return write(pa.scalar(literal.value, kind))
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return f"X'{pa.scalar(literal.value, kind).as_py().hex().upper()}'"
    raise UnsupportedError("LITERAL", f"no SQL literal for a value of type {kind}", type=str(kind))


def _format_string(text: str) -> str:
    return f"'{text.translate(ESCAPES)}'"


def _format_float(value: Any) -> str:
    number = value.as_py()
    if math.isfinite(number) and pt.is_float64(value.type):
        return repr(number)
    text = repr(number) if math.isfinite(number) else f"'{NON_FINITE_NAMES[repr(number)]}'"
    return f"CAST({text} AS {format_spark_type(value.type)})"


NON_FINITE_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _format_decimal(value: Any) -> str:
    number: Decimal = value.as_py()
    return f"{number:f}BD"


def _format_timestamp(value: Any) -> str:
    zone = f" {value.type.tz}" if value.type.tz is not None else ""
    return f"TIMESTAMP '{try_cast(value, STRING).as_py()}{zone}'"


def _format_duration(value: Any) -> str:
    """An interval in the coarsest unit without a fraction."""
    count = to_ticks(value, "us").as_py()
    name = next(name for name, size in INTERVAL_UNITS.items() if count % size == 0) if count else "SECOND"
    return f"INTERVAL '{count // INTERVAL_UNITS[name]}' {name}"


LITERAL_FORMATS: dict[TypeKind, Callable[[Any], str]] = {
    "boolean": lambda value: "TRUE" if value.as_py() else "FALSE",
    "integer": lambda value: str(value.as_py()),
    "float": _format_float,
    "decimal": _format_decimal,
    "string": lambda value: _format_string(value.as_py()),
    "date": lambda value: f"DATE '{try_cast(value, STRING).as_py()}'",
    "timestamp": _format_timestamp,
    "interval": _format_duration,
}
