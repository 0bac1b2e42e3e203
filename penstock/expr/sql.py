"""Expressions as SQL text, in Spark's spelling: for `explain`, and for filters pushed into Spark.

Law: the text parses back to the same tree. Parentheses stand only where precedence asks for them.
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
from penstock.expr.cast import find_type_family, try_cast
from penstock.expr.convert import to_ticks
from penstock.expr.nodes import STRING, Aggregate, Call, Column, Expr, Literal, Op

OR, AND, NOT, PREDICATE, SUM, PRODUCT, SIGN, ATOM = range(8)
TextWithPrecedence = tuple[str, int]  # the text and how tightly its outermost operator binds

INFIX_SYMBOLS: dict[Op, tuple[str, int]] = {
    "+": ("+", SUM),
    "-": ("-", SUM),
    "*": ("*", PRODUCT),
    "/": ("/", PRODUCT),
    "%": ("%", PRODUCT),
    **{op: (op, PREDICATE) for op in ("=", "<>", "<", "<=", ">", ">=")},
}
FUNCTION_NAMES: dict[Op, str] = {"abs": "abs", "coalesce": "coalesce"}
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
SPARK_TYPE_NAMES: dict[pa.DataType, str] = {
    pa.null(): "void",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
}


def to_sql(expr: Expr) -> str:
    """The expression as SQL text."""
    return _format_expr(expr)[0]


def format_spark_type(kind: pa.DataType) -> str:
    """The name Spark gives a type."""
    if pt.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pt.is_timestamp(kind):
        return "timestamp"
    if pt.is_duration(kind):
        return "interval day to second"
    if kind not in SPARK_TYPE_NAMES:
        raise UnsupportedError("TYPE_NAME", f"Spark SQL has no name for the type {kind}", type=str(kind))
    return SPARK_TYPE_NAMES[kind]


def quote_name(name: str) -> str:
    """A name as an identifier, between backticks unless it is plain."""
    return name if PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _format_expr(expr: Expr) -> TextWithPrecedence:
    if isinstance(expr, Column):
        names = (expr.alias, expr.name) if expr.alias else (expr.name,)
        return ".".join(map(quote_name, names)), ATOM
    if isinstance(expr, Literal):
        text = _format_literal(expr)
        return text, SIGN if text.startswith("-") else ATOM
    if isinstance(expr, Aggregate):
        listed = _format_list(expr.args) if expr.args else "*"
        return f"{expr.function}({'DISTINCT ' * expr.distinct}{listed})", ATOM
    return CALL_FORMATS[expr.op](expr)


def _format_operand(expr: Expr, binding: int) -> str:
    """The expression where an operand must bind at least so tightly."""
    text, own = _format_expr(expr)
    return text if own >= binding else f"({text})"


def _format_list(exprs: tuple[Expr, ...]) -> str:
    return ", ".join(map(to_sql, exprs))


def _format_infix(call: Call) -> TextWithPrecedence:
    symbol, binding = INFIX_SYMBOLS[call.op]
    if call.op == "/" and pt.is_integer(call.type):
        symbol = "DIV"  # Spark's `/` divides integers as doubles
    left, right = call.args
    # Sums and products group to the left, comparisons not at all.
    return (
        f"{_format_operand(left, binding + (binding == PREDICATE))} {symbol} {_format_operand(right, binding + 1)}",
        binding,
    )


def _make_connective_format(word: str, binding: int) -> Callable[[Call], TextWithPrecedence]:
    return lambda call: (f" {word} ".join(_format_operand(arg, binding) for arg in call.args), binding)


def _format_not(call: Call) -> TextWithPrecedence:
    (arg,) = call.args
    if isinstance(arg, Call) and arg.op in POSTFIX_FORMATS:
        return POSTFIX_FORMATS[arg.op](arg, "NOT "), PREDICATE
    return f"NOT {_format_operand(arg, NOT)}", NOT


def _format_is_null(call: Call, negated: str) -> str:
    return f"{_format_operand(call.args[0], PREDICATE + 1)} IS {negated}NULL"


def _format_in(call: Call, negated: str) -> str:
    return f"{_format_operand(call.args[0], PREDICATE + 1)} {negated}IN ({_format_list(call.args[1:])})"


def _format_like(call: Call, negated: str) -> str:
    value, pattern = (_format_operand(arg, PREDICATE + 1) for arg in call.args)
    return f"{value} {negated}LIKE {pattern}"


POSTFIX_FORMATS: dict[Op, Callable[[Call, str], str]] = {
    "is_null": _format_is_null,
    "in": _format_in,
    "like": _format_like,
}


def _format_postfix(call: Call) -> TextWithPrecedence:
    return POSTFIX_FORMATS[call.op](call, ""), PREDICATE


def _format_negation(call: Call) -> TextWithPrecedence:
    return f"-{_format_operand(call.args[0], ATOM)}", SIGN  # never `--`, which begins a comment


def _format_function(call: Call) -> TextWithPrecedence:
    return f"{FUNCTION_NAMES[call.op]}({_format_list(call.args)})", ATOM


def _format_case(call: Call) -> TextWithPrecedence:
    *branches, default = call.args
    whens = zip(branches[::2], branches[1::2], strict=True)
    text = "CASE" + "".join(f" WHEN {to_sql(when)} THEN {to_sql(then)}" for when, then in whens)
    otherwise = "" if isinstance(default, Literal) and default.value is None else f" ELSE {to_sql(default)}"
    return f"{text}{otherwise} END", ATOM


def _format_cast(call: Call) -> TextWithPrecedence:
    return f"CAST({to_sql(call.args[0])} AS {format_spark_type(call.type)})", ATOM


CALL_FORMATS: dict[Op, Callable[[Call], TextWithPrecedence]] = {
    **dict.fromkeys(INFIX_SYMBOLS, _format_infix),
    **dict.fromkeys(POSTFIX_FORMATS, _format_postfix),
    **dict.fromkeys(FUNCTION_NAMES, _format_function),
    "and": _make_connective_format("AND", AND),
    "or": _make_connective_format("OR", OR),
    "not": _format_not,
    "neg": _format_negation,
    "case": _format_case,
    "cast": _format_cast,
}


# Literals


def _format_literal(literal: Literal) -> str:
    if literal.value is None:
        return "NULL"
    kind = literal.type
    write = LITERAL_FORMATS.get(find_type_family(kind))
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
    """In the coarsest unit that leaves no fraction."""
    count = to_ticks(value, "us").as_py()
    name = next(name for name, size in INTERVAL_UNITS.items() if count % size == 0) if count else "SECOND"
    return f"INTERVAL '{count // INTERVAL_UNITS[name]}' {name}"


LITERAL_FORMATS: dict[str, Callable[[Any], str]] = {
    "bool": lambda value: "TRUE" if value.as_py() else "FALSE",
    "int": lambda value: str(value.as_py()),
    "float": _format_float,
    "decimal": _format_decimal,
    "string": lambda value: _format_string(value.as_py()),
    "date": lambda value: f"DATE '{try_cast(value, STRING).as_py()}'",
    "timestamp": _format_timestamp,
    "duration": _format_duration,
}
