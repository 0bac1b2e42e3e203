"""Decimals have the types and values of Spark, without ANSI mode: a result that does not fit is NULL.

`fixtures/spark_decimals.txt` and the constants here are what Spark 4 answers with `spark.sql.ansi.enabled=false`.
"""

from __future__ import annotations

from decimal import Decimal
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps

FIXTURE = Path(__file__).parent / "fixtures" / "spark_decimals.txt"
OPERATORS = "+-*/%"


def read_fixture() -> tuple[dict[str, list[str]], dict[tuple[str, str, str], tuple[str, list[str]]]]:
    """The values of each type; the type and the values of each operation."""
    values: dict[str, list[str]] = {}
    results: dict[tuple[str, str, str], tuple[str, list[str]]] = {}
    for line in FIXTURE.read_text().splitlines():
        match line.split():
            case ["=", kind, *given]:
                values[kind] = given
            case [left, operator, right, "->", kind, *given] if left != "#":
                results[left, operator, right] = kind, given
    return values, results


VALUES, RESULTS = read_fixture()


def make_type(text: str) -> pa.DataType:
    return pa.decimal128(*map(int, text.split(",")))


def ask(items: str, columns: dict[str, pa.Array]) -> pa.Table:
    """The rows of a query over one stream, without their times."""
    table = pa.table({"ts": pa.array(range(len(next(iter(columns.values())))), pa.int64()), **columns})
    eng = ps.Engine(warn=False)
    eng.stream("s", table.schema, time="ts")
    eng.query("q", f"SELECT {items} FROM s [NOW]")
    return pa.concat_tables([eng.push({"s": table})["q"], eng.flush()["q"]]).drop(["_ts"])


@pytest.mark.parametrize("left", VALUES)
def test_arithmetic_equals_spark(left: str) -> None:
    for right in VALUES:
        columns = {
            name: pa.array(map(Decimal, VALUES[kind]), make_type(kind)) for name, kind in (("x", left), ("y", right))
        }
        rows = ask(", ".join(f"x {operator} y" for operator in OPERATORS), columns)
        for operator, column in zip(OPERATORS, rows.columns, strict=True):
            kind, given = RESULTS[left, operator, right]
            assert column.type == make_type(kind), (left, operator, right)
            expected = [None if value == "NULL" else Decimal(value) for value in given]
            assert column.to_pylist() == expected, (left, operator, right)


def test_fixture_has_every_operation() -> None:
    assert set(RESULTS) == set(product(VALUES, OPERATORS, VALUES))


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("0.06", pa.decimal128(2, 2), "0.06"),
        ("100.00", pa.decimal128(5, 2), "100.00"),
        (".5", pa.decimal128(1, 1), "0.5"),
        ("1e3", pa.float64(), "1000.0"),
        ("-0.5", pa.decimal128(1, 1), "-0.5"),
        ("0.1 + 1", pa.decimal128(3, 1), "1.1"),
        ("1.5 * 2", pa.decimal128(4, 1), "3.0"),
        ("1 / 3.0", pa.decimal128(8, 6), "0.333333"),
        ("n * 0.5", pa.decimal128(22, 1), "3.5"),
        ("CAST(n AS INT) + 1.25", pa.decimal128(13, 2), "8.25"),
        ("CAST(2.345 AS DECIMAL(3, 2))", pa.decimal128(3, 2), "2.35"),
        ("CAST(-2.345 AS DECIMAL(3, 2))", pa.decimal128(3, 2), "-2.35"),
        ("CAST(n * 12.4 AS DECIMAL(3, 2))", pa.decimal128(3, 2), "None"),
        ("CASE WHEN n > 0 THEN 1.5 ELSE n END", pa.decimal128(21, 1), "1.5"),
        ("COALESCE(CAST(NULL AS DECIMAL(38, 2)), 1.23456)", pa.decimal128(38, 2), "1.23"),
        ("0.5 + CAST(1 AS DOUBLE)", pa.float64(), "1.5"),
        ("CAST(n AS DECIMAL(38, 0)) = 7.0000001", pa.bool_(), "True"),
        ("CAST(12.5 AS DECIMAL(5, 2)) > 12", pa.bool_(), "True"),
        ("-CAST(n AS DECIMAL(3, 1))", pa.decimal128(3, 1), "-7.0"),
        ("ABS(-1.5)", pa.decimal128(2, 1), "1.5"),
    ],
)
def test_constants_and_casts_equal_spark(text: str, kind: pa.DataType, value: str) -> None:
    column = ask(f"{text} AS c", {"n": pa.array([7], pa.int64())}).column("c")
    assert (column.type, str(column[0].as_py())) == (kind, value)


@pytest.mark.parametrize(
    ("kind", "total", "total_type", "mean", "mean_type"),
    [
        ((5, 2), "2.45", (15, 2), "0.816667", (9, 6)),
        ((15, 2), "2.45", (25, 2), "0.816667", (19, 6)),
        ((30, 4), "2.4500", (38, 4), "0.81666667", (34, 8)),
        ((38, 2), "2.45", (38, 2), "0.816667", (38, 6)),
        ((38, 37), "2.45" + "0" * 35, (38, 37), "0.81" + "6" * 35 + "7", (38, 38)),
    ],
)
def test_sum_and_average_equal_spark(
    kind: tuple[int, int], total: str, total_type: tuple[int, int], mean: str, mean_type: tuple[int, int]
) -> None:
    values = pa.array(map(Decimal, ("1.10", "2.05", "-0.7")), pa.decimal128(*kind))
    table = pa.table({"ts": pa.array([1, 1, 1], pa.int64()), "d": values})
    eng = ps.Engine(warn=False)
    eng.stream("s", table.schema, time="ts")
    eng.query("q", "SELECT SUM(d) AS total, AVG(d) AS mean FROM s [RANGE 5]")
    rows = pa.concat_tables([eng.push({"s": table})["q"], eng.flush()["q"]])
    assert rows.schema.types[:2] == [pa.decimal128(*total_type), pa.decimal128(*mean_type)]
    assert [f"{rows.column(name)[0].as_py():f}" for name in ("total", "mean")] == [total, mean]


def test_sum_that_does_not_fit_is_null_until_it_fits_again() -> None:
    nines = Decimal("9" * 38)
    table = pa.table({"ts": pa.array([1, 2], pa.int64()), "d": pa.array([nines, Decimal(1)], pa.decimal128(38, 0))})
    eng = ps.Engine(warn=False)
    eng.stream("s", table.schema, time="ts")
    eng.query("q", "SELECT SUM(d) AS total, AVG(d) AS mean FROM s [RANGE 5]")
    rows = pa.concat_tables([eng.push({"s": table})["q"], eng.flush()["q"]]).to_pylist()
    assert [row["total"] for row in rows] == [nines, None, Decimal(1)]
    assert [row["mean"] for row in rows] == [None, None, Decimal(1)]  # 38 nines with four digits more do not fit
