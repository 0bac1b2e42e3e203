"""FRESHNESS ... BY CLOCK: results that leave late are counted and left out."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps

PAIRS = "SELECT a.k, a.ts AS at, b.ts AS bt FROM a [RANGE 10], b [RANGE 10] WHERE a.k = b.k"


class Clock:
    """A clock in ticks that a test sets."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def make_engine(clock: Clock | None, **options: Any) -> ps.Engine:
    made = ps.Engine(clock=clock, **options)
    for name in "ab":
        made.stream(name, {"ts": "bigint", "k": "bigint"}, time="ts")
    return made


def push(made: ps.Engine, name: str, *times: int) -> Any:
    other = "a" if name == "b" else "b"
    return made.push({name: {"ts": list(times), "k": [7] * len(times)}}, {other: max(times)})


def test_late_results_are_counted_and_left_out() -> None:
    """Only the tuple of the bounded stream is compared, with the clock at which the result leaves."""
    clock = Clock()
    made = make_engine(clock)
    made.query("bounded", f"{PAIRS} FRESHNESS a 12 BY CLOCK")
    made.query("plain", PAIRS)
    push(made, "a", 1, 3, 5)
    clock.now = 15
    out = push(made, "b", 6)
    assert sorted(row["at"] for row in out["plain"].to_pylist()) == [1, 3, 5]
    assert sorted(row["at"] for row in out["bounded"].to_pylist()) == [3, 5]
    assert made.metrics("bounded")["stale"] == 1
    clock.now = 17
    assert [row["at"] for row in push(made, "b", 7)["bounded"].to_pylist()] == [5]
    assert made.metrics("bounded")["stale"] == 3
    assert made.metrics("plain")["stale"] == 0


def test_results_in_time_are_exact() -> None:
    clock = Clock()
    made = make_engine(clock)
    made.query("bounded", f"{PAIRS} FRESHNESS a 10 BY CLOCK, b 10 BY CLOCK")
    made.query("plain", PAIRS)
    for now in range(30):
        clock.now = now
        out = made.push({name: {"ts": [now], "k": [now % 3]} for name in "ab"})
        assert out["bounded"].to_pylist() == out["plain"].to_pylist()
    assert made.metrics("bounded")["stale"] == 0


def test_one_stream_and_union_all() -> None:
    clock = Clock()
    made = make_engine(clock)
    made.query("one", "SELECT k FROM a [RANGE 5] FRESHNESS a 5 BY CLOCK")
    made.query("both", "SELECT k FROM a [NOW] FRESHNESS a 5 BY CLOCK UNION ALL SELECT k FROM b [NOW]")
    clock.now = 9
    out = made.push({"a": {"ts": [1, 4], "k": [1, 4]}, "b": {"ts": [1, 4], "k": [10, 40]}}, {"a": 5, "b": 5})
    assert [row["k"] for row in out["one"].to_pylist()] == [4]
    assert sorted(row["k"] for row in out["both"].to_pylist()) == [4, 10, 40]


def test_restored_engine_compares_with_its_own_clock() -> None:
    clock = Clock()
    made = make_engine(clock)
    made.query("q", f"{PAIRS} FRESHNESS a 12 BY CLOCK")
    push(made, "a", 1, 5)
    later = Clock()
    later.now = 14
    restored = ps.Engine.restore(made.snapshot(), clock=later)
    assert [row["at"] for row in push(restored, "b", 6)["q"].to_pylist()] == [5]


def test_loaded_rows_are_not_counted_as_stale() -> None:
    clock = Clock()
    made = make_engine(clock)
    made.query("q", f"{PAIRS} FRESHNESS a 12 BY CLOCK")
    clock.now = 50
    made.load({"a": {"ts": [1, 5], "k": [7, 7]}, "b": {"ts": [2, 6], "k": [7, 7]}})
    assert made.metrics("q")["stale"] == 0


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, COUNT(*) AS n FROM a [RANGE 5] GROUP BY k FRESHNESS a 5 BY CLOCK",
        "SELECT DISTINCT k FROM a [RANGE 5] FRESHNESS a 5 BY CLOCK",
        "DSTREAM (SELECT k FROM a [RANGE 5] FRESHNESS a 5 BY CLOCK)",
        "SELECT k FROM a [RANGE 5] FRESHNESS a 5 BY CLOCK EXCEPT SELECT k FROM b [RANGE 5]",
        "SELECT k FROM (SELECT k FROM a [RANGE 5] FRESHNESS a 5 BY CLOCK) AS t",
        "SELECT x.k FROM SEQ(a AS x, b AS y) MODE RECENT FRESHNESS x 5 BY CLOCK",
        "SELECT k FROM a [RANGE 5] FRESHNESS a 5 BY CLOCK EMIT CHANGES",
    ],
)
def test_refused_where_missing_rows_would_distort(text: str) -> None:
    made = make_engine(Clock())
    with pytest.raises(ps.QueryError, match="CLOCK_WOULD_DISTORT"):
        made.query("q", text)
    assert "q" not in made.queries


def test_refused_as_view_and_derived_stream() -> None:
    made = make_engine(Clock())
    text = "SELECT k FROM a [RANGE 5] FRESHNESS a 5 BY CLOCK"
    for declare in (made.derive, made.view):
        with pytest.raises(ps.UnsupportedError, match="CLOCK_WOULD_DISTORT"):
            declare("d", text)


def test_ticks_need_a_clock_of_ticks() -> None:
    made = make_engine(None)
    with pytest.raises(ps.QueryError, match="CLOCK_NEEDED"):
        made.query("q", f"{PAIRS} FRESHNESS a 12 BY CLOCK")


def test_stale_results_of_union_all_are_counted() -> None:
    """A query with several joins has the sums of their figures; the page counts stale results without a budget too."""
    clock = Clock()
    made = make_engine(clock)
    sides = ("a.k, a.ts AS at", "b.k, b.ts AS at")
    joins = [f"SELECT {shown} FROM a [RANGE 10], b [RANGE 10] WHERE a.k = b.k" for shown in sides]
    made.query("q", " UNION ALL ".join(f"{join} FRESHNESS a 12 BY CLOCK" for join in joins))
    made.query("plain", " UNION ALL ".join(joins))
    push(made, "a", 1, 3, 5)
    clock.now = 15
    assert push(made, "b", 6)["q"].num_rows == 4
    figures = made.metrics("q")
    assert figures["stale"] == 2
    assert figures["completeness"] == 1
    assert figures["window_rows"] == {"a": 3, "b": 1}, "both sides share one join"
    assert {each.name: each.stale for each in made.status().queries} == {"q": 2, "plain": 0}
