"""Notices: what a running engine or pipeline should tell its user, from the frontiers and counts of its streams.

Pure functions over values that an engine has anyway. A notice has a condition, the stream it is about, and a message
with a remedy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from penstock.cql import Stream, format_duration
from penstock.state import ALWAYS, FOREVER

_EPOCH = datetime(1970, 1, 1)
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_FIRST_PLAUSIBLE, _LAST_PLAUSIBLE = 20 * 365 * _DAY, 130 * 365 * _DAY  # 1990 to 2100
FAR_AHEAD = _DAY
"""How far a time may be ahead of the clock without a notice, in microseconds."""

_UNIT_MISTAKES = (
    (1_000, "milliseconds read as microseconds", "ms", "TIMESTAMP_MILLIS"),
    (_SECOND, "seconds read as microseconds", "s", "TIMESTAMP_SECONDS"),
)
_UNIT_EXCESSES = (
    (1_000, "nanoseconds read as microseconds, or milliseconds read as seconds"),
    (_SECOND, "microseconds read as seconds, or nanoseconds read as milliseconds"),
)


@dataclass(frozen=True)
class Notice:
    """A notice about a stream, or about a query that has stopped, that is active now."""

    condition: str
    stream: str
    message: str

    def __str__(self) -> str:
        return f"[{self.condition}] {self.message}"


def describe_failed_query(name: str, error: str) -> Notice:
    """A query that has stopped because a function or an aggregate failed. `error` says where, and what it was."""
    message = (
        f"query {name} {error}. It has no more results there; other queries go on. Correct the function and start "
        "again, or drop the query"
    )
    return Notice("QUERY_STOPPED", name, message)


@dataclass(frozen=True)
class HeldBack:
    """A stream whose frontier is behind, and the queries that wait for it."""

    stream: Stream
    frontier: int
    newest: int
    """The newest time that waits."""
    rows: int
    """How many rows wait."""
    queries: tuple[str, ...]
    since: str
    """When the frontier last rose."""


def format_time(tick: int, time_type: pa.DataType) -> str:
    """A time for messages: ISO for a timestamp, else the tick."""
    if tick <= ALWAYS:
        return "the beginning"
    if tick >= FOREVER:
        return "the end"
    if not pa.types.is_timestamp(time_type):
        return f"{tick}"
    try:
        return (_EPOCH + timedelta(microseconds=tick)).isoformat(sep=" ")
    except OverflowError:
        return f"{tick} µs"


def describe_held_back(held: HeldBack) -> Notice:
    """The notice that a stream holds queries back."""
    stream, unit = held.stream, held.stream.time_type
    if held.frontier <= ALWAYS:
        lag = f"{stream.name} has had no rows since {held.since}"
    else:
        behind = format_duration(held.newest - held.frontier, unit)
        lag = (
            f"the frontier of {stream.name} is at {format_time(held.frontier, unit)} since {held.since}, "
            f"{behind} behind"
        )
    idle = "" if stream.idle_after is not None else ", or declare IDLE AFTER (idle_after=)"
    message = (
        f"{stream.name} holds back {', '.join(held.queries)}: {held.rows:,} rows wait, and {lag}. "
        f'Push its rows, promise with advance("{stream.name}", time) that none comes before a time{idle}'
    )
    return Notice("STREAM_HOLDS_BACK", stream.name, message)


def describe_late_rows(stream: Stream, late: int, rows: int, frontier: int, rise: str) -> Notice:
    """The notice that most of the rows that arrived last are late. `rise` says when the frontier rose most."""
    ahead = "" if stream.ahead is not None or stream.timestamps != "external" else (
        " Declare how far ahead of the clock a time may be, AHEAD 1 DAY (ahead=): rows beyond go to the dead letters."
    )  # fmt: skip
    message = (
        f"{late:,} of the last {rows:,} rows of {stream.name} are late and not joined: its frontier is at "
        f"{format_time(frontier, stream.time_type)}{rise}. LATENESS (lateness=) lets rows come later than the newest "
        f"one.{ahead}"
    )
    return Notice("MOSTLY_LATE", stream.name, message)


def find_unit_mistake(stream: Stream, newest: int) -> Notice | None:
    """The notice that the times of a stream look like another unit, given its newest time; None if they do not."""
    if stream.timestamps != "external" or not pa.types.is_timestamp(stream.time_type):
        return None
    if _FIRST_PLAUSIBLE <= newest <= _LAST_PLAUSIBLE or newest <= 0:
        return None
    looks = None
    for factor, unit, arrow, sql in _UNIT_MISTAKES:
        exact = factor == _SECOND and newest % 1_000 == 0  # whole milliseconds: made-up times near 1970
        if _is_plausible(newest * factor) and not exact:
            looks = f'{unit}. Cast the integers with pa.timestamp("{arrow}"), or with {sql} in Spark SQL'
    for factor, unit in _UNIT_EXCESSES:
        if _is_plausible(newest // factor):
            looks = f"{unit}. Divide them by {factor:,} before the cast"
    if looks is None:
        return None
    message = f"the times of {stream.name} are near {format_time(newest, stream.time_type)}: they look like {looks}"
    return Notice("TIME_UNIT", stream.name, message)


def find_unit_difference(streams: Iterable[tuple[Stream, int]]) -> Notice | None:
    """The notice that streams of one query count time in different units; takes integer streams and newest times."""
    known = [(stream, unit) for stream, newest in streams if (unit := guess_tick_unit(newest)) is not None]
    for stream, unit in known[1:]:
        first, first_unit = known[0]
        if unit != first_unit and not pa.types.is_timestamp(stream.time_type):
            message = (
                f"{first.name} counts {first_unit} and {stream.name} counts {unit}, by their newest times: their rows "
                "never join. Give both the same unit"
            )
            return Notice("TIME_UNITS_DIFFER", stream.name, message)
    return None


def guess_tick_unit(newest: int) -> str | None:
    """The unit in which an integer is a time between 1990 and 2100."""
    units = (("seconds", 1 / _SECOND), ("milliseconds", 1 / 1_000), ("microseconds", 1), ("nanoseconds", 1_000))
    return next((unit for unit, size in units if _FIRST_PLAUSIBLE <= newest / size <= _LAST_PLAUSIBLE), None)


def _is_plausible(time: int) -> bool:
    return _FIRST_PLAUSIBLE <= time <= _LAST_PLAUSIBLE


def read_utc(seconds: float) -> str:
    """A time of the system clock for messages."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")
