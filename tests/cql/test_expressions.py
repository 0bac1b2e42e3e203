"""Scalar expressions: types, explicit casts and constants, as compact text."""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from cql_catalog import build_catalog

import penstock as ps
from penstock.cql import bind_query, format_type
from penstock.expr import Aggregate, Call, Column, Expr
from penstock.testing import difference, expected

CATALOG = build_catalog()


def shown(expr: Expr) -> str:
    """`cast(n):bigint` for a call with its type, names for columns, `repr:type` for constants."""
    if isinstance(expr, Column):
        return expr.name
    if isinstance(expr, (Call, Aggregate)):
        op = expr.op if isinstance(expr, Call) else expr.function
        return f"{op}({', '.join(shown(arg) for arg in expr.args)}):{format_type(expr.type)}"
    return f"{expr.value}:{format_type(expr.type)}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n + 1", "+(cast(n):bigint, 1:bigint):bigint"),
        ("big / 2", "/(big, 2:bigint):bigint"),
        ("n * 1.5", "*(cast(n):decimal(10, 0), 1.5:decimal(2, 1)):decimal(13, 1)"),
        ("big + big % 2", "+(big, %(big, 2:bigint):bigint):bigint"),
        ("big % 2 * 3", "*(%(big, 2:bigint):bigint, 3:bigint):bigint"),
        ("f % 2", "%(cast(f):double, 2.0:double):double"),
        ("price + n", "+(price, cast(n):decimal(10, 0)):decimal(13, 2)"),
        ("price * 2", "*(price, 2:decimal(1, 0)):decimal(12, 2)"),
        ("-n", "neg(cast(n):bigint):bigint"),
        ("-price", "neg(price):decimal(10, 2)"),
        ("-5", "-5:bigint"),
        ("- -5", "neg(-5:bigint):bigint"),
        ("-9223372036854775808", "-9223372036854775808:bigint"),
        ("1e3", "1000.0:double"),
        (".5", "0.5:decimal(1, 1)"),
        ("5e-1", "0.5:double"),
        ("5L", "5:bigint"),
        ("'it''s'", "it's:string"),
        ("NULL", "None:string"),
        ("NULL + 1", "+(None:bigint, 1:bigint):bigint"),
        ("ABS(f)", "abs(cast(f):double):double"),
        ("At - TIMESTAMP '2024-01-02 03:04:05'", "-(At, 2024-01-02 03:04:05:timestamp):interval"),
        ("At + INTERVAL 5 SECONDS", "+(At, 0:00:05:interval):timestamp"),
        ("INTERVAL '1' DAY + At", "+(At, 1 day, 0:00:00:interval):timestamp"),
        ("INTERVAL 1 HOUR - INTERVAL '30 minutes'", "-(1:00:00:interval, 0:30:00:interval):interval"),
        ("At - d", "-(At, cast(d):timestamp):interval"),
        ("DATE '2024-02-29'", "2024-02-29:date"),
        ("CAST(n AS STRING)", "cast(n):string"),
        ("CAST(n AS INT)", "n"),
        ("n :: bigint", "cast(n):bigint"),
        ("CAST('12' AS INT)", "12:int"),
        ("CAST(1.9 AS INT)", "1:int"),
        ("CAST('1' AS DECIMAL(38, 37))", f"1.{'0' * 37}:decimal(38, 37)"),
        ("CAST(1 AS BOOLEAN)", "True:boolean"),
        ("CAST(price AS DECIMAL(12, 4))", "cast(price):decimal(12, 4)"),
        ("COALESCE(n, big, 0)", "coalesce(cast(n):bigint, big, 0:bigint):bigint"),
        ("COALESCE(NULL, sym)", "coalesce(None:string, sym):string"),
        ("CASE WHEN ok THEN n ELSE 1.5 END", "case(ok, cast(n):decimal(11, 1), 1.5:decimal(11, 1)):decimal(11, 1)"),
        (
            "CASE n WHEN 1 THEN 'a' WHEN 2 THEN NULL END",
            "case(=(cast(n):bigint, 1:bigint):boolean, a:string, "
            "=(cast(n):bigint, 2:bigint):boolean, None:string, None:string):string",
        ),
        ("n = big", "=(cast(n):bigint, big):boolean"),
        ("n <> 1.0", "<>(cast(n):decimal(11, 1), 1.0:decimal(11, 1)):boolean"),
        ("n != NULL", "<>(n, None:int):boolean"),
        ("price >= n", ">=(cast(price):decimal(12, 2), cast(n):decimal(12, 2)):boolean"),
        ("price = 2", "=(price, 2.00:decimal(10, 2)):boolean"),
        ("f < n", "<(cast(f):double, cast(n):double):boolean"),
        ("At > '2024-01-01T12:00:00+02:00'", ">(At, 2024-01-01 10:00:00:timestamp):boolean"),
        ("'2024-01-01' <= d", "<=(2024-01-01:date, d):boolean"),
        ("d = At", "=(cast(d):timestamp, At):boolean"),
        (
            "n BETWEEN 1 AND 2",
            "and(>=(cast(n):bigint, 1:bigint):boolean, <=(cast(n):bigint, 2:bigint):boolean):boolean",
        ),
        ("sym NOT IN ('a', 'b')", "not(in(sym, a:string, b:string):boolean):boolean"),
        ("sym NOT LIKE 'a%'", "not(like(sym, a%:string):boolean):boolean"),
        ("big NOT BETWEEN 1 AND 2", "not(and(>=(big, 1:bigint):boolean, <=(big, 2:bigint):boolean):boolean):boolean"),
        ("n IS NOT NULL", "not(is_null(n):boolean):boolean"),
        ("NOT ok OR ok AND NULL", "or(not(ok):boolean, and(ok, None:boolean):boolean):boolean"),
    ],
)
def test_binds_to(text: str, expected: str) -> None:
    body = bind_query(f"SELECT {text} AS x FROM trades", CATALOG).body
    assert shown(body.items[0].expr) == expected


def test_constants_are_typed_scalars() -> None:
    import pyarrow as pa

    texts = ["1", "1.5", "'a'", "TRUE", "NULL", "DATE '2024-01-01'", "TIMESTAMP '2024-01-01'", "INTERVAL 5 WEEKS"]
    body = bind_query(f"SELECT {', '.join(texts)} FROM trades", CATALOG).body
    for item in body.items:
        value = item.expr.value  # type: ignore[union-attr]
        assert pa.scalar(value, item.expr.type).as_py() == value


def test_long_condition_does_not_recurse_deeply() -> None:
    body = bind_query(f"SELECT n FROM trades WHERE {' AND '.join(['big > 1'] * 3000)}", CATALOG).body
    assert len(body.where) == 3000  # type: ignore[union-attr]
    bind_query(f"SELECT n FROM trades WHERE {' OR '.join(['big > 1'] * 3000)}", CATALOG)


def test_timestamps_are_cast_to_seconds_and_back() -> None:
    """As in Spark: integers are whole seconds, rounded down."""
    times = [datetime(1969, 12, 31, 23, 59, 59, 500_000), datetime(2026, 1, 31, 0, 0, 3, 250_000)]
    rows = pa.table({"ts": pa.array(times, pa.timestamp("us")), "v": [4, None], "half": [0.5, -1.5]})
    text = """SELECT CAST(ts AS BIGINT) AS a, ts::SMALLINT AS b, CAST(CAST(ts AS BIGINT) AS TIMESTAMP) AS c,
                     CAST(ts AS DOUBLE) AS d, CAST(v AS TIMESTAMP) AS e FROM s"""
    eng = ps.Engine()
    eng.stream("s", rows.schema, time="ts")
    eng.query("q", text)
    eng.query("halves", "SELECT CAST(half AS TIMESTAMP) AS t FROM s")
    out = eng.push({"s": rows}, {"s": datetime(2027, 1, 1)})
    assert [tuple(row.values())[:-1] for row in out["q"].to_pylist()] == [
        (-1, -1, datetime(1969, 12, 31, 23, 59, 59), -0.5, datetime(1970, 1, 1, 0, 0, 4)),
        (1769817603, None, datetime(2026, 1, 31, 0, 0, 3), 1769817603.25, None),
    ]
    assert difference(out["q"], expected(text, {"s": rows})) is None
    assert out["halves"]["t"].to_pylist() == [
        datetime(1970, 1, 1, 0, 0, 0, 500_000), datetime(1969, 12, 31, 23, 59, 58, 500_000)
    ]  # fmt: skip


def test_numbers_and_timestamps_are_cast_as_in_spark() -> None:
    """Digits below a microsecond are cut off, a boolean is a microsecond, and a zone does not move the instant.

    The values are those of Spark 4.3 in the zone UTC without ANSI mode.
    """
    columns = {
        "ts": pa.array([0, 1, 2], pa.timestamp("us")),
        "real": pa.array([0.1 + 0.2, -1.0000019, math.nan]),
        "exact": pa.array([Decimal("1767225600.1234567"), Decimal("-0.0000015"), None], pa.decimal128(30, 7)),
        "wide": pa.array([Decimal("9" * 38), Decimal(1), Decimal(-1)], pa.decimal128(38, 0)),
        "yes": pa.array([True, False, None]),
        "at": pa.array([1767225600_123_456, 0, -1], pa.timestamp("us")),
    }
    rows = pa.table(columns)
    cases = {
        "CAST(real AS TIMESTAMP)": [300_000, -1_000_001, None],
        "CAST(exact AS TIMESTAMP)": [1767225600_123_456, -1, None],
        "CAST(wide AS TIMESTAMP)": [None, 1_000_000, -1_000_000],
        "CAST(yes AS TIMESTAMP)": [1, 0, None],
        "CAST(TRUE AS TIMESTAMP)": [1] * 3,
        "CAST(1.5 AS TIMESTAMP)": [1_500_000] * 3,
        "CAST(at AS DECIMAL(20, 6))": [Decimal("1767225600.123456"), Decimal(0), Decimal("-0.000001")],
        "CAST(at AS DECIMAL(3, 1))": [None, Decimal(0), Decimal(0)],
        "CAST(at AS BOOLEAN)": [True, False, True],
        "CAST(real AS BOOLEAN)": [True, True, True],
        "CAST(exact AS BOOLEAN)": [True, True, None],
        "CAST(yes AS DOUBLE)": [1.0, 0.0, None],
        "CAST(yes AS DECIMAL(3, 1))": [Decimal(1), Decimal(0), None],
        "CAST(TRUE AS DOUBLE)": [1.0] * 3,
    }
    eng = ps.Engine()
    eng.stream("s", rows.schema, time="ts")
    text = f"SELECT {', '.join(f'{each} AS c{place}' for place, each in enumerate(cases))} FROM s"
    eng.query("q", text)
    eng.query("zone", "SELECT CAST(CAST(at AS BIGINT) AS TIMESTAMP(Europe/Berlin)) AS t FROM s")
    out = eng.push({"s": rows})
    for place, (call, values) in enumerate(cases.items()):
        column = out["q"].column(f"c{place}")
        found = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        assert found.to_pylist() == values, call
    assert difference(out["q"], expected(text, {"s": rows})) is None
    assert out["zone"]["t"].cast(pa.int64()).to_pylist() == [1767225600_000_000, 0, -1_000_000]
