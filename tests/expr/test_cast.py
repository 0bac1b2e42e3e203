"""Casts against a plain-Python reference, row by row, and each rule by name."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal

import pyarrow as pa
import pytest
from expr_reference import (
    DATE,
    INF,
    MOMENTS,
    MONEY,
    NAN,
    ZONED,
    agree,
    call,
    cast,
    col,
    decimals,
    floats,
    in_decimal,
    int64,
    integers,
    strict,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UnsupportedError
from penstock.expr import BOOL, DOUBLE, INT, STRING, TIMESTAMP, evaluate
from penstock.expr.convert import decimal_to_decimal


@settings(deadline=None)
@given(floats_=st.lists(st.none() | floats(), min_size=1, max_size=8))
def test_float_to_int_truncates_or_is_null(floats_: list[float | None]) -> None:
    expected = [None if x is None or not math.isfinite(x) else int64(int(x)) for x in floats_]
    agree(cast(floats_, DOUBLE, INT), expected)


@pytest.mark.parametrize("to", [pa.decimal128(5, 2), pa.decimal128(38, 18), pa.decimal128(38, 0)], ids=str)
@settings(deadline=None)
@given(floats_=st.lists(st.none() | floats() | st.integers(-9999, 9999).map(lambda n: n / 8), min_size=1, max_size=8))
def test_float_to_decimal_rounds_half_up_or_is_null(to: pa.DataType, floats_: list[float | None]) -> None:
    big = Context(prec=800)

    def reference(x: float) -> Decimal | None:
        if not math.isfinite(x):
            return None
        rounded = Decimal(x).quantize(Decimal(1).scaleb(-to.scale), ROUND_HALF_UP, big)
        return rounded if abs(rounded) < Decimal(10) ** (to.precision - to.scale) else None

    got = cast(floats_, DOUBLE, to)
    assert got == [strict(reference)(x) for x in floats_]


@settings(deadline=None)
@given(ints=st.lists(st.none() | integers(), min_size=1, max_size=8), to=st.sampled_from([pa.int8(), pa.int32(), INT]))
def test_int_to_int(ints: list[int | None], to: pa.DataType) -> None:
    top = 1 << to.bit_width - 1
    agree(cast(ints, INT, to), [n if n is not None and -top <= n < top else None for n in ints])


def test_decimal_overflow_where_arrow_wraps() -> None:
    """A decimal that does not fit is NULL, also where Arrow wraps around."""
    value = pa.array([Decimal(3402823669209384636)], pa.decimal128(21, 0))
    assert decimal_to_decimal(value, pa.decimal128(38, 20)).to_pylist() == [None]


@pytest.mark.parametrize("source", [MONEY, pa.decimal128(38, 18), pa.decimal128(38, 38)], ids=str)
@settings(deadline=None)
@given(data=st.data())
def test_decimal_to_int_truncates(source: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | decimals(source), min_size=1, max_size=6))
    agree(cast(values, source, INT), [strict(lambda d: int64(int(d.to_integral_value(ROUND_DOWN))))(d) for d in values])


@settings(deadline=None)
@given(ints=st.lists(st.none() | integers(), min_size=1, max_size=8))
def test_int_to_and_from_text_decimal_and_float(ints: list[int | None]) -> None:
    texts = [None if n is None else str(n) for n in ints]
    agree(cast(ints, INT, STRING), texts)
    agree(cast(texts, STRING, INT), ints)
    agree(cast([*texts, "x"], STRING, INT), [*ints, None])
    agree(cast(ints, INT, DOUBLE), [None if n is None else float(n) for n in ints])
    for to in (pa.decimal128(5, 1), pa.decimal128(19, 0), pa.decimal128(38, 19)):
        agree(cast(ints, INT, to), [strict(lambda n, to=to: in_decimal(Decimal(n), to))(n) for n in ints])


@settings(deadline=None)
@given(values=st.lists(st.none() | floats(), min_size=1, max_size=8))
def test_float_to_text_and_back(values: list[float | None]) -> None:
    texts = [None if x is None else str(x) for x in values]
    agree(cast(values, DOUBLE, STRING), texts)
    agree(cast(texts, STRING, DOUBLE), values)


@settings(deadline=None)
@given(moments=st.lists(st.none() | MOMENTS, min_size=1, max_size=8))
def test_timestamp_to_text_and_date_and_back(moments: list[datetime | None]) -> None:
    texts = [None if m is None else m.isoformat(" ") for m in moments]
    agree(cast(moments, TIMESTAMP, STRING), texts)
    agree(cast(texts, STRING, TIMESTAMP), moments)
    agree(cast([*texts, "soon"], STRING, TIMESTAMP), [*moments, None])
    days = [None if m is None else m.date() for m in moments]
    agree(cast(moments, TIMESTAMP, DATE), days)
    midnights = [None if d is None else datetime(d.year, d.month, d.day) for d in days]
    agree(cast(days, DATE, TIMESTAMP), midnights)
    agree(cast([None if d is None else f" {d.isoformat()} " for d in days], STRING, DATE), days)


def test_cast_of_text() -> None:
    texts = ["12", " 12 ", "+5", "abc", "0x1A", "1_000", "", "300", None]
    assert cast(texts, STRING, pa.int8()) == [12, 12, 5, None, None, None, None, None, None]
    assert cast(["1.5", "1e3", "inf", "1_0", "x", None], STRING, DOUBLE) == [1.5, 1000.0, INF, None, None, None]
    assert cast(["1.5", "-2", "x"], STRING, DOUBLE) == [1.5, -2.0, None]
    assert cast(["true", "F", " 1 ", "maybe", None], STRING, BOOL) == [True, False, True, None, None]
    assert cast(["1.005", "99999999", "1e2", "nan", ".5"], STRING, MONEY) == [
        Decimal("1.01"),
        Decimal("99999999.00"),
        Decimal("100.00"),
        None,
        Decimal("0.50"),
    ]
    assert cast(["12", "-3"], STRING, pa.decimal128(4, 0)) == [Decimal(12), Decimal(-3)]
    assert cast(["0.5", "1.5"], STRING, pa.decimal128(2, 2)) == [Decimal("0.50"), None]
    assert cast(["2024-02-29", "2023-02-29", "today"], STRING, DATE) == [date(2024, 2, 29), None, None]
    noon = datetime(2024, 2, 29, 12)
    forms = ["2024-02-29 12:00", "2024-02-29T12:00:00.000000", "2024-02-29T12:00:00+02:00", "2024-02-30 12:00"]
    assert cast(forms, STRING, TIMESTAMP) == [noon, noon, noon, None]
    early = datetime(2024, 2, 29, 10, tzinfo=UTC)
    assert cast(forms[1:3], STRING, ZONED) == [noon.replace(tzinfo=UTC), early]


def test_cast_between_kinds() -> None:
    assert cast([1.9, -1.9, NAN, INF, 1e19, None], DOUBLE, INT) == [1, -1, None, None, None, None]
    assert cast([127, 128, None], INT, pa.int8()) == [127, None, None]
    assert cast([0, 3, None], INT, BOOL) == [False, True, None]
    assert cast([True, None], BOOL, INT) == [1, None]
    assert cast([True, None], BOOL, STRING) == ["true", None]
    assert cast([True], BOOL, MONEY) == [Decimal("1.00")]
    assert cast([Decimal("0.00"), Decimal("0.01")], MONEY, BOOL) == [False, True]
    assert cast([Decimal("1.25"), None], MONEY, DOUBLE) == [1.25, None]
    assert cast([Decimal("9.995"), Decimal("0.125")], pa.decimal128(4, 3), pa.decimal128(3, 2)) == [
        None,
        Decimal("0.13"),
    ]
    assert cast([Decimal("0.000000001")], pa.decimal128(10, 9), STRING) == ["0.000000001"]
    assert cast([2**53 + 1], INT, DOUBLE) == [float(2**53)]
    assert cast([None], pa.null(), INT) == [None]


def test_cast_of_times() -> None:
    before = datetime(1969, 12, 31, 23, 59, 59, 999999)
    assert cast([before], TIMESTAMP, DATE) == [date(1969, 12, 31)]
    assert cast([before, datetime(2020, 1, 1)], TIMESTAMP, STRING) == [
        "1969-12-31 23:59:59.999999",
        "2020-01-01 00:00:00",
    ]
    assert cast([date(2020, 1, 1)], DATE, STRING) == ["2020-01-01"]
    far = evaluate(
        call("cast", TIMESTAMP, col("a", DATE)), lambda _: pa.array([2**31 - 1, 1], pa.int32()).view(DATE), 2
    )
    assert far.to_pylist() == [None, datetime(1970, 1, 2)]
    nanos = pa.array([-1, 1500], pa.timestamp("ns"))
    floored = evaluate(call("cast", TIMESTAMP, col("a", nanos.type)), lambda _: nanos, 2)
    assert floored.view(INT).to_pylist() == [-1, 1]
    paris = pa.timestamp("us", "Europe/Paris")
    late = pa.array([datetime(2020, 1, 1, 23, 30)], TIMESTAMP).view(paris)
    assert evaluate(call("cast", DATE, col("a", paris)), lambda _: late, 1).to_pylist() == [date(2020, 1, 2)]
    assert evaluate(call("cast", STRING, col("a", paris)), lambda _: late, 1).to_pylist() == ["2020-01-02 00:30:00"]


def test_cast_between_unrelated_types_unsupported() -> None:
    with pytest.raises(UnsupportedError):
        cast([True], BOOL, DATE)
