"""Ranks, QUALIFY, ORDER BY ... LIMIT and DISTINCT ON: plans, answers, and mistakes with what to write instead."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as ps

RANK = "ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC)"
ROWS = {"ts": [1, 2, 3, 4, 5], "k": [1, 1, 2, 1, 2], "x": [10, 30, 5, 20, 5]}


def make_engine() -> ps.Engine:
    engine = ps.Engine()
    engine.stream("s", {"ts": "bigint", "k": "bigint", "x": "bigint"}, time="ts")
    return engine


def run(text: str) -> list[tuple[Any, ...]]:
    engine = make_engine()
    engine.query("q", text)
    found = [engine.push({"s": pa.table(ROWS)}), engine.flush()]
    return [tuple(row.values()) for each in found for row in each["q"].to_pylist()]


@pytest.mark.parametrize("text", [
    f"SELECT k, x FROM (SELECT *, {RANK} AS rn FROM s) WHERE rn <= 1 EMIT CHANGES",
    f"SELECT k, x FROM (SELECT *, {RANK} AS rn FROM s) AS t WHERE 1 = t.rn EMIT CHANGES",
    f"SELECT k, x FROM s QUALIFY {RANK} = 1 EMIT CHANGES",
    "SELECT DISTINCT ON (k) k, x FROM s ORDER BY k, x DESC EMIT CHANGES",
])  # fmt: skip
def test_first_row_of_each_key(text: str) -> None:
    """Only rows that cross the line change; equal rows change nothing."""
    assert run(text) == [(1, 10, "+", 1), (1, 10, "-", 2), (1, 30, "+", 2), (2, 5, "+", 3)]


def test_rank_column_reports_its_changes() -> None:
    rows = run(f"SELECT k, x, rn FROM (SELECT *, {RANK} AS rn FROM s) WHERE rn <= 2 AND k = 1 EMIT CHANGES")
    assert rows == [
        (1, 10, 1, "+", 1), (1, 10, 1, "-", 2), (1, 30, 1, "+", 2), (1, 10, 2, "+", 2),
        (1, 10, 2, "-", 4), (1, 20, 2, "+", 4),
    ]  # fmt: skip


def test_limit_with_offset() -> None:
    rows = run("RSTREAM (SELECT x FROM s ORDER BY x DESC LIMIT 2 OFFSET 1)")
    assert sorted(x for x, ts in rows if ts == 4) == [10, 20]
    assert run("SELECT x FROM s ORDER BY x DESC FETCH FIRST 1 ROWS ONLY") == [(10, 1), (30, 2)]


def test_order_by_an_output_column_that_hides_one_of_from() -> None:
    assert run("SELECT -x AS x FROM s WHERE k = 1 ORDER BY x LIMIT 1") == [(-10, 1), (-30, 2)]
    assert run("SELECT DISTINCT -x AS x FROM s WHERE k = 1 ORDER BY x LIMIT 1") == [(-10, 1), (-30, 2)]


def test_explain_names_the_kept_ranks() -> None:
    engine = make_engine()
    engine.query("q", f"SELECT k FROM (SELECT *, {RANK} AS rn FROM s) WHERE rn <= 10")
    text = engine.explain("q")
    assert "row_number" in text
    assert "ranks 1 to 10" in text
    assert "partition by: k" in text


@pytest.mark.parametrize(
    ("text", "condition", "says"),
    [
        (f"SELECT k FROM s WHERE {RANK} <= 1", "WINDOW_FUNCTION_NOT_ALLOWED", "write QUALIFY"),
        (f"SELECT k FROM s GROUP BY {RANK}", "WINDOW_FUNCTION_NOT_ALLOWED", "GROUP BY"),
        (f"SELECT k, COUNT(*) AS n FROM s GROUP BY k HAVING {RANK} = 1", "WINDOW_FUNCTION_NOT_ALLOWED", "HAVING"),
        ("SELECT ROW_NUMBER() OVER (PARTITION BY k) AS r FROM s", "ORDER_BY_MISSING", "ORDER BY"),
        ("SELECT RANK(x) OVER (ORDER BY k) AS r FROM s", "ARGUMENT_COUNT", "no argument"),
        ("SELECT k FROM s QUALIFY x > 1", "QUALIFY_WITHOUT_WINDOW", "write WHERE"),
        ("SELECT DISTINCT ON (k) k, x FROM s", "SYNTAX_ERROR", "ORDER BY"),
        ("SELECT k FROM s ORDER BY k LIMIT x", "SYNTAX_ERROR", "whole number"),
        ("SELECT k FROM s ORDER BY 2 LIMIT 1", "ORDER_BY_POSITION", "1 columns"),
        ("SELECT DISTINCT k FROM s ORDER BY x LIMIT 1", "ORDER_BY_NOT_SHOWN", "columns of SELECT"),
        ("SELECT k FROM s UNION ALL SELECT k FROM s ORDER BY k LIMIT 1",
         "UNSUPPORTED_LIMIT_OF_A_SET_OPERATION", "FROM (... UNION ALL ...)"),
        ("SELECT k, ROW_NUMBER() OVER (ORDER BY x) AS r FROM s GROUP BY k", "NOT_GROUPED", "x"),
        ("SELECT SUM(COUNT(*)) AS n FROM s", "AGGREGATE_NOT_ALLOWED", "SUM"),
    ],
)  # fmt: skip
def test_mistakes(text: str, condition: str, says: str) -> None:
    with pytest.raises(ps.QueryError) as caught:
        make_engine().query("q", text)
    assert caught.value.condition == condition
    assert says in caught.value.message
