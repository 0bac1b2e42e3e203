"""A plain-Python reference of expressions, random values for each type, and the comparison with the evaluator."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.expr import BOOL, DOUBLE, INT, INTERVAL, STRING, TIMESTAMP, Call, Column, Expr, Literal, Op, evaluate

LEAST, MOST = -(2**63), 2**63 - 1
NAN, INF = math.nan, math.inf
ZONED = pa.timestamp("us", "UTC")
DATE = pa.date32()
MONEY = pa.decimal128(10, 2)
EXACT = Context(prec=200)


# ── running an expression ────────────────────────────────────────────────────────────────────────────────────────────


def col(name: str, kind: pa.DataType) -> Column:
    return Column("t", name, kind)


def call(op: Op, kind: pa.DataType, *args: Expr) -> Call:
    return Call(op, args, kind)


def run(expr: Expr, length: int | None = None, **data: pa.Array) -> list[Any]:
    """The values of an expression; checks the type, the length and that a slice and its parts agree."""
    length = len(next(iter(data.values()))) if length is None else length
    array = evaluate(expr, lambda column: data[column.name], length)
    assert isinstance(array, pa.Array)
    assert array.type == expr.type
    assert len(array) == length
    array.validate(full=True)
    for at in range(min(length, 3)):  # a value depends on its row alone, whatever the offset of its array
        alone = evaluate(expr, lambda column, at=at: data[column.name].slice(at, 1), 1)
        assert same(alone.to_pylist()[0], array.to_pylist()[at])
    return list(array.to_pylist())


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return type(a) is type(b) and bool(a == b)


def agree(got: list[Any], expected: list[Any]) -> None:
    assert len(got) == len(expected)
    wrong = [(at, g, e) for at, (g, e) in enumerate(zip(got, expected, strict=True)) if not same(g, e)]
    assert not wrong


def unary(op: Op, kind: pa.DataType, values: list[Any], to: pa.DataType | None = None) -> list[Any]:
    return run(call(op, to or kind, col("a", kind)), a=pa.array(values, kind))


def binary(op: Op, kind: pa.DataType, left: list[Any], right: list[Any], to: pa.DataType | None = None) -> list[Any]:
    """The operator on two columns; checks that constants on either side give the same values."""
    a, b = col("a", kind), col("b", kind)
    to = to or kind
    arrays = {"a": pa.array(left, kind), "b": pa.array(right, kind)}
    got = run(call(op, to, a, b), **arrays)
    for at, (x, y) in enumerate(zip(left[:4], right[:4], strict=True)):
        agree(run(call(op, to, a, Literal(y, kind)), **arrays)[at : at + 1], got[at : at + 1])
        agree(run(call(op, to, Literal(x, kind), b), **arrays)[at : at + 1], got[at : at + 1])
        agree(run(call(op, to, Literal(x, kind), Literal(y, kind)), length=1), got[at : at + 1])
    return got


def cast(values: list[Any], source: pa.DataType, target: pa.DataType) -> list[Any]:
    return unary("cast", source, values, target)


# ── the reference ────────────────────────────────────────────────────────────────────────────────────────────────────


def strict(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: None if None in args else function(*args)


def int64(value: int) -> int | None:
    return value if LEAST <= value <= MOST else None


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: float, b: float) -> float | None:
    if b == 0:
        return None
    return NAN if math.isinf(a) else math.fmod(a, b)


def ieee_divide(a: float, b: float) -> float | None:
    return None if b == 0 else a / b


INT_OPS: dict[Op, Callable[[int, int], int | None]] = {
    "+": lambda a, b: int64(a + b),
    "-": lambda a, b: int64(a - b),
    "*": lambda a, b: int64(a * b),
    "/": lambda a, b: None if b == 0 else int64(truncated(a, b)),
    "%": lambda a, b: None if b == 0 else a - b * truncated(a, b),
}
FLOAT_OPS: dict[Op, Callable[[float, float], float | None]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": ieee_divide,
    "%": remainder,
}
DECIMAL_OPS: dict[Op, Callable[[Decimal, Decimal], Decimal | None]] = {
    "+": EXACT.add,
    "-": EXACT.subtract,
    "*": EXACT.multiply,
    "/": lambda a, b: EXACT.divide(a, b) if b else None,
    "%": lambda a, b: EXACT.remainder(a, b) if b else None,
}


def in_decimal(value: Decimal | None, kind: pa.DataType) -> Decimal | None:
    if value is None:
        return None
    rounded = value.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, EXACT)
    return rounded if abs(rounded) < Decimal(10) ** (kind.precision - kind.scale) else None


def rank(value: Any) -> Any:
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


COMPARE: dict[Op, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: rank(a) == rank(b),
    "<>": lambda a, b: rank(a) != rank(b),
    "<": lambda a, b: rank(a) < rank(b),
    "<=": lambda a, b: rank(a) <= rank(b),
    ">": lambda a, b: rank(a) > rank(b),
    ">=": lambda a, b: rank(a) >= rank(b),
}


def like(text: str, pattern: str) -> bool:
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    regex = "".join(wild.get(part) or re.escape(part[-1]) for part in parts)
    return re.fullmatch(regex, text, re.DOTALL) is not None


# ── random values ────────────────────────────────────────────────────────────────────────────────────────────────────


def integers() -> st.SearchStrategy[int]:
    edges = st.sampled_from([LEAST, LEAST + 1, -1, 0, 1, 2, -3, 3037000500, 2**31, 2**53 + 1, MOST - 1, MOST])
    return edges | st.integers(-9, 9) | st.integers(LEAST, MOST)


def floats() -> st.SearchStrategy[float]:
    return st.sampled_from([0.0, -0.0, NAN, INF, -INF, 1.0, -1.5, 1e308, 5e-324]) | st.floats(width=64)


def decimals(kind: pa.DataType) -> st.SearchStrategy[Decimal]:
    top = 10**kind.precision - 1
    counts = st.integers(-top, top) | st.integers(-200, 200) | st.sampled_from([0, top, -top])
    return counts.map(lambda count: Decimal(count).scaleb(-kind.scale, EXACT))


WORDS = st.text("ab%_\\\n é\U0001f600", max_size=5)
MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
SPANS = st.timedeltas(timedelta(days=-(10**6)), timedelta(days=10**6))
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    INT: integers(),
    DOUBLE: floats(),
    BOOL: st.booleans(),
    STRING: WORDS,
    DATE: st.dates(),
    TIMESTAMP: MOMENTS,
    ZONED: MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC)),
    INTERVAL: SPANS,
    MONEY: decimals(MONEY),
}


def pairs(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[Any, Any]]]:
    optional = st.none() | values
    same_twice = optional.map(lambda value: (value, value))
    return st.lists(st.tuples(optional, optional) | same_twice, min_size=1, max_size=8)


def check(op: Op, kind: pa.DataType, to: pa.DataType, rows: list[tuple[Any, Any]], reference: Any) -> None:
    left, right = map(list, zip(*rows, strict=True))
    agree(binary(op, kind, left, right, to), [strict(reference)(a, b) for a, b in rows])
