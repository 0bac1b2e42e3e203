"""Notices: silent problems of streams, as values, in `explain` and once as a warning."""

from __future__ import annotations

import warnings
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps

PAIRS = "SELECT a.x FROM A [RANGE 10] AS a, B [RANGE 10] AS b WHERE a.x = b.x"
NOW = datetime(2026, 5, 1, 12)


def make_engine(time: str = "bigint", **options: Any) -> ps.Engine:
    engine = ps.Engine(**options)
    for name in "AB":
        engine.stream(name, {"ts": time, "x": "bigint"}, time="ts")
    return engine


def rows(*times: object, kind: pa.DataType | None = None) -> pa.Table:
    column = pa.array(times, kind or (pa.timestamp("us") if isinstance(times[0], datetime) else pa.int64()))
    return pa.table({"ts": column, "x": list(range(len(times)))})


def list_conditions(engine: ps.Engine) -> list[tuple[str, str]]:
    return [(notice.condition, notice.stream) for notice in engine.notices()]


# ── a stream that holds others back ──────────────────────────────────────────────────────────────────────────────────


def test_silent_stream_holds_back() -> None:
    engine = make_engine()
    engine.query("pairs", PAIRS)
    engine.query("alone", "SELECT x FROM A")
    assert engine.notices() == ()
    engine.push({"A": rows(1, 2, 3)})
    (notice,) = engine.notices()
    assert (notice.condition, notice.stream) == ("STREAM_HOLDS_BACK", "B")
    assert "B holds back pairs: 3 rows wait, and B has had no rows since the start" in notice.message
    assert f"notice: {notice}" in engine.explain("pairs")
    assert "notice" not in engine.explain("alone")
    engine.push({"B": rows(3)})
    assert engine.notices() == ()


def test_lag_and_last_progress_of_a_stream() -> None:
    engine = make_engine("timestamp")
    engine.query("pairs", PAIRS.replace("10", "1 MINUTE"))
    engine.push({"A": rows(NOW), "B": rows(NOW)})
    engine.push({"A": rows(NOW + timedelta(minutes=3))})
    engine.push({})
    (notice,) = engine.notices()
    assert "the frontier of B is at 2026-05-01 12:00:00 since push 1 (" in notice.message
    assert "3 minutes behind" in notice.message
    engine.advance("B", NOW + timedelta(minutes=4))
    engine.push({})
    assert engine.notices() == ()


def test_stream_behind_a_derived_one_is_named() -> None:
    engine = make_engine()
    engine.derive("both", "SELECT x FROM A UNION ALL SELECT x FROM B")
    engine.stream("C", {"ts": "bigint", "x": "bigint"}, time="ts")
    engine.query("q", "SELECT c.x FROM both [RANGE 10] AS d, C [RANGE 10] AS c WHERE d.x = c.x")
    engine.push({"A": rows(1), "C": rows(5)})
    assert ("STREAM_HOLDS_BACK", "B") in list_conditions(engine)
    assert "[STREAM_HOLDS_BACK] B" in engine.explain("q")


def test_warning_after_many_pushes_without_progress() -> None:
    engine = make_engine()
    engine.query("pairs", PAIRS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for time in range(250):
            engine.push({"A": rows(time)})
    (only,) = caught
    assert only.category is ps.PenstockWarning
    assert "[STREAM_HOLDS_BACK] B holds back pairs" in str(only.message)
    assert only.filename == __file__


def test_streams_that_alternate_cause_no_warning() -> None:
    engine = make_engine()
    engine.query("pairs", PAIRS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for time in range(250):
            engine.push({"AB"[time % 2]: rows(time)})


# ── late rows, and rows from the far future ──────────────────────────────────────────────────────────────────────────


def test_one_row_from_the_future_makes_rows_late() -> None:
    engine = make_engine("timestamp")
    engine.query("alone", "SELECT x FROM A")
    now = datetime.now()
    engine.push({"A": rows(now)})
    engine.push({"A": rows(datetime(3026, 1, 1))})
    with pytest.warns(ps.PenstockWarning, match="MOSTLY_LATE"):
        engine.push({"A": rows(now, now)})
    (notice,) = engine.notices()
    assert (
        "2 of the last 2 rows of A are late and not joined: its frontier is at 3026-01-01 00:00:00; it rose by"
        in notice.message
    )
    assert "in push 2" in notice.message
    assert "AHEAD 1 DAY (ahead=)" in notice.message


def test_few_late_rows_cause_no_warning() -> None:
    engine = make_engine()
    engine.query("alone", "SELECT x FROM A")
    engine.push({"A": rows(5, 6)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.push({"A": rows(1, 7, 8)})
        assert engine.notices() == ()
        engine.push({"A": rows(2)})
    assert list_conditions(engine) == [("MOSTLY_LATE", "A")]


def test_ahead_sends_rows_to_the_dead_letters() -> None:
    engine = ps.Engine(clock=lambda: NOW)
    engine.stream("A", {"ts": "timestamp", "x": "bigint"}, time="ts", ahead="1 day")
    engine.query("q", "SELECT x FROM A")
    out = engine.push(
        {"A": rows(NOW, NOW + timedelta(days=1), NOW + timedelta(days=1, seconds=1), datetime(3026, 1, 1))}
    )
    assert out["q"].column("x").to_pylist() == [0, 1]
    dead = engine.dead_letters("A").to_pylist()
    assert [(row["x"], row["_reason"]) for row in dead] == [
        (2, "ts is more than 1 day ahead of the clock"),
        (3, "ts is more than 1 day ahead of the clock"),
    ]
    restored = ps.Engine.restore(engine.snapshot(), clock=lambda: NOW)
    restored.push({"A": rows(datetime(3026, 1, 1))})
    assert restored.metrics("q")["streams"]["A"]["dead"] == 3


def test_ahead_of_ticks_needs_a_clock_in_ticks() -> None:
    with pytest.raises(ps.QueryError, match="CLOCK_NEEDED"):
        ps.Engine().stream("A", {"ts": "bigint", "x": "bigint"}, time="ts", ahead=10)
    engine = ps.Engine(clock=lambda: 100)
    engine.stream("A", {"ts": "bigint", "x": "bigint"}, time="ts", ahead=10)
    engine.push({"A": rows(110, 111)})
    assert engine.dead_letters("A").column("x").to_pylist() == [1]


# ── units of time ────────────────────────────────────────────────────────────────────────────────────────────────────

MILLISECONDS = 1_767_225_600_000  # 2026-01-01


@pytest.mark.parametrize(
    ("tick", "looks"),
    [
        (MILLISECONDS, "milliseconds read as microseconds"),
        (MILLISECONDS // 1000 + 1, "seconds read as microseconds"),
        (MILLISECONDS * 1_000_000, "nanoseconds read as microseconds"),
        (MILLISECONDS * 1_000, None),
        (1_000_000, None),  # one second after 1970: a made-up time
        (3_600_000_000, None),
        (-5, None),
    ],
)
def test_times_in_another_unit(tick: int, looks: str | None) -> None:
    engine = make_engine("timestamp")
    engine.query("alone", "SELECT x FROM A")
    table = pa.table({"ts": pa.array([tick], pa.int64()).cast(pa.timestamp("us")), "x": [1]})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        engine.push({"A": table})
        engine.push({"A": table})
    assert [notice.condition for notice in engine.notices()] == ([] if looks is None else ["TIME_UNIT"])
    assert len(caught) == (looks is not None)
    assert looks is None or looks in str(caught[0].message)


def test_integer_streams_in_different_units() -> None:
    engine = make_engine()
    engine.query("pairs", PAIRS)
    engine.push({"A": rows(MILLISECONDS), "B": rows(MILLISECONDS * 1000)})
    units = [notice for notice in engine.notices() if notice.condition == "TIME_UNITS_DIFFER"]
    assert "A counts milliseconds and B counts microseconds" in units[0].message


def test_integers_for_a_timestamp_name_the_cast() -> None:
    engine = make_engine("timestamp")
    engine.query("alone", "SELECT x FROM A")
    with pytest.raises(ps.DataError, match="COLUMN_TYPE") as error:
        engine.push({"A": rows(MILLISECONDS)})
    assert 'it looks like milliseconds since 1970: column.cast(pa.timestamp("ms"))' in str(error.value)
    out = engine.push({"A": rows(MILLISECONDS, kind=pa.timestamp("ms"))})
    assert out["alone"].column("_ts").to_pylist() == [datetime(2026, 1, 1)]


# ── ends, NOT NULL, and warnings as errors ───────────────────────────────────────────────────────────────────────────


def test_push_after_flush_is_refused() -> None:
    engine = make_engine()
    engine.query("pairs", PAIRS)
    engine.push({"A": rows(1), "B": rows(1)})
    engine.flush()
    with pytest.raises(ps.DataError, match=r"STREAM_ENDED.*flush ends every stream"):
        engine.push({"A": rows(2)})
    assert engine.late("A").num_rows == 0
    assert engine.push({})["pairs"].num_rows == 0
    assert engine.flush()["pairs"].num_rows == 0
    engine.stream("C", {"ts": "bigint", "x": "bigint"}, time="ts")
    engine.query("new", "SELECT x FROM C")
    assert engine.push({"C": rows(1)})["new"].num_rows == 1


@pytest.mark.parametrize("schema", [
    {"ts": "timestamp not null", "x": "bigint  NOT NULL"},
    pa.schema([pa.field("ts", pa.timestamp("us"), nullable=False), pa.field("x", pa.int64(), nullable=False)]),
])  # fmt: skip
@pytest.mark.parametrize("timestamps", ["external", "internal"])
def test_null_in_a_not_null_column_is_a_bad_row(schema: Any, timestamps: Any) -> None:
    engine = ps.Engine(clock=lambda: NOW)
    engine.stream("A", schema, time="ts", timestamps=timestamps)
    engine.query("q", "SELECT x FROM A")
    table = pa.table({"ts": pa.array([NOW, NOW], pa.timestamp("us")), "x": [None, 5]})
    out = [engine.push({"A": table})["q"], engine.flush()["q"]]
    assert pa.concat_tables(out).column("x").to_pylist() == [5]
    assert engine.dead_letters("A").column("_reason").to_pylist() == ["x is NULL, but declared NOT NULL"]
    again = ps.Engine.restore(ps.Engine.snapshot(engine), clock=lambda: NOW)
    assert again.metrics("q")["streams"]["A"]["dead"] == 1


def test_warning_of_a_query_points_at_the_caller() -> None:
    engine = make_engine()
    with pytest.warns(ps.PenstockWarning, match=r"(?s)pairs: \[UNBOUNDED_STATE\].*column 17.*\^\^\^\^\^\^") as caught:
        engine.query("pairs", "SELECT a.x FROM A AS a, B [NOW] AS b WHERE a.x = b.x")
    assert caught[0].filename == __file__
    assert "warning: [UNBOUNDED_STATE]" in engine.explain("pairs")


def test_warnings_as_errors_do_not_break_the_engine() -> None:
    engine = make_engine()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ps.PenstockWarning):
            engine.query("all", "SELECT DISTINCT x FROM A")
        engine.push({"A": rows(1)})
    assert engine.flush()["all"].num_rows == 1


def test_engine_without_warnings() -> None:
    engine = make_engine(warn=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.query("all", "SELECT DISTINCT x FROM A")
        engine.query("pairs", PAIRS)
        for time in range(120):
            engine.push({"A": rows(time)})
    assert ("STREAM_HOLDS_BACK", "B") in list_conditions(engine)
