"""The streams of a storm: random tuples, and the pushes and advances in which they arrive."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.cql import Stream
from penstock.testing import Advance, Push, Step
from penstock.testing.row_evaluator import EPOCH

NEW_YEAR = 1_767_225_600  # 2026-01-01 in seconds
TEXTS = ("", "one", "two", "a longer text", "é")


@dataclass(frozen=True)
class StormScale:
    """The size of a storm: numbers of tuples, ticks and keys, and the longest window."""

    rows: int
    ticks: int
    keys: int
    window: int
    unit: str | None  # None: integer ticks; else the time column is a timestamp and a tick a second
    start: int

    @property
    def limit(self) -> int:
        """The largest number of rows of a result."""
        return 2_000 + 20 * self.rows

    def duration(self, ticks: int) -> str:
        return f"{ticks} {self.unit}" if self.unit else f"{ticks}"


@dataclass
class Feed:
    """The declared streams and the steps in which their tuples arrive."""

    declarations: tuple[Stream, ...]
    steps: tuple[Step, ...] = ()
    nulls: float = 0.0
    skew: float = 1.0
    stamped: bool = field(default=False)


def draw_scale(rng: random.Random, streams: int, least: int, most: int) -> tuple[StormScale, float]:
    """A scale and a skew of keys; the number of tuples is drawn evenly among magnitudes from `least` to `most`."""
    rows = round(least * (most / least) ** rng.random())
    ticks = max(3, round(rows / rng.choice((0.3, 1, 1, 4))))
    keys = max(1, min(rng.choice((1, 3, 5, 20, 200)), rows // 3))
    if rows > 1000:
        keys = max(keys, 20)
    skew = rng.choice((1.0, 1.0, 2.0, 3.0))
    weights = np.diff(np.linspace(0, 1, keys + 1) ** (1 / skew))
    distinct = 1 / float((weights**2).sum())
    rate = rows / ticks / streams
    fan_out = min(3.0, (20 + 2000 / rows) ** (1 / max(1, streams - 1)))
    window = max(1, min(ticks * 2, round(fan_out * distinct / rate * rng.choice((0.3, 1, 1)))))
    timed = rng.random() < 0.25
    start = NEW_YEAR if timed else rng.choice((0, 100, -7))
    return StormScale(rows, ticks, keys, window, "SECONDS" if timed else None, start), skew


def declare_streams(rng: random.Random, names: Sequence[str], scale: StormScale) -> tuple[Stream, ...]:
    kind = pa.timestamp("us") if scale.unit else pa.int64()
    columns = [("ts", kind), ("x", pa.int64()), ("y", pa.int64()), ("s", pa.string()), ("v", pa.float64()),
               ("id", pa.int64())]  # fmt: skip
    tick = 1_000_000 if scale.unit else 1
    return tuple(
        Stream(name, pa.schema(columns), "ts", tick * rng.choice((0, 0, 1, 3, max(1, scale.window // 4))))
        for name in names
    )


def draw_feed(seed: int, rng: random.Random, names: Sequence[str], scale: StormScale, skew: float) -> Feed:
    """The declarations and steps of a storm."""
    feed = Feed(declare_streams(rng, names, scale), nulls=rng.choice((0.0, 0.0, 0.05, 0.2)), skew=skew)
    data = np.random.default_rng(seed)
    shares = data.dirichlet([3.0] * len(names))
    pushes = max(1, min(scale.rows // 2, rng.choice((3, 6, 12, 25))))
    late = rng.choice((0.0, 0.0, 0.1))
    edges = np.linspace(scale.start, scale.start + scale.ticks, pushes + 1)
    batches: list[dict[str, pa.Table]] = [{} for _ in range(pushes + 1)]
    for stream, share in zip(feed.declarations, shares, strict=True):
        rows = max(1, round(scale.rows * float(share)))
        table, arrives = _draw_rows(data, stream, rows, scale, feed, late)
        arrives = arrives + rng.choice((0, 0, 0, scale.window // 2, scale.ticks // 4))
        chosen = np.searchsorted(edges[1:], arrives, side="left")
        order = np.argsort(arrives, kind="stable") if rng.random() < 0.5 else np.arange(rows)
        for number in np.unique(chosen):
            batches[number][stream.name] = table.take(pa.array(order[chosen[order] == number]))
    feed.steps = tuple(_interleave(rng, batches, feed.declarations, scale))
    return feed


def _draw_rows(
    data: Any, stream: Stream, rows: int, scale: StormScale, feed: Feed, late: float
) -> tuple[pa.Table, Any]:
    """The tuples of a stream in the order of time, and when each arrives."""
    times = np.sort(data.integers(scale.start, scale.start + scale.ticks, rows))
    lateness = stream.lateness // (1_000_000 if scale.unit else 1)
    arrives = times + data.integers(0, lateness + 1, rows)
    arrives = arrives + (data.random(rows) < late) * data.integers(0, scale.window + 2, rows)

    def key() -> Any:
        values = (scale.keys * data.random(rows) ** feed.skew).astype(np.int64)
        return pa.array(values, mask=data.random(rows) < feed.nulls)

    missing = pa.array(data.random(rows) < (0.02 if feed.nulls else 0.0))
    stored = pa.array(times * 1_000_000).cast(pa.timestamp("us")) if scale.unit else pa.array(times)
    texts = np.array(TEXTS, object)[data.integers(0, len(TEXTS), rows)]
    columns = {
        "ts": pa.compute.if_else(missing, pa.scalar(None, stored.type), stored),
        "x": key(),
        "y": key(),
        "s": pa.array(texts, pa.string(), mask=data.random(rows) < feed.nulls),
        "v": pa.array(data.integers(-8, 40, rows) / 2, mask=data.random(rows) < feed.nulls),
        "id": pa.array(np.arange(rows)),
    }
    return pa.table(columns, schema=stream.schema), arrives


def _interleave(
    rng: random.Random, batches: list[dict[str, pa.Table]], streams: Sequence[Stream], scale: StormScale
) -> Any:
    """The pushes with advances and empty pushes between."""
    advancing = rng.choice((0.0, 0.0, 0.2))
    for number, batch in enumerate(batches):
        names = rng.sample(sorted(batch), len(batch))
        if len(names) > 1 and rng.random() < 0.2:
            yield Push({names[0]: batch[names[0]]})
            names = names[1:]
        yield Push({name: batch[name] for name in names})
        if rng.random() < 0.05:
            yield Push({})
        if rng.random() < advancing:
            tick = scale.start + scale.ticks * number // len(batches)
            value = EPOCH + datetime.timedelta(seconds=tick) if scale.unit else tick
            yield Advance(rng.choice(streams).name, value)


def draw_table(rng: random.Random, scale: StormScale) -> pa.Table:
    """A static table with up to two rows per key."""
    keys = [key for key in range(min(scale.keys, 50)) for _ in range(rng.choice((0, 1, 1, 1, 2)))]
    return pa.table(
        {"x": pa.array(keys, pa.int64()), "name": pa.array([f"row {i}" for i in range(len(keys))], pa.string())}
    )
