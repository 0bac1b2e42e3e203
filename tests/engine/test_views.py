"""Views: relations that other queries read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as ps

HOTTEST = "SELECT k, MAX(v) AS m FROM s [RANGE 10] GROUP BY k"


def engine() -> ps.Engine:
    made = ps.Engine()
    made.stream("s", {"ts": "bigint", "k": "bigint", "v": "bigint"}, time="ts")
    return made


def rows(*given: tuple[int, int, int]) -> pa.Table:
    return pa.table(dict(zip(("ts", "k", "v"), zip(*given, strict=True), strict=True)))


def test_average_of_maxima_counts_current_rows() -> None:
    """A derived stream would keep every earlier maximum."""
    made = engine()
    made.view("hottest", HOTTEST)
    made.query("mean", "SELECT AVG(m) AS mean FROM hottest")
    out = made.push({"s": rows((1, 1, 10), (2, 1, 20), (3, 1, 60), (4, 2, 20), (5, 1, 1))})
    assert set(out) == {"mean"}  # a view is not a query
    assert [row["mean"] for row in out["mean"].to_pylist()] == [10, 20, 60, 40]


def test_view_is_computed_once() -> None:
    made = engine()
    made.view("hottest", HOTTEST)
    for number in range(10):
        made.query(f"q{number}", f"SELECT m FROM hottest WHERE m > {number}")
    made.push({"s": rows((1, 1, 10), (2, 1, 20))})
    kinds = [node.id for node in made.graph if "aggregate" in node.id]
    assert kinds == ["hottest: aggregate"]


@pytest.mark.parametrize("restored", [False, True])
def test_late_query_begins_with_current_rows(restored: bool) -> None:
    made = engine()
    made.view("hottest", HOTTEST)
    made.push({"s": rows((1, 1, 10), (2, 2, 20), (4, 2, 30))})
    made.query("late", "SELECT k, m FROM hottest EMIT CHANGES")
    made.query("total", "SELECT SUM(m) AS total FROM hottest")
    made = ps.Engine.restore(made.snapshot()) if restored else made
    out = made.push({"s": rows((6, 1, 50))})
    assert [tuple(row.values()) for row in out["late"].to_pylist()] == [
        (1, 10, "+", 3), (2, 20, "+", 3), (2, 20, "-", 4), (2, 30, "+", 4),
    ]  # fmt: skip
    assert [tuple(row.values()) for row in out["total"].to_pylist()] == [(30, 3), (40, 4)]


def test_drop_view_in_use() -> None:
    made = engine()
    made.view("hottest", HOTTEST)
    made.view("hot", "SELECT k FROM hottest WHERE m > 5")
    made.query("q", "SELECT k FROM hot")
    for name, reader in (("hottest", "hot"), ("hot", "q")):
        with pytest.raises(ps.QueryError, match=f"is read by {reader}") as caught:
            made.drop(name)
        assert caught.value.condition == "VIEW_IN_USE"
    for name in ("q", "hot", "hottest"):
        made.drop(name)
    assert [node.id for node in made.graph] == ["source s"]
    made.view("hot", "SELECT k FROM s [RANGE 5]")  # the name is free again


@pytest.mark.parametrize(
    ("call", "condition"),
    [
        (lambda made: made.view("r", "SELECT k FROM r"), "VIEW_CYCLE"),
        (lambda made: made.view("hottest", "SELECT k FROM s"), "DUPLICATE_NAME"),
        (lambda made: made.view("r", "SELECT k FROM s EMIT CHANGES"), "VIEW_EMITS"),
        (lambda made: made.view("r", "ISTREAM (SELECT k FROM s)"), "VIEW_EMITS"),
        (lambda made: made.query("q", "SELECT k FROM hottest [ROWS 3]"), "WINDOW_ON_SUBQUERY"),
        (lambda made: made.alter("hottest", "SELECT k FROM s"), "NOT_A_QUERY"),
        (lambda made: made.subscribe("hottest", print), "NOT_A_QUERY"),
        (lambda made: made.push({"hottest": rows((1, 1, 1))}), "NOT_A_STREAM"),
        (lambda made: made.query("q", "SELECT h.k FROM SEQ(s, hottest AS h) MODE RECENT"), "TABLE_IN_SEQ"),
    ],
)
def test_refused(call: Any, condition: str) -> None:
    made = engine()
    made.view("hottest", HOTTEST)
    with pytest.raises(ps.PenstockError) as caught:
        call(made)
    assert caught.value.condition == condition


def test_script_declares_views() -> None:
    made = ps.Engine.from_script(
        "CREATE STREAM s (ts BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY ts;"
        f"CREATE VIEW hottest AS {HOTTEST}; CREATE SINK hottest TO console; INSERT INTO hottest SELECT m FROM hottest;"
    )
    assert list(made.queries) == ["hottest_2"]
    assert made.push({"s": rows((1, 1, 10), (2, 1, 20))})["hottest_2"].to_pylist() == [{"m": 10, "_ts": 1}]


class CountedMax:
    """MAX; counts the rows that it was given, in all groups."""

    calls = 0
    type = "bigint"

    def initialise(self) -> None:
        self.values: list[int] = []

    def iterate(self, value: int) -> None:
        type(self).calls += 1
        self.values.append(value)

    def remove(self, value: int) -> None:
        self.values.remove(value)

    def terminate(self) -> int:
        return max(self.values)


def test_view_of_ten_readers_is_computed_once() -> None:
    CountedMax.calls = 0
    engine = ps.Engine(warn=False)
    engine.stream("s", {"ts": "bigint", "k": "bigint", "v": "bigint"}, time="ts")
    engine.aggregate("counted_max", CountedMax)
    engine.view("peaks", "SELECT k, COUNTED_MAX(v) AS peak FROM s [RANGE 5] GROUP BY k")
    for number in range(10):
        engine.query(f"q{number}", f"SELECT k, peak FROM peaks WHERE peak > {number}")
    engine.push({"s": {"ts": list(range(100)), "k": [n % 3 for n in range(100)], "v": list(range(100))}})
    results = engine.flush()
    assert all(results[f"q{number}"].num_rows for number in range(10))
    assert CountedMax.calls == 100
