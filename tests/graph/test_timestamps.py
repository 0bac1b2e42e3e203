"""Enabling Time-Stamps on demand: no result waits for an idle stream."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from inspect_engine import source_of

from penstock import Engine
from penstock.cql import Stream
from penstock.errors import QueryError
from penstock.ops import compute_clock_frontier
from penstock.state import ALWAYS
from penstock.testing import VirtualClock

SCHEMA = {"ts": "bigint", "x": "bigint"}
UNION = "SELECT x FROM A [NOW] UNION ALL SELECT x FROM B [NOW]"
JOIN = "SELECT A.x FROM A [RANGE 100], B [RANGE 100] WHERE A.x = B.x"


class Ticks:
    """A clock in ticks."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def engine(clock: Any, **declared: Any) -> Engine:
    eng = Engine(clock=clock)
    for name in "AB":
        eng.stream(name, SCHEMA, time="ts", **declared)
    return eng


def rows(*times: int, x: int = 7) -> pa.Table:
    return pa.table({"ts": list(times), "x": [x] * len(times)})


def times(out: dict[str, pa.Table], query: str = "q") -> list[int]:
    return out[query].column("_ts").to_pylist()


# ── idle streams ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("declared", [{"skew": 5}, {"idle_after": 5}])
def test_empty_stream_does_not_block_results(declared: dict[str, int]) -> None:
    clock = Ticks()
    eng = engine(clock, **declared)
    eng.query("q", UNION)
    assert times(eng.push({"A": rows(10)})) == []
    clock.now = 15
    assert times(eng.push({})) == [10]


def test_filtered_stream_does_not_block_results() -> None:
    clock = Ticks()
    eng = engine(clock, skew=5)
    eng.query("q", "SELECT x FROM A [NOW] UNION ALL SELECT x FROM B [NOW] WHERE x > 1000")
    clock.now = 12
    assert times(eng.push({"A": rows(10), "B": rows(3, 6)})) == []
    clock.now = 15
    assert times(eng.push({})) == [10]


@pytest.mark.parametrize("text", [UNION, UNION.replace("[NOW]", "[ROWS 1]")])
def test_idle_streams_do_not_block_results(text: str) -> None:
    clock = Ticks()
    eng = engine(clock, idle_after=30)
    eng.query("q", text)
    clock.now = 10
    first = times(eng.push({"A": rows(10), "B": rows(4)}))
    clock.now = 100
    assert first + times(eng.push({})) == [4, 10]


# ── kinds of timestamps ──────────────────────────────────────────────────────────────────────────────────────────────


def test_stream_without_idle_rule_waits_for_data() -> None:
    clock = Ticks()
    eng = engine(clock)
    eng.query("q", JOIN)
    clock.now = 10**9
    eng.push({"A": rows(10)})
    eng.push({"B": rows(3)})
    assert times(eng.push({})) == []
    assert times(eng.flush()) == [10]


def test_internal_timestamps_on_arrival() -> None:
    clock = Ticks()
    eng = engine(clock, timestamps="internal")
    eng.query("q", JOIN)
    clock.now = 10
    assert times(eng.push({"A": pa.table({"x": [7]})})) == []
    clock.now = 20
    assert times(eng.push({"B": rows(999)})) == [20]
    clock.now = 15  # a clock that goes back is ignored
    assert times(eng.push({"A": pa.table({"x": [7]})})) == [20]


def test_latent_timestamps_on_demand() -> None:
    clock = Ticks()
    eng = engine(clock, timestamps="latent")
    eng.query("q", JOIN)
    source = source_of(eng, "A")
    clock.now = 10
    source.feed(*_unstamped(7))
    clock.now = 20
    assert times(eng.push({"B": pa.table({"x": [7]})})) == [20]
    assert source.frontier == 20


def _unstamped(x: int) -> tuple[Any, dict[str, pa.Array]]:
    import numpy as np

    return np.zeros(1, np.int64), {"ts": pa.nulls(1, pa.int64()), "x": pa.array([x])}


def test_wall_clock_in_microseconds() -> None:
    clock = VirtualClock(datetime(2026, 1, 1))
    eng = Engine(clock=clock.now)
    for name in "AB":
        eng.stream(name, {"ts": "timestamp", "x": "bigint"}, time="ts", skew="1 second")
    eng.query("q", "SELECT x FROM A [NOW] UNION ALL SELECT x FROM B [NOW]")
    at = clock.now()
    row = pa.table({"ts": pa.array([at], pa.timestamp("us")), "x": [1]})
    assert eng.push({"A": row})["q"].num_rows == 0
    clock.advance(timedelta(seconds=1))
    assert eng.push({})["q"].column("_ts").to_pylist() == [at]


def test_idle_after_ticks_follows_other_streams() -> None:
    """Without a clock, ticks are taken from the other streams."""
    eng = Engine()
    eng.stream("A", SCHEMA, time="ts")
    eng.stream("B", SCHEMA, time="ts", idle_after=5)
    eng.query("q", UNION)
    assert times(eng.push({"A": rows(10)})) == []
    assert times(eng.push({"A": rows(12, 15)})) == [10]
    with pytest.raises(QueryError, match="counts ticks: give Engine"):
        eng.stream("C", SCHEMA, time="ts", timestamps="internal")


def test_enabling_timestamp_on_demand() -> None:
    clock = Ticks()
    eng = engine(clock, skew=5)
    eng.query("q", UNION)
    clock.now = 50
    eng.push({})
    assert eng.metrics("q")["streams"]["B"]["frontier"] == int(ALWAYS)
    eng.push({"A": rows(46)})
    assert eng.metrics("q")["streams"]["B"]["frontier"] == int(ALWAYS)  # 45 would release nothing
    eng.push({"A": rows(47)})
    clock.now = 52
    assert times(eng.push({})) == [46, 47]
    assert eng.metrics("q")["streams"]["B"]["frontier"] == 47


def test_tuples_before_promised_time_are_late() -> None:
    clock = Ticks()
    eng = engine(clock, skew=5)
    eng.query("q", UNION)
    clock.now = 20
    assert times(eng.push({"A": rows(10)})) == [10]
    assert times(eng.push({"B": rows(14, 15)})) == [15]
    assert eng.late("B").num_rows == 1


def test_clock_releases_tuples_held_for_lateness() -> None:
    clock = Ticks()
    eng = Engine(clock=clock)
    eng.stream("A", SCHEMA, time="ts", lateness=100, skew=5)
    eng.query("q", "SELECT x FROM A [NOW]")
    clock.now = 10
    assert times(eng.push({"A": rows(10)})) == []
    clock.now = 15
    assert times(eng.push({})) == [10]


@pytest.mark.parametrize(
    ("declared", "now", "heard", "promised"),
    [
        ({}, 100, 0, int(ALWAYS)),
        ({"timestamps": "internal"}, 100, 100, 100),
        ({"timestamps": "latent"}, 100, 0, 100),
        ({"skew": 7}, 100, 100, 93),
        ({"idle_after": 7}, 100, 94, int(ALWAYS)),
        ({"idle_after": 7}, 100, 93, 93),
        ({"skew": 50, "idle_after": 7}, 100, 95, 50),
        ({"skew": 50, "idle_after": 7}, 100, 0, 93),
    ],
)
def test_source_promise(declared: dict[str, Any], now: int, heard: int, promised: int) -> None:
    stream = Stream("A", pa.schema([("ts", pa.int64())]), "ts", **declared)
    assert compute_clock_frontier(stream, now, heard) == promised


def test_time_bypasses_a_select_of_one_stream() -> None:
    """It has no step that only carries time, below a union as below a derived stream."""
    made = Engine()
    for name in "ab":
        made.stream(name, {"ts": "bigint", "x": "bigint"}, time="ts")
    made.derive("chosen", "SELECT x FROM a [NOW] WHERE x > 0")
    made.query("q", "SELECT x FROM chosen [RANGE 5] UNION ALL SELECT x FROM b WHERE x > 1")
    made.push({"a": {"ts": [1, 2], "x": [1, 0]}})
    assert made.push({}, {"b": 2})["q"].to_pylist() == [{"x": 1, "_ts": 1}]
    ran = set(made.scheduler.ran)
    made.push({}, {"a": 8, "b": 9})
    ran |= set(made.scheduler.ran)
    assert ran <= {"source a", "source b", "q: union"}
    assert made.push({"a": {"ts": [9], "x": [3]}}, {"b": 9})["q"].to_pylist() == [{"x": 3, "_ts": 9}]


@pytest.mark.parametrize("window", ["ROWS 1", "ROWS 2"])
def test_rows_of_a_counted_window_wait_for_their_instant(window: str) -> None:
    """A later tuple of the same instant can end them: then they never were in the answer."""
    made = Engine()
    made.stream("a", {"ts": "bigint", "x": "bigint"}, time="ts")
    made.query("q", f"SELECT x FROM a [{window}] UNION ALL SELECT x FROM a [NOW] WHERE x < 0")
    assert made.push({"a": {"ts": [1], "x": [1]}})["q"].num_rows == 0
    rows = made.push({"a": {"ts": [1, 1], "x": [2, 3]}}, {"a": 2})["q"]
    assert sorted(rows.column("x").to_pylist()) == [1, 2, 3][-int(window[-1]) :]


def test_time_passes_a_select_after_a_turn_of_one_instant() -> None:
    """Rows of one instant are more than a turn takes; time went on while they waited."""
    made = Engine(batch=1)
    for name in "ab":
        made.stream(name, {"ts": "bigint", "x": "bigint"}, time="ts")
    made.query("q", "SELECT x FROM a [NOW] UNION ALL SELECT x FROM b [NOW]")
    out = made.push({"a": {"ts": [1, 1], "x": [1, 2]}, "b": {"ts": [7], "x": [3]}}, {"a": 8})
    assert sorted(out["q"].column("x").to_pylist()) == [1, 2, 3]
