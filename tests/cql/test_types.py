"""SQL types, durations and promotion rules: pure functions, by table."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.cql import build_schema, find_time_column, format_type, parse_duration, to_arrow_type
from penstock.errors import QueryError
from penstock.expr import find_common_type
from penstock.expr.types import find_arithmetic_type

US = pa.timestamp("us")
D = pa.decimal128


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tinyint", pa.int8()),
        ("SMALLINT", pa.int16()),
        ("int", pa.int32()),
        ("Integer", pa.int32()),
        ("bigint", pa.int64()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("decimal", D(10, 0)),
        ("decimal( 12 , 3 )", D(12, 3)),
        ("boolean", pa.bool_()),
        ("string", pa.string()),
        ("varchar", pa.string()),
        ("text", pa.string()),
        ("date", pa.date32()),
        ("timestamp", US),
        ("timestamp_ntz", US),
        ("timestamp_ltz", pa.timestamp("us", "UTC")),
        ("timestamp(UTC)", pa.timestamp("us", "UTC")),
        ("TIMESTAMP( Europe/Berlin )", pa.timestamp("us", "Europe/Berlin")),
        ("timestamp(+02:00)", pa.timestamp("us", "+02:00")),
    ],
)
def test_arrow_type(name: str, expected: pa.DataType) -> None:
    assert to_arrow_type(name) == expected


@pytest.mark.parametrize("name", ["", "foo", "varchar(10)", "decimal(39, 2)", "decimal(3, 4)", "array<interval>"])
def test_unknown_type(name: str) -> None:
    with pytest.raises(QueryError) as caught:
        to_arrow_type(name)
    assert caught.value.condition == "UNKNOWN_TYPE"


def test_unknown_type_names_the_known_ones() -> None:
    with pytest.raises(QueryError, match=r"unknown type bigit; known are tinyint, .*; did you mean bigint\?"):
        to_arrow_type("bigit")


def test_stream_schema_normalises() -> None:
    given = pa.schema(
        [
            ("a", pa.timestamp("ns", "Europe/Berlin")),
            ("b", pa.large_string()),
            ("c", pa.dictionary(pa.int32(), pa.string())),
            ("d", pa.uint16()),
            ("e", D(5, 1)),
        ]
    )
    expected = [pa.timestamp("us", "Europe/Berlin"), pa.string(), pa.string(), pa.int32(), D(5, 1)]
    assert build_schema(given).types == expected
    assert build_schema({"ts": "timestamp", "x": "bigint"}) == pa.schema([("ts", US), ("x", pa.int64())])


@pytest.mark.parametrize(
    ("columns", "condition"),
    [
        (pa.schema([("a", pa.list_(pa.month_day_nano_interval()))]), "UNKNOWN_TYPE"),
        ({"a": "int", "A": "int"}, "DUPLICATE_COLUMN"),
        ({}, "NO_COLUMNS"),
    ],
)
def test_stream_schema_refuses(columns: object, condition: str) -> None:
    with pytest.raises(QueryError) as caught:
        build_schema(columns)  # type: ignore[arg-type]
    assert caught.value.condition == condition


def test_time_column() -> None:
    schema = pa.schema([("Ts", US), ("n", pa.int32()), ("v", pa.float64())])
    assert find_time_column(schema, "ts") == "Ts"
    assert find_time_column(schema, "N") == "n"
    with pytest.raises(QueryError, match=r"TIME_COLUMN_TYPE.*v has type double"):
        find_time_column(schema, "v")
    with pytest.raises(QueryError, match=r"UNKNOWN_COLUMN.*unknown time column z"):
        find_time_column(schema, "z")


@pytest.mark.parametrize(
    ("value", "time_type", "expected"),
    [
        ("5 seconds", US, 5_000_000),
        ("0.5 SECOND", US, 500_000),
        ("2 weeks", US, 1_209_600_000_000),
        (timedelta(milliseconds=3), US, 3000),
        (7, US, 7),
        (7, pa.int64(), 7),
        ("100", pa.int32(), 100),
    ],
)
def test_duration(value: object, time_type: pa.DataType, expected: int) -> None:
    assert parse_duration(value, time_type) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "time_type", "condition"),
    [
        ("5", US, "DURATION_UNIT"),
        ("5 seconds", pa.int64(), "DURATION_UNIT"),
        (timedelta(1), pa.int64(), "DURATION_UNIT"),
        ("5 fortnights", US, "UNKNOWN_UNIT"),
        ("0.0000001 seconds", US, "INVALID_DURATION"),
        ("1.5", pa.int64(), "INVALID_DURATION"),
        ("x seconds", US, "INVALID_DURATION"),
        ("nan seconds", US, "INVALID_DURATION"),
        ("1e99 weeks", US, "INVALID_DURATION"),
        ("-5 seconds", US, "INVALID_DURATION"),
        (-1, US, "INVALID_DURATION"),
        (True, US, "INVALID_DURATION"),
        (None, US, "INVALID_DURATION"),
    ],
)
def test_duration_refuses(value: object, time_type: pa.DataType, condition: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_duration(value, time_type)  # type: ignore[arg-type]
    assert caught.value.condition == condition


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.float32(), pa.float64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.int32(), D(5, 2), D(12, 2)),
        (D(10, 2), D(8, 4), D(12, 4)),
        (D(38, 0), D(38, 10), D(38, 0)),
        (D(38, 2), D(6, 5), D(38, 2)),
        (D(5, 2), pa.float64(), pa.float64()),
        (pa.date32(), US, US),
        (US, pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
        (pa.null(), pa.string(), pa.string()),
        (pa.string(), pa.int64(), None),
        (pa.bool_(), pa.int64(), None),
        (pa.duration("us"), US, None),
    ],
)
def test_common_is_symmetric(left: pa.DataType, right: pa.DataType, expected: pa.DataType | None) -> None:
    assert find_common_type(left, right) == expected
    assert find_common_type(right, left) == expected


@pytest.mark.parametrize(("op", "compute"), [("+", pc.add), ("-", pc.subtract), ("*", pc.multiply)])
@pytest.mark.parametrize(("left", "right"), [(D(10, 2), D(8, 4)), (D(8, 4), D(10, 2)), (D(5, 0), D(3, 3))])
def test_decimal_arithmetic_types_match_arrow(op: str, compute: object, left: pa.DataType, right: pa.DataType) -> None:
    computed = compute(pa.nulls(1, left), pa.nulls(1, right))  # type: ignore[operator]
    assert find_arithmetic_type(op, left, right) == computed.type


@pytest.mark.parametrize(
    ("op", "left", "right", "expected"),
    [
        ("/", pa.int32(), pa.int8(), pa.int64()),
        ("%", pa.int64(), pa.float32(), pa.float64()),
        ("+", D(10, 2), pa.int32(), D(13, 2)),
        ("%", D(10, 2), D(8, 4), D(8, 4)),
        ("*", D(30, 2), D(30, 2), D(38, 4)),
        ("*", D(38, 10), D(38, 10), D(38, 6)),
        ("/", D(10, 2), D(8, 4), D(23, 11)),
        ("+", pa.string(), pa.int64(), None),
    ],
)
def test_arithmetic(op: str, left: pa.DataType, right: pa.DataType, expected: pa.DataType | None) -> None:
    assert find_arithmetic_type(op, left, right) == expected


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "-03:30"])
def test_name_of_timestamp_is_read_back(zone: str | None) -> None:
    kind = pa.timestamp("us", zone)
    assert to_arrow_type(format_type(kind)) == kind


def test_unknown_zone_refused() -> None:
    with pytest.raises(QueryError, match="no time zone Europe/Berlni; did you mean Europe/Berlin"):
        to_arrow_type("timestamp(Europe/Berlni)")
