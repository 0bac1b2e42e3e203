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
from penstock.expr.cast import family, try_cast
from penstock.expr.convert import ticks
from penstock.expr.nodes import STRING, Aggregate, Call, Column, Expr, Literal, Op

OR, AND, NOT, PREDICATE, SUM, PRODUCT, SIGN, ATOM = range(8)
Text = tuple[str, int]  # the text and how tightly its outermost operator binds

INFIX: dict[Op, tuple[str, int]] = {
    "+": ("+", SUM),
    "-": ("-", SUM),
    "*": ("*", PRODUCT),
    "/": ("/", PRODUCT),
    "%": ("%", PRODUCT),
    **{op: (op, PREDICATE) for op in ("=", "<>", "<", "<=", ">", ">=")},
}
NAMED: dict[Op, str] = {"abs": "abs", "coalesce": "coalesce"}
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"})
UNITS = {  # in microseconds
    "DAY": 86_400_000_000,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "MILLISECOND": 1_000,
    "MICROSECOND": 1,
}
TYPES: dict[pa.DataType, str] = {
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
    return _text(expr)[0]


def sql_type(kind: pa.DataType) -> str:
    """The name Spark gives a type."""
    if pt.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pt.is_timestamp(kind):
        return "timestamp"
    if pt.is_duration(kind):
        return "interval day to second"
    if kind not in TYPES:
        raise UnsupportedError("TYPE_NAME", f"Spark SQL has no name for the type {kind}", type=str(kind))
    return TYPES[kind]


def quoted(name: str) -> str:
    """A name as an identifier, between backticks unless it is plain."""
    return name if PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _text(expr: Expr) -> Text:
    if isinstance(expr, Column):
        names = (expr.alias, expr.name) if expr.alias else (expr.name,)
        return ".".join(map(quoted, names)), ATOM
    if isinstance(expr, Literal):
        text = _literal(expr)
        return text, SIGN if text.startswith("-") else ATOM
    if isinstance(expr, Aggregate):
        listed = _list(expr.args) if expr.args else "*"
        return f"{expr.function}({'DISTINCT ' * expr.distinct}{listed})", ATOM
    return CALLS[expr.op](expr)


def _at(expr: Expr, binding: int) -> str:
    """The expression where an operand must bind at least so tightly."""
    text, own = _text(expr)
    return text if own >= binding else f"({text})"


def _list(exprs: tuple[Expr, ...]) -> str:
    return ", ".join(map(to_sql, exprs))


def _infix(call: Call) -> Text:
    symbol, binding = INFIX[call.op]
    if call.op == "/" and pt.is_integer(call.type):
        symbol = "DIV"  # Spark's `/` divides integers as doubles
    left, right = call.args
    # Sums and products group to the left, comparisons not at all.
    return f"{_at(left, binding + (binding == PREDICATE))} {symbol} {_at(right, binding + 1)}", binding


def _joined(word: str, binding: int) -> Callable[[Call], Text]:
    return lambda call: (f" {word} ".join(_at(arg, binding) for arg in call.args), binding)


def _not(call: Call) -> Text:
    (arg,) = call.args
    if isinstance(arg, Call) and arg.op in POSTFIX:
        return POSTFIX[arg.op](arg, "NOT "), PREDICATE
    return f"NOT {_at(arg, NOT)}", NOT


def _is_null(call: Call, negated: str) -> str:
    return f"{_at(call.args[0], PREDICATE + 1)} IS {negated}NULL"


def _in(call: Call, negated: str) -> str:
    return f"{_at(call.args[0], PREDICATE + 1)} {negated}IN ({_list(call.args[1:])})"


def _like(call: Call, negated: str) -> str:
    value, pattern = (_at(arg, PREDICATE + 1) for arg in call.args)
    return f"{value} {negated}LIKE {pattern}"


POSTFIX: dict[Op, Callable[[Call, str], str]] = {"is_null": _is_null, "in": _in, "like": _like}


def _postfix(call: Call) -> Text:
    return POSTFIX[call.op](call, ""), PREDICATE


def _neg(call: Call) -> Text:
    return f"-{_at(call.args[0], ATOM)}", SIGN  # never `--`, which begins a comment


def _function(call: Call) -> Text:
    return f"{NAMED[call.op]}({_list(call.args)})", ATOM


def _case(call: Call) -> Text:
    *branches, default = call.args
    whens = zip(branches[::2], branches[1::2], strict=True)
    text = "CASE" + "".join(f" WHEN {to_sql(when)} THEN {to_sql(then)}" for when, then in whens)
    otherwise = "" if isinstance(default, Literal) and default.value is None else f" ELSE {to_sql(default)}"
    return f"{text}{otherwise} END", ATOM


def _cast(call: Call) -> Text:
    return f"CAST({to_sql(call.args[0])} AS {sql_type(call.type)})", ATOM


CALLS: dict[Op, Callable[[Call], Text]] = {
    **dict.fromkeys(INFIX, _infix),
    **dict.fromkeys(POSTFIX, _postfix),
    **dict.fromkeys(NAMED, _function),
    "and": _joined("AND", AND),
    "or": _joined("OR", OR),
    "not": _not,
    "neg": _neg,
    "case": _case,
    "cast": _cast,
}


# Literals


def _literal(literal: Literal) -> str:
    if literal.value is None:
        return "NULL"
    kind = literal.type
    write = LITERALS.get(family(kind))
    if write is not None:
        return write(pa.scalar(literal.value, kind))
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return f"X'{pa.scalar(literal.value, kind).as_py().hex().upper()}'"
    raise UnsupportedError("LITERAL", f"no SQL literal for a value of type {kind}", type=str(kind))


def _string(text: str) -> str:
    return f"'{text.translate(ESCAPES)}'"


def _float(value: Any) -> str:
    number = value.as_py()
    if math.isfinite(number) and pt.is_float64(value.type):
        return repr(number)
    text = repr(number) if math.isfinite(number) else f"'{NOT_FINITE[repr(number)]}'"
    return f"CAST({text} AS {sql_type(value.type)})"


NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _decimal(value: Any) -> str:
    number: Decimal = value.as_py()
    return f"{number:f}BD"


def _timestamp(value: Any) -> str:
    zone = f" {value.type.tz}" if value.type.tz is not None else ""
    return f"TIMESTAMP '{try_cast(value, STRING).as_py()}{zone}'"


def _duration(value: Any) -> str:
    """In the coarsest unit that leaves no fraction."""
    count = ticks(value, "us").as_py()
    name = next(name for name, size in UNITS.items() if count % size == 0) if count else "SECOND"
    return f"INTERVAL '{count // UNITS[name]}' {name}"


LITERALS: dict[str, Callable[[Any], str]] = {
    "bool": lambda value: "TRUE" if value.as_py() else "FALSE",
    "int": lambda value: str(value.as_py()),
    "float": _float,
    "decimal": _decimal,
    "string": lambda value: _string(value.as_py()),
    "date": lambda value: f"DATE '{try_cast(value, STRING).as_py()}'",
    "timestamp": _timestamp,
    "duration": _duration,
}
