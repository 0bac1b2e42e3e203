"""TUMBLE, HOP, SESSION and FILTER: forms that are accepted, and mistakes with what to write instead."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps

START = datetime(2026, 1, 1)
MINUTES = [0, 4, 9, 10, 12, 31]


def make_engine() -> ps.Engine:
    engine = ps.Engine()
    engine.stream("s", {"ts": "timestamp", "k": "bigint", "x": "bigint", "at": "timestamp"}, time="ts")
    engine.stream("w", {"ts": "timestamp", "window_end": "timestamp"}, time="ts")
    engine.table("t", pa.table({"k": [1]}))
    return engine


def run(text: str) -> list[dict[str, Any]]:
    engine = make_engine()
    engine.query("q", text)
    times = pa.array([START + timedelta(minutes=each) for each in MINUTES], pa.timestamp("us"))
    rows = pa.table({"ts": times, "k": [1, 1, 2, 1, 2, 1], "x": range(6), "at": times})
    found = [engine.push({"s": rows}), engine.flush()]
    return [row for each in found for row in each["q"].to_pylist()]


def minute(number: int) -> datetime:
    return START + timedelta(minutes=number)


@pytest.mark.parametrize("source", [
    "TUMBLE(s, ts, INTERVAL '10' MINUTES)",
    "tumble(s, ts, INTERVAL '10 minutes') AS s",
    "TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' MINUTE))",
    "TABLE(TUMBLE(DATA => TABLE s, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '10' MINUTE)) AS w",
    "HOP(s, ts, 10 MINUTES, 10 MINUTES)",
    "TABLE(HOP(TABLE s, DESCRIPTOR(ts), SIZE => INTERVAL '10' MINUTE, SLIDE => INTERVAL '10' MINUTE))",
])  # fmt: skip
def test_forms_of_a_tumbling_window(source: str) -> None:
    rows = run(f"SELECT window_start, window_end, COUNT(*) AS n FROM {source} GROUP BY window_start, window_end")
    last = {(row["window_start"], row["window_end"]): row["n"] for row in rows}
    assert last == {(minute(0), minute(10)): 3, (minute(10), minute(20)): 2, (minute(30), minute(40)): 1}


def test_spark_window_in_group_by() -> None:
    rows = run("SELECT window.start AS b, window.end AS e, COUNT(*) AS n FROM s GROUP BY window(ts, '10 minutes')")
    assert {(row["b"], row["e"]): row["n"] for row in rows}[minute(0), minute(10)] == 3
    hops = run("SELECT window.start AS b, k FROM s GROUP BY window(s.ts, '10 minutes', '5 minutes'), k")
    assert {(row["b"], row["k"]) for row in hops if row["k"] == 2} == {
        (minute(b), 2) for b in (0, 5, 10)
    }  # fmt: skip


@pytest.mark.parametrize("source", [
    "SESSION(s PARTITION BY k, ts, INTERVAL '10' MINUTES) GROUP BY window_start, window_end, k",
    "TABLE(SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' MINUTE)) GROUP BY window_start, window_end, k",
    "s GROUP BY session_window(ts, '10 minutes'), k",
])  # fmt: skip
def test_sessions_are_reported_when_they_end(source: str) -> None:
    start = "session_window.start" if "session_window" in source else "window_start"
    rows = run(f"SELECT {start} AS b, k, COUNT(*) AS n FROM {source}")
    assert [(row["b"], row["k"], row["n"], row["_ts"]) for row in rows] == [
        (minute(0), 1, 3, minute(20)), (minute(9), 2, 2, minute(22)), (minute(31), 1, 1, minute(41)),
    ]  # fmt: skip


def test_aggregate_with_filter() -> None:
    rows = run("SELECT COUNT(*) FILTER (WHERE k = 1) AS n, SUM(x) FILTER (WHERE k = 2) AS m FROM s")
    assert (rows[-1]["n"], rows[-1]["m"]) == (4, 6)


def test_windows_are_reported_when_they_close() -> None:
    windows = "TUMBLE(s, ts, INTERVAL '10' MINUTES) GROUP BY window_start, window_end EMIT ON WINDOW CLOSE"
    assert run(f"SELECT COUNT(*) AS n FROM {windows}") == [
        {"n": 3, "_ts": minute(10)}, {"n": 2, "_ts": minute(20)}, {"n": 1, "_ts": minute(40)},
    ]  # fmt: skip
    rows = run("SELECT x FROM s [RANGE 5 MINUTES] WHERE x > 3 EMIT ON WINDOW CLOSE")
    assert rows == [{"x": 4, "_ts": minute(12)}, {"x": 5, "_ts": minute(31)}]


@pytest.mark.parametrize("text", [
    "SELECT k, COUNT(*) AS n FROM s [RANGE 5 MINUTES] GROUP BY k",
    "SELECT k FROM s [RANGE 5 MINUTES] ORDER BY k LIMIT 1",
])  # fmt: skip
def test_no_final_rows(text: str) -> None:
    with pytest.raises(ps.QueryError, match="EMIT CHANGES") as caught:
        make_engine().query("q", f"{text} EMIT ON WINDOW CLOSE")
    assert caught.value.condition == "UNSUPPORTED_EMIT_ON_WINDOW_CLOSE"


@pytest.mark.parametrize(
    ("text", "condition", "says"),
    [
        ("SELECT k FROM TUMBLE(s, at, 10 MINUTES)", "NOT_THE_TIME_COLUMN", "time column ts, not by at"),
        ("SELECT k FROM TUMBLE(s, k, 10 MINUTES)", "NOT_THE_TIME_COLUMN", "TIMESTAMP BY k"),
        ("SELECT k FROM TUMBLE(s, ts, INTERVAL '0' MINUTES)", "INVALID_DURATION", "greater than zero"),
        ("SELECT k FROM TUMBLE(s, ts)", "ARGUMENT_COUNT", "TUMBLE(s, ts, size)"),
        ("SELECT k FROM HOP(s, ts, 10 MINUTES)", "ARGUMENT_COUNT", "HOP(s, ts, slide, size)"),
        ("SELECT k FROM HOP(s, ts, 10 MINUTES, 5 MINUTES)", "INVALID_WINDOW", "the slide comes first"),
        ("SELECT k FROM TUMBLE(t, k, 10 MINUTES)", "WINDOW_OF_NO_STREAM", "static table"),
        ("SELECT k FROM TUMBLE((SELECT * FROM s), ts, 10 MINUTES)", "WINDOW_OF_NO_STREAM", "by its name"),
        ("SELECT k FROM TUMBLE(s, ts, 10 MINUTES) [RANGE 5 MINUTES]", "INVALID_WINDOW", "remove the one in brackets"),
        ("SELECT ts FROM TUMBLE(w, ts, 10 MINUTES)", "RESERVED_NAME", "window_end"),
        ("SELECT k FROM SESSION(s PARTITION BY z, ts, 10 MINUTES)", "UNKNOWN_COLUMN", "unknown column z"),
        ("SELECT window FROM s GROUP BY window(ts, '10 minutes')", "INVALID_WINDOW", "window.start"),
        ("SELECT k FROM s [NOW] GROUP BY window(ts, '10 minutes'), k", "INVALID_WINDOW", "write one of them"),
        ("SELECT x FILTER (WHERE x > 1) FROM s", "SYNTAX_ERROR", ""),
        ("SELECT COUNT(*) FILTER (WHERE SUM(x) > 1) FROM s", "AGGREGATE_NOT_ALLOWED", "FILTER"),
    ],
)  # fmt: skip
def test_mistakes(text: str, condition: str, says: str) -> None:
    with pytest.raises(ps.QueryError) as caught:
        make_engine().query("q", text)
    assert caught.value.condition == condition
    assert says in caught.value.message
