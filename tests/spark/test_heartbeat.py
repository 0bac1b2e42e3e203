"""Idle streams: what the clock may promise, and when (no Spark session)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.cql.catalog import Stream
from penstock.spark.heartbeat import Heart, promises

SCHEMA = pa.schema([("ts", pa.timestamp("us"))])
SECOND = 1_000_000
JOINED = [frozenset({"fast", "slow"})]


def stream(name: str, **rule: Any) -> Stream:
    return Stream(name, SCHEMA, "ts", **rule)


def test_an_idle_stream_is_promised_on_when_a_query_waits() -> None:
    streams = [stream("fast"), stream("slow", idle_after=30 * SECOND)]
    now = 1000 * SECOND
    ahead = {"fast": 990 * SECOND, "slow": 900 * SECOND}
    silent, talking = {"slow": 960 * SECOND}, {"slow": 980 * SECOND}
    assert promises(streams, JOINED, ahead, silent, now) == {"slow": 970 * SECOND}
    assert promises(streams, JOINED, ahead, talking, now) == {}
    assert promises(streams, JOINED, {"fast": 1, "slow": 2}, silent, now) == {}  # nothing waits
    assert promises(streams, [frozenset({"fast"})], ahead, silent, now) == {}
    assert promises(streams, JOINED, {"fast": 990 * SECOND}, silent, now) == {"slow": 970 * SECOND}


def test_a_declared_skew_is_promised_without_silence() -> None:
    streams = [stream("fast"), stream("slow", skew=2 * SECOND)]
    now = 1000 * SECOND
    frontiers = {"fast": 990 * SECOND, "slow": 900 * SECOND}
    assert promises(streams, JOINED, frontiers, {"slow": now}, now) == {"slow": 998 * SECOND}


def test_rows_held_back_for_lateness_wait_for_their_own_stream() -> None:
    streams = [stream("slow", idle_after=SECOND, lateness=5 * SECOND)]
    now = 1000 * SECOND
    frontiers = {"slow": 900 * SECOND}
    assert promises(streams, [frozenset({"slow"})], frontiers, {"slow": 0}, now) == {"slow": 999 * SECOND}


def test_what_a_cell_awaits_is_promised_when_its_time_has_come() -> None:
    """An instant of its own stream, or a window that ends: once, and not before."""
    streams = [stream("fast", timestamps="internal")]
    own, now = [frozenset({"fast"})], 1000 * SECOND
    at = {"fast": 990 * SECOND}
    assert promises(streams, own, at, {}, now) == {}
    assert promises(streams, own, at, {}, now, awaited=990 * SECOND) == {"fast": now}
    assert promises(streams, own, at, {}, now, awaited=1001 * SECOND) == {}  # to come
    assert promises(streams, own, {"fast": now}, {}, now + 1, awaited=990 * SECOND) == {}  # it is not this it waits for
    assert promises(streams, [], at, {}, now, awaited=990 * SECOND) == {}


def test_the_next_promise_waits_until_the_last_took_effect() -> None:
    frontiers = {"slow": 5}
    given: list[tuple[str, int]] = []

    def due(now: int) -> tuple[Mapping[str, int], Mapping[str, int]]:
        return frontiers, {"slow": now}

    heart = Heart([], due, lambda name, frontier: given.append((name, frontier)))
    heart.stop()
    heart.look(10)
    heart.look(11)
    assert given == [("slow", 10)]
    frontiers["slow"] = 10
    heart.look(12)
    assert given == [("slow", 10), ("slow", 12)]
