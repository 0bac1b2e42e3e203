"""GROUPING SETS, ROLLUP and CUBE: the sets that they stand for, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.cql import Catalog, CqlError, SetOperation, bind_query, bind_script
from penstock.expr import to_sql

COLUMNS = {"ts": "bigint", "a": "bigint", "b": "string", "v": "bigint"}


def build_catalog() -> Catalog:
    catalog = Catalog()
    bind_script("CREATE STREAM s (ts BIGINT, a BIGINT, b STRING, v BIGINT) TIMESTAMP BY ts", catalog)
    return catalog


def list_sets(group_by: str) -> list[str]:
    def read(body: Any) -> list[str]:
        if isinstance(body, SetOperation):
            return read(body.left) + read(body.right)
        return [" ".join(to_sql(key).removeprefix("s.") for key in body.group_by)]

    return read(bind_query(f"SELECT COUNT(*) AS n FROM s GROUP BY {group_by}", build_catalog()).body)


@pytest.mark.parametrize(
    ("group_by", "sets"),
    [
        ("ROLLUP(a, b)", ["a b", "a", ""]),
        ("a, b WITH ROLLUP", ["a b", "a", ""]),
        ("CUBE(a, b)", ["a b", "a", "b", ""]),
        ("GROUPING SETS ((a, b), b, ())", ["a b", "b", ""]),
        ("a, ROLLUP(b)", ["a b", "a"]),
        ("ROLLUP((a, b), v)", ["a b v", "a b", ""]),
        ("GROUPING SETS (a, ROLLUP(b))", ["a", "b", ""]),
        ("ROLLUP(a), ROLLUP(b)", ["a b", "a", "b", ""]),
        ("GROUPING SETS (a, a)", ["a", "a"]),
    ],
)
def test_sets_of_keys(group_by: str, sets: list[str]) -> None:
    assert list_sets(group_by) == sets


def run(text: str) -> list[tuple[Any, ...]]:
    engine = ps.Engine(warn=False)
    engine.stream("s", COLUMNS, time="ts")
    engine.query("q", text)
    rows = {"ts": [1, 1, 1], "a": [1, 1, None], "b": ["x", "y", "x"], "v": [1, 2, 4]}
    out = engine.push({"s": rows}, {"s": 2})["q"].drop_columns("_ts")
    return sorted((tuple(row.values()) for row in out.to_pylist()), key=str)


def test_missing_keys_are_null_and_told_by_grouping() -> None:
    found = run(
        "SELECT a, b, GROUPING(a) AS g, GROUPING_ID() AS i, SUM(v) AS t, MAX(a) AS m FROM s GROUP BY ROLLUP(a, b)"
    )
    assert found == [
        (1, "x", 0, 0, 1, 1), (1, "y", 0, 0, 2, 1), (1, None, 0, 1, 3, 1),
        (None, "x", 0, 0, 4, None), (None, None, 0, 1, 4, None), (None, None, 1, 3, 7, 1),
    ]  # fmt: skip


def test_having_distinct_and_top_are_over_all_sets() -> None:
    assert run("SELECT a, SUM(v) AS t FROM s GROUP BY CUBE(a) HAVING GROUPING(a) = 1") == [(None, 7)]
    assert run("SELECT DISTINCT a FROM s GROUP BY ROLLUP(a)") == [(1,), (None,)]
    assert run("SELECT b, SUM(v) AS t FROM s GROUP BY ROLLUP(b) ORDER BY t DESC LIMIT 2") == [("x", 5), (None, 7)]
    assert run("SELECT GROUPING(a) AS g, COUNT(*) AS n FROM s GROUP BY a") == [(0, 1), (0, 2)]


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("SELECT GROUPING(v) AS g FROM s GROUP BY ROLLUP(a)", "NOT_GROUPED"),
        ("SELECT GROUPING(a + 1) AS g FROM s GROUP BY ROLLUP(a)", "GROUPING_WITHOUT_KEY"),
        ("SELECT GROUPING(a) AS g FROM s", "GROUPING_WITHOUT_KEY"),
        ("SELECT a FROM s WHERE GROUPING(a) = 1 GROUP BY a", "AGGREGATE_NOT_ALLOWED"),
        ("SELECT v FROM s GROUP BY ROLLUP(a)", "NOT_GROUPED"),
        ("SELECT a FROM s GROUP BY ROLLUP a", "SYNTAX_ERROR"),
        ("SELECT a FROM s GROUP BY CUBE(a, b, v, a + 1, a + 2, a + 3, a + 4)", "TOO_MANY_GROUPING_SETS"),
        ("SELECT a, RANK() OVER (ORDER BY a) AS r FROM s GROUP BY ROLLUP(a)",
         "UNSUPPORTED_WINDOW_FUNCTION_WITH_GROUPING_SETS"),
    ],
)  # fmt: skip
def test_bad_groupings_are_refused(text: str, condition: str) -> None:
    with pytest.raises(CqlError) as error:
        bind_query(text, build_catalog())
    assert error.value.condition == condition
