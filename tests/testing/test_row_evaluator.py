"""The naive evaluator, operator by operator."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.expr import BOOL, DOUBLE, INT, INTERVAL, STRING, TIMESTAMP, Aggregate, Call, Column, Expr, Literal
from penstock.testing.row_evaluator import compile_expr, from_plain, to_plain

NAN = math.nan
BIG = 2**63 - 1


def value(expr: Expr) -> Any:
    return compile_expr(expr)({})


def call(op: Any, *args: Any, type: pa.DataType = INT, of: pa.DataType = INT) -> Any:
    return value(Call(op, tuple(Literal(arg, of) for arg in args), type))


@pytest.mark.parametrize(
    ("op", "args", "answer"),
    [
        ("+", (1, 2), 3),
        ("+", (1, None), None),
        ("+", (BIG, 1), None),
        ("*", (2**62, 2), None),
        ("neg", (-BIG - 1,), None),
        ("abs", (-3,), 3),
        ("/", (7, 2), 3),
        ("/", (-7, 2), -3),
        ("/", (7, -2), -3),
        ("/", (1, 0), None),
        ("/", (-BIG - 1, -1), None),
        ("%", (-7, 2), -1),
        ("%", (7, -2), 1),
        ("%", (7, 0), None),
        ("coalesce", (None, None, 3), 3),
        ("coalesce", (None,), None),
    ],
)
def test_integers(op: str, args: tuple[int | None, ...], answer: int | None) -> None:
    assert call(op, *args) == answer


def test_doubles() -> None:
    assert call("/", 1.0, 0.0, type=DOUBLE, of=DOUBLE) is None
    assert call("%", -7.5, 2.0, type=DOUBLE, of=DOUBLE) == -1.5
    assert math.isnan(call("%", math.inf, 2.0, type=DOUBLE, of=DOUBLE))
    assert call("*", 1e308, 10.0, type=DOUBLE, of=DOUBLE) == math.inf


@pytest.mark.parametrize(
    ("op", "a", "b", "answer"),
    [
        ("=", NAN, NAN, True),
        ("<>", NAN, NAN, False),
        (">", NAN, math.inf, True),
        ("<", NAN, 1.0, False),
        ("<=", NAN, NAN, True),
        ("=", 0.0, -0.0, True),
        ("=", None, 1.0, None),
        ("<", 1.0, 2.0, True),
    ],
)
def test_comparisons(op: str, a: float | None, b: float | None, answer: bool | None) -> None:
    assert call(op, a, b, type=BOOL, of=DOUBLE) is answer


@pytest.mark.parametrize("a", [True, False, None])
@pytest.mark.parametrize("b", [True, False, None])
def test_three_valued_logic(a: bool | None, b: bool | None) -> None:
    order = {False: 0, None: 1, True: 2}
    by_order = {rank: truth for truth, rank in order.items()}
    assert call("and", a, b, type=BOOL, of=BOOL) is by_order[min(order[a], order[b])]
    assert call("or", a, b, type=BOOL, of=BOOL) is by_order[max(order[a], order[b])]
    assert call("not", a, type=BOOL, of=BOOL) is by_order[2 - order[a]]


def test_in_case_and_null() -> None:
    assert call("in", 1, 2, 1, type=BOOL) is True
    assert call("in", 1, 2, None, type=BOOL) is None
    assert call("in", 1, None, 1, type=BOOL) is True
    assert call("in", None, 1, type=BOOL) is None
    assert call("in", 1, 2, type=BOOL) is False
    assert call("is_null", None, type=BOOL) is True
    yes, no, unknown = (Literal(truth, BOOL) for truth in (True, False, None))
    one, two = Literal(1, INT), Literal(2, INT)
    assert value(Call("case", (no, one, yes, two, Literal(None, INT)), INT)) == 2
    assert value(Call("case", (unknown, one, two), INT)) == 2


@pytest.mark.parametrize(
    ("text", "pattern", "answer"),
    [
        ("kilo", "k%", True),
        ("kilo", "k_", False),
        ("ki", "k_", True),
        ("a.c", "a.c", True),
        ("abc", "a.c", False),
        ("50%", "50\\%", True),
        ("500", "50\\%", False),
        ("two\nlines", "two%", True),
        ("", "%", True),
        (None, "%", None),
    ],
)
def test_like(text: str | None, pattern: str, answer: bool | None) -> None:
    assert call("like", text, pattern, type=BOOL, of=STRING) is answer


@pytest.mark.parametrize(
    ("given", "source", "target", "answer"),
    [
        (2.9, DOUBLE, INT, 2),
        (-2.9, DOUBLE, INT, -2),
        (NAN, DOUBLE, INT, None),
        (1e300, DOUBLE, INT, None),
        (3_000_000_000, INT, pa.int32(), None),
        ("12", STRING, INT, 12),
        ("twelve", STRING, INT, None),
        ("1.5", STRING, DOUBLE, 1.5),
        (5, INT, DOUBLE, 5.0),
        (5, INT, STRING, "5"),
        (True, BOOL, INT, 1),
        (Decimal("2.345"), pa.decimal128(9, 3), pa.decimal128(9, 2), Decimal("2.35")),
        (100, INT, pa.decimal128(3, 1), None),
        (datetime.date(1970, 1, 2), pa.date32(), TIMESTAMP, 86_400_000_000),
        (datetime.datetime(1970, 1, 2, 5), TIMESTAMP, pa.date32(), 1),
        ("2026-01-01", STRING, pa.date32(), (datetime.date(2026, 1, 1) - datetime.date(1970, 1, 1)).days),
    ],
)
def test_casts(given: object, source: pa.DataType, target: pa.DataType, answer: object) -> None:
    assert value(Call("cast", (Literal(given, source),), target)) == answer


def test_time_arithmetic_is_in_microseconds() -> None:
    start = Literal(datetime.datetime(1970, 1, 1, 0, 0, 1), TIMESTAMP)
    pause = Literal(datetime.timedelta(seconds=2), INTERVAL)
    assert value(Call("+", (start, pause), TIMESTAMP)) == 3_000_000
    assert value(Call("+", (Literal(datetime.date(1970, 1, 2), pa.date32()), pause), TIMESTAMP)) == 86_402_000_000


def test_decimals_keep_their_scale() -> None:
    kind = pa.decimal128(5, 2)
    assert call("+", Decimal("1.10"), Decimal("2.25"), type=kind, of=kind) == Decimal("3.35")
    assert call("*", Decimal("999.00"), Decimal("2.00"), type=kind, of=kind) is None


def test_column_by_alias_and_aggregate_refused() -> None:
    assert compile_expr(Column("b", "x", INT))({"a": {"x": 1}, "b": {"x": 2}}) == 2
    with pytest.raises(ValueError, match="sum is an aggregate"):
        compile_expr(Aggregate("sum", (Column("a", "x", INT),), False, INT))


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None], pa.timestamp("us")),
        pa.array([1, None], pa.timestamp("ms")),
        pa.array([1, None], pa.duration("us")),
        pa.array([1, None], pa.date32()),
        pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
        pa.array(["a", None]),
        pa.array([True, None]),
        pa.array([1.5, None]),
    ],
)
def test_plain_values_and_back(array: pa.Array) -> None:
    assert from_plain(to_plain(array), array.type).equals(array)
