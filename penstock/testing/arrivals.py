"""Random rows and the order in which they arrive."""

from __future__ import annotations

import datetime
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from penstock.cql import Stream
from penstock.testing.case import Advance, Push, Step
from penstock.testing.row_functions import EPOCH

COLUMN_TYPES: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "x": pa.int64(),
    "y": pa.int32(),
    "z": pa.int64(),
    "v": pa.float64(),
    "s": pa.string(),
    "d": pa.decimal128(10, 2),
    "dt": pa.date32(),
    "b": pa.bool_(),
}


@dataclass(frozen=True)
class ValueGenerator:
    """How column values are drawn: `domain` distinct values for each type, NULL with probability `nulls`."""

    domain: int
    nulls: float
    offset: int = 0  # added to the 64-bit integers: negative, or large enough for overflows
    nan: float = 0.0

    def draw(self, rng: random.Random, name: str) -> Any:
        if rng.random() < self.nulls:
            return None
        value = rng.randrange(self.domain)
        if name == "v":
            if rng.random() < self.nan:
                return rng.choice((float("nan"), -0.0, float("inf")))
            return float(value + self.offset) if rng.random() < 0.8 else value / 2
        return {
            "x": value + self.offset,
            "y": value,
            "z": value + self.offset,
            "s": f"k{value}" if value else "",
            "d": Decimal(value) / 2,
            "dt": datetime.date(2026, 1, 1) + datetime.timedelta(days=value),
            "b": value % 2 == 0,
        }[name]

    def draw_rows(self, rng: random.Random, names: Sequence[str], count: int) -> list[dict[str, Any]]:
        """`count` rows with these columns; `id` numbers them."""
        return [{name: i if name == "id" else self.draw(rng, name) for name in names} for i in range(count)]


@dataclass(frozen=True)
class ArrivalTiming:
    """How the rows of a stream are spread over time and pushes."""

    tick: int  # the unit of time, in units of the time column
    start: int
    late_share: float = 0.0  # the share of rows that are delayed so long that they can be late
    null_time_share: float = 0.0  # the share of rows without a time


@dataclass(frozen=True)
class Arrival:
    """One row, its time, and the moment at which it reaches the engine."""

    row: dict[str, Any]
    time: int | None
    at: float


def draw_arrivals(rng: random.Random, stream: Stream, rows: list[dict[str, Any]], pace: ArrivalTiming) -> list[Arrival]:
    """The rows with times, in an order of arrival within the declared lateness, except for delayed rows."""
    gaps = rng.choice(((0, 0, 1), (0, 1), (0, 0, 0, 2), (1,), (0,) * 9 + (4,)))
    time, found = pace.start, []
    for row in rows:
        time += pace.tick * rng.choice(gaps)
        at: float = time + rng.randint(0, stream.lateness)
        if rng.random() < pace.late_share:
            at += pace.tick * rng.randint(1, 20)
        known = None if rng.random() < pace.null_time_share else time
        found.append(Arrival({**row, stream.time: to_time_value(known, stream)}, known, at))
    return sorted(found, key=lambda arrival: arrival.at)


def to_time_value(time: int | None, stream: Stream) -> Any:
    """A time as a value of the stream's time column."""
    if time is None or not pt.is_timestamp(stream.time_type):
        return time
    return EPOCH + datetime.timedelta(microseconds=time)


def build_steps(
    rng: random.Random, streams: Sequence[Stream], flow: Mapping[str, list[Arrival]], pace: ArrivalTiming
) -> tuple[Step, ...]:
    """The arrivals as pushes of any size, with advances and empty pushes between them."""
    chunks = [
        (when, stream, part)
        for stream in streams
        for when, part in _split_chunks(rng, flow[stream.name], streams, stream)
    ]
    chunks.sort(key=lambda chunk: chunk[0])
    left = {stream.name: list(flow[stream.name]) for stream in streams}
    advancing = {stream.name: rng.choice((0.0, 0.0, 0.3, 1.0)) for stream in streams}
    together, empty = rng.choice((0.0, 0.5, 0.9)), rng.choice((0.0, 0.0, 0.1))
    found: list[Step] = []
    push: dict[str, pa.Table] = {}
    for _, stream, part in chunks:
        if push and (stream.name in push or rng.random() >= together):
            found.append(Push(push))
            push = {}
            found += _draw_advances(rng, streams, left, advancing, pace)
            if rng.random() < empty:
                found.append(Push(rng.choice(({}, {stream.name: stream.schema.empty_table()}))))
        left[stream.name] = left[stream.name][len(part) :]
        shuffled = rng.sample(part, len(part))
        push[stream.name] = pa.Table.from_pylist([arrival.row for arrival in shuffled], schema=stream.schema)
    found.append(Push(push))
    return (*found, *_draw_advances(rng, streams, left, advancing, pace))


def _split_chunks(
    rng: random.Random, flow: list[Arrival], streams: Sequence[Stream], stream: Stream
) -> list[tuple[float, list[Arrival]]]:
    """The rows of one stream in runs, each with the moment of its push."""
    largest = rng.choice((1, 3, 10, len(flow) or 1))
    found, at = [], 0
    while at < len(flow):
        size = rng.randint(1, largest)
        found.append(flow[at : at + size])
        at += size
    order = rng.choice(("time", "time", "random", "one after the other"))
    if order == "time" or not flow:
        return [(part[-1].at, part) for part in found]
    first, last = flow[0].at, flow[-1].at
    if order == "random":
        return list(zip(sorted(rng.uniform(first, last) for _ in found), found, strict=True))
    return [(last + 1 if stream is streams[-1] else first, part) for part in found]


def _draw_advances(
    rng: random.Random,
    streams: Sequence[Stream],
    left: Mapping[str, list[Arrival]],
    advancing: Mapping[str, float],
    pace: ArrivalTiming,
) -> list[Step]:
    """Advances that hold: up to the earliest row that has not arrived, or somewhat further if there is none."""
    found: list[Step] = []
    for stream in streams:
        if rng.random() < advancing[stream.name]:
            coming = [arrival.time for arrival in left[stream.name] if arrival.time is not None]
            bound = min(coming) if coming else pace.start + pace.tick * rng.randint(0, 50)
            value = to_time_value(bound - pace.tick * rng.choice((0, 0, 1, 5)), stream)
            found.append(Advance(stream.name, value))
    return found
