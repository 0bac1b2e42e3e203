"""Idle streams: what the clock may promise, and when (no Spark session)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.cql import Stream
from penstock.spark.heartbeat import Heartbeat, compute_heartbeats

SCHEMA = pa.schema([("ts", pa.timestamp("us"))])
SECOND = 1_000_000
JOINED = [(frozenset({"fast", "slow"}), None)]


def stream(name: str, **rule: Any) -> Stream:
    return Stream(name, SCHEMA, "ts", **rule)


def test_idle_stream_promised_when_query_waits() -> None:
    streams = [stream("fast"), stream("slow", idle_after=30 * SECOND)]
    now = 1000 * SECOND
    ahead = {"fast": 990 * SECOND, "slow": 900 * SECOND}
    silent, talking = {"slow": 960 * SECOND}, {"slow": 980 * SECOND}
    assert compute_heartbeats(streams, JOINED, ahead, silent, now) == {"slow": 970 * SECOND}
    assert compute_heartbeats(streams, JOINED, ahead, talking, now) == {}
    assert compute_heartbeats(streams, JOINED, {"fast": 1, "slow": 2}, silent, now) == {}  # nothing waits
    assert compute_heartbeats(streams, [(frozenset({"fast"}), None)], ahead, silent, now) == {}
    assert compute_heartbeats(streams, JOINED, {"fast": 990 * SECOND}, silent, now) == {"slow": 970 * SECOND}


def test_declared_skew_promised_without_idle_time() -> None:
    streams = [stream("fast"), stream("slow", skew=2 * SECOND)]
    now = 1000 * SECOND
    frontiers = {"fast": 990 * SECOND, "slow": 900 * SECOND}
    assert compute_heartbeats(streams, JOINED, frontiers, {"slow": now}, now) == {"slow": 998 * SECOND}


def test_rows_held_for_lateness_wait_for_own_stream() -> None:
    streams = [stream("slow", idle_after=SECOND, lateness=5 * SECOND)]
    now = 1000 * SECOND
    frontiers = {"slow": 900 * SECOND}
    assert compute_heartbeats(streams, [(frozenset({"slow"}), None)], frontiers, {"slow": 0}, now) == {
        "slow": 999 * SECOND
    }


def test_awaited_instant_promised_once_due() -> None:
    """An awaited time is promised once it is due, on the query's own stream, whatever other queries await."""
    streams, now = [stream("fast", timestamps="internal"), stream("deaf")], 1000 * SECOND

    def promised(awaited: int | None, frontier: int = 990 * SECOND, name: str = "fast") -> dict[str, int]:
        others = (frozenset({"deaf"}), SECOND)
        return compute_heartbeats(
            streams, [others, (frozenset({name}), awaited)], {"fast": frontier, "deaf": 0}, {}, now
        )

    assert promised(None) == {}
    assert promised(990 * SECOND) == {"fast": now}
    assert promised(1001 * SECOND) == {}  # to come
    assert promised(990 * SECOND, frontier=991 * SECOND) == {}  # the frontier is past it
    assert promised(990 * SECOND, name="deaf") == {}


def test_next_promise_waits_for_last_effect() -> None:
    frontiers = {"slow": 5}
    given: list[tuple[str, int]] = []

    def due(now: int) -> tuple[Mapping[str, int], Mapping[str, int]]:
        return frontiers, {"slow": now}

    heart = Heartbeat([], due, lambda name, frontier: given.append((name, frontier)))
    heart.stop()
    heart.send_due(10)
    heart.send_due(11)
    assert given == [("slow", 10)]
    frontiers["slow"] = 10
    heart.send_due(12)
    assert given == [("slow", 10), ("slow", 12)]
