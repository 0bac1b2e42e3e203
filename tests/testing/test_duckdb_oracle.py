"""The DuckDB oracle and the brute-force oracle agree on everything that the storm uses."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.errors import UnsupportedError
from penstock.testing import (
    TooManyRows,
    difference,
    expected,
    expected_by_duckdb,
    random_case,
    random_operators_case,
)

CHUNK = 25
ROUNDED = ("v * 0.1e0", "/ 3e0")
"""Terms whose sums are rounded: DuckDB rounds every partial sum, the law rounds once."""


@pytest.mark.parametrize("chunk", range(0, 100, CHUNK))
def test_random_joins(chunk: int) -> None:
    for seed in range(chunk, chunk + CHUNK):
        case = random_case(seed, rows=20, limit=500)
        fault = difference(expected_by_duckdb(case.query, case.accepted, case.tables, case.times), case.expected)
        assert fault is None, f"{case}\n{fault}"


@pytest.mark.parametrize("chunk", range(0, 150, CHUNK))
def test_random_operators(chunk: int) -> None:
    """GROUP BY, SLIDE, DISTINCT, UNION ALL, EXCEPT and SEQ."""
    compared = 0
    for seed in range(chunk, chunk + CHUNK):
        case = random_operators_case(seed)
        if any(term in case.query for term in ROUNDED):
            continue
        fault = difference(expected_by_duckdb(case.query, case.accepted, case.tables, case.times), case.expected)
        assert fault is None, f"{case}\n{fault}"
        compared += 1
    assert compared > CHUNK // 2


def test_derived_stream() -> None:
    rng = random.Random(5)
    rows = {
        name: pa.table({"ts": sorted(rng.randrange(40) for _ in range(30)), "x": [rng.randrange(3) for _ in range(30)]})
        for name in "AB"
    }
    made = "SELECT A.x AS x, B.ts AS t FROM A [RANGE 4], B [ROWS 3] WHERE A.x = B.x"
    read = "SELECT d.x, COUNT(*) AS n FROM d [RANGE 5] GROUP BY d.x"
    derived = [oracle(made, rows) for oracle in (expected, expected_by_duckdb)]
    assert difference(*derived) is None
    streams = {**rows, "d": derived[0]}
    times = {"A": "ts", "B": "ts", "d": "_ts"}
    assert difference(expected_by_duckdb(read, streams, {}, times), expected(read, streams, {}, times)) is None


def test_limit() -> None:
    rows = pa.table({"ts": range(20), "x": [1] * 20})
    text = "SELECT a.ts FROM A [RANGE 9] AS a, A [RANGE 9] AS b WHERE a.x = b.x"
    with pytest.raises(TooManyRows):
        expected_by_duckdb(text, {"A": rows}, limit=100)


def test_unknown_arithmetic_is_refused() -> None:
    rows = pa.table({"ts": [1], "d": pa.array([1], pa.decimal128(30, 2))})
    with pytest.raises(UnsupportedError, match="ORACLE_EXPRESSION"):
        expected_by_duckdb("SELECT d * d AS e FROM A [NOW]", {"A": rows})


@pytest.mark.parametrize(
    "item", ["d * e", "d / e", "d % e", "e % d", "d / 7", "d * 0.5", "SUM(d)", "AVG(d)", "AVG(DISTINCT e)"]
)
def test_decimals_of_both_oracles(item: str) -> None:
    values = [Decimal(each) for each in ("1.25", "-7.50", "0.00", "99999.99", "-0.01")]
    rows = pa.table({
        "ts": range(5),
        "d": pa.array(values, pa.decimal128(10, 2)),
        "e": pa.array([*values[3:], *values[:3]], pa.decimal128(9, 3)),
    })  # fmt: skip
    text = f"SELECT {item} AS v FROM A [RANGE 3]"
    assert expected_by_duckdb(text, {"A": rows}) == expected(text, {"A": rows})
