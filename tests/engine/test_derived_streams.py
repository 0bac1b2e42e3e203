"""Derived streams: results that feed other queries."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as ps


def engine() -> ps.Engine:
    made = ps.Engine()
    made.stream("s", {"ts": "bigint", "k": "bigint"}, time="ts")
    return made


def rows(*given: tuple[int, int]) -> pa.Table:
    return pa.table({"ts": [t for t, _ in given], "k": [k for _, k in given]})


def test_results_feed_other_queries() -> None:
    made = engine()
    made.derive("big", "SELECT k FROM s WHERE k > 1")
    made.derive("counts", "SELECT COUNT(*) AS n FROM big [RANGE 5]")
    made.query("q", "SELECT n, _ts AS at FROM counts [ROWS 1]")
    made.query("all", "SELECT * FROM big")
    out = made.push({"s": rows((1, 1), (2, 2), (3, 3), (9, 9))})
    assert set(out) == {"q", "all"}  # a derived stream is not a query
    assert out["all"].to_pylist() == [{"k": 2, "_ts": 2}, {"k": 3, "_ts": 3}, {"k": 9, "_ts": 9}]
    end = made.flush()
    assert [row["n"] for row in pa.concat_tables([out["q"], end["q"]]).to_pylist()] == [1, 2, 1, 1]


def test_frontier_passes_without_results() -> None:
    made = engine()
    made.stream("t", {"ts": "bigint", "k": "bigint"}, time="ts")
    made.derive("none", "SELECT COUNT(*) AS n FROM s WHERE k < 0")
    made.query("q", "SELECT k FROM t UNION ALL SELECT n FROM none")
    out = made.push({"s": rows((1, 1), (9, 9)), "t": rows((2, 2), (9, 9))})
    assert out["q"].to_pylist() == [{"k": 2, "_ts": 2}, {"k": 9, "_ts": 9}]


def test_query_sees_later_derived_rows_only() -> None:
    made = engine()
    made.derive("d", "SELECT k FROM s")
    made.push({"s": rows((1, 1), (2, 2))})
    made.query("q", "SELECT k FROM d")
    assert [row["k"] for row in made.push({"s": rows((3, 3))})["q"].to_pylist()] == [3]


def test_derived_cycle_refused() -> None:
    made = engine()
    with pytest.raises(ps.QueryError, match=r"DERIVED_CYCLE.*derived from itself"):
        made.derive("d", "SELECT a.k FROM s [NOW] AS a, D [NOW] AS b")
    with pytest.raises(ps.QueryError, match="unknown stream or table e"):
        made.derive("d", "SELECT k FROM e")
    made.derive("d", "SELECT k FROM s")
    made.derive("e", "SELECT k FROM d")
    with pytest.raises(ps.QueryError, match="DUPLICATE_NAME"):
        made.derive("d", "SELECT k FROM e")
    with pytest.raises(ps.QueryError, match=r"STREAM_IN_USE.*read by e"):
        made.drop("d")
    made.drop("e")
    made.drop("d")
    with pytest.raises(ps.QueryError, match="unknown stream or table d"):
        made.query("q", "SELECT k FROM d")


def test_invalid_names_and_pushes() -> None:
    made = engine()
    made.derive("d", "SELECT k FROM s")
    made.query("q", "SELECT k FROM d")
    cases: list[tuple[Any, str]] = [
        (lambda: made.push({"d": rows((1, 1))}), "DERIVED_STREAM"),
        (lambda: made.advance("d", 5), "DERIVED_STREAM"),
        (lambda: made.query("D", "SELECT k FROM s"), "DUPLICATE_NAME"),
        (lambda: made.derive("Q", "SELECT k FROM s"), "DUPLICATE_NAME"),
        (lambda: made.derive("s", "SELECT k FROM s"), "DUPLICATE_NAME"),
        (lambda: made.stream("d", {"ts": "bigint"}, time="ts"), "DUPLICATE_NAME"),
    ]
    for call, condition in cases:
        with pytest.raises(ps.PenstockError, match=condition):
            call()
    metrics: Any = made.metrics("q")
    assert set(metrics["streams"]) == {"d"}
    assert made.explain("d").startswith("d: ISTREAM, plan s")


def test_restore_derived_stream_with_unread_rows() -> None:
    made = engine()
    made.stream("t", {"ts": "bigint", "k": "bigint"}, time="ts")
    made.derive("d", "SELECT k FROM s")
    made.query("q", "SELECT d.k AS one, t.k AS two FROM d [RANGE 9], t [RANGE 9]")
    made.push({"s": rows((1, 1), (2, 2))})  # waits for t
    made = ps.Engine.restore(made.snapshot())
    out = made.push({"t": rows((3, 3)), "s": rows((5, 5))})["q"].to_pylist()
    assert out == [{"one": 1, "two": 3, "_ts": 3}, {"one": 2, "two": 3, "_ts": 3}]
