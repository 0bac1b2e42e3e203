"""Wrong uses of views, aggregates, window functions and updating tables: refused by name, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps

SCHEMA = {"ts": "bigint", "k": "bigint", "v": "bigint"}


def make_engine() -> ps.Engine:
    engine = ps.Engine(warn=False)
    for name in ("a", "b"):
        engine.stream(name, SCHEMA, time="ts")
    engine.query("count", "SELECT k, COUNT(*) AS n FROM a [RANGE 10] GROUP BY k")
    return engine


def check_still_works(engine: ps.Engine) -> None:
    """A refused call changes nothing: the query that is there goes on."""
    assert list(engine.queries) == ["count"]
    engine.push({"a": {"ts": [1, 2], "k": [7, 7], "v": [0, 0]}})
    assert [row["n"] for row in engine.flush()["count"].to_pylist()][-1:] == [1]


@pytest.mark.parametrize(
    ("call", "condition", "says"),
    [
        (lambda e: e.view("v", "SELECT k FROM v"), "VIEW_CYCLE", "reads streams, tables and views"),
        (lambda e: e.view("v", "SELECT a.k FROM a JOIN (SELECT k FROM v) AS w ON a.k = w.k"), "VIEW_CYCLE", "itself"),
        (lambda e: e.query("q", "WITH RECURSIVE r AS (SELECT k FROM a UNION ALL SELECT k FROM r) SELECT k FROM r"),
         "UNSUPPORTED_WITH_RECURSIVE", "cannot read itself"),
        (lambda e: e.query("q", "WITH r AS (SELECT k FROM r) SELECT k FROM r"), "UNKNOWN_RELATION", "known are a, b"),
        (lambda e: e.query("q", "SELECT SUM(COUNT(*)) AS n FROM a GROUP BY k"), "AGGREGATE_NOT_ALLOWED", "subquery"),
        (lambda e: e.query("q", "SELECT MAX(v + AVG(v)) AS n FROM a"), "AGGREGATE_NOT_ALLOWED", "argument of MAX"),
        (lambda e: e.query("q", "SELECT k FROM a WHERE COUNT(*) > 1"), "AGGREGATE_NOT_ALLOWED", "HAVING"),
        (lambda e: e.query("q", "SELECT k FROM a GROUP BY k, MAX(v)"), "AGGREGATE_NOT_ALLOWED", "GROUP BY"),
        (lambda e: e.query("q", "SELECT k, v, COUNT(*) AS n FROM a GROUP BY k"), "NOT_GROUPED", "a.v"),
        (lambda e: e.query("q", "SELECT a.k FROM a JOIN b ON COUNT(*) > 1"), "AGGREGATE_NOT_ALLOWED", "WHERE or ON"),
        (lambda e: e.query("q", "SELECT k FROM a WHERE ROW_NUMBER() OVER (ORDER BY v) = 1"),
         "WINDOW_FUNCTION_NOT_ALLOWED", "QUALIFY"),
        (lambda e: e.query("q", "SELECT k FROM a WHERE SUM(v) OVER (ORDER BY ts) > 1"),
         "WINDOW_FUNCTION_NOT_ALLOWED", "QUALIFY"),
        (lambda e: e.query("q", "SELECT k FROM a GROUP BY k HAVING RANK() OVER (ORDER BY k) = 1"),
         "WINDOW_FUNCTION_NOT_ALLOWED", "HAVING"),
        (lambda e: e.query("q", "SELECT a.k FROM a JOIN b ON RANK() OVER (ORDER BY a.v) = b.v"),
         "WINDOW_FUNCTION_NOT_ALLOWED", "WHERE or ON"),
        (lambda e: e.table("t", SCHEMA, time="ts"), "KEY_NEEDED", "key="),
        (lambda e: e.table("t", SCHEMA, key=[], time="ts"), "KEY_NEEDED", "key="),
        (lambda e: e.table("t", SCHEMA, key="k"), "TIME_NEEDED", "time="),
        (lambda e: e.table("t", SCHEMA, key="q", time="ts"), "UNKNOWN_COLUMN", "the columns are ts, k, v"),
    ],
)  # fmt: skip
def test_refused_by_name(call: Callable[[ps.Engine], Any], condition: str, says: str) -> None:
    engine = make_engine()
    with pytest.raises(ps.PenstockError) as caught:
        call(engine)
    assert caught.value.condition == condition
    assert says in str(caught.value)
    check_still_works(engine)


def test_view_cycle_by_redeclaration() -> None:
    """A view that is read cannot be dropped, so two views never read each other."""
    engine = make_engine()
    engine.view("v", "SELECT k FROM a [ROWS 1]")
    engine.view("w", "SELECT k FROM v")
    with pytest.raises(ps.QueryError) as caught:
        engine.drop("v")
    assert caught.value.condition == "VIEW_IN_USE"
    with pytest.raises(ps.QueryError):
        engine.view("v", "SELECT k FROM w")


def test_deletion_of_missing_row_is_counted() -> None:
    engine = ps.Engine()
    engine.table("prices", SCHEMA, key="k", time="ts")
    engine.query("rows", "SELECT k, v FROM prices EMIT CHANGES")
    changes: list[dict[str, Any]] = [
        {"ts": 1, "k": 1, "v": 10, "_op": None},
        {"ts": 2, "k": 2, "v": None, "_op": "-"},  # there is no such row
        {"ts": 3, "k": 1, "v": None, "_op": "-"},
        {"ts": 4, "k": 1, "v": None, "_op": "-"},  # it is deleted already
        {"ts": 5, "k": 1, "v": 11, "_op": "?"},
        {"ts": 6, "k": None, "v": 12, "_op": "+"},
        {"ts": 7, "k": 1, "v": 13, "_op": "+"},
    ]
    rows = engine.push({"prices": changes})["rows"].to_pylist() + engine.flush()["rows"].to_pylist()
    assert [(row["_op"], row["k"], row["v"], row["_ts"]) for row in rows] == [
        ("+", 1, 10, 1), ("-", 1, 10, 3), ("+", 1, 13, 7)
    ]  # fmt: skip
    dead = engine.dead_letters("prices")
    assert sorted(dead.column("ts").to_pylist()) == [2, 4, 5, 6]
    assert all(dead.column(dead.column_names[-1]).to_pylist())  # each has a reason


NOT_IN = "SELECT k FROM a [UNBOUNDED] AS a WHERE k NOT IN (SELECT v FROM b [RANGE 10]) EMIT CHANGES"


@pytest.mark.parametrize(
    ("left", "right", "kept"),
    [
        ([1, None], [], {1, None}),  # nothing is in an empty list, not even NULL
        ([1, None], [2], {1}),  # NULL NOT IN (2) is unknown
        ([1, None, 3], [3], {1}),
        ([1, None, 3], [None], set()),  # 1 NOT IN (NULL) is unknown
        ([1, None, 3], [3, None], set()),
    ],
)
def test_not_in_with_nulls(left: list[int | None], right: list[int | None], kept: set[int | None]) -> None:
    """While b has its rows the answer is SQL's; when they expire all rows of a are there."""
    engine = ps.Engine(warn=False)
    for name in ("a", "b"):
        engine.stream(name, SCHEMA, time="ts")
    engine.query("q", NOT_IN)
    engine.push({"b": [{"ts": 1, "k": 0, "v": value} for value in right]})
    engine.push({"a": [{"ts": 2, "k": value, "v": 0} for value in left]})
    found: dict[int, set[int | None]] = {}
    answer: set[int | None] = set()
    for row in engine.flush()["q"].to_pylist():
        (answer.add if row["_op"] == "+" else answer.discard)(row["k"])
        found[row["_ts"]] = set(answer)
    assert found.get(2, set()) == kept
    assert answer == set(left)
