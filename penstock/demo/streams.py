"""The five streams of the demo on Spark: measurements of the rooms of a depot, and reads of the tags of goods.

The rows of a minute depend only on the stream and the number of the minute. In the rush hour thirty times as many tags
are read. Keep the imports of this module light: Spark starts a process for each stream.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

SECOND = 1_000_000
START = 1_767_225_600 * SECOND  # 2026-01-01 00:00:00
MINUTE = 60 * SECOND
ROOMS = 24
TAGS = 2000
RUSH_MINUTES = range(11, 16)
"""The minutes of the rush hour."""
STREAMS = {
    "temperature": (3000, {"room": pa.int32(), "celsius": pa.float64()}),
    "humidity": (3000, {"room": pa.int32(), "percent": pa.float64()}),
    "power": (1500, {"room": pa.int32(), "watts": pa.float64()}),
    "reader": (1200, {"room": pa.int32(), "tag": pa.int32()}),
    "gate": (600, {"dock": pa.int32(), "tag": pa.int32()}),
}
"""Rows per minute, and the columns besides `ts`."""


def build_schema(stream: str) -> pa.Schema:
    return pa.schema([("ts", pa.timestamp("us")), *STREAMS[stream][1].items()])


def build_rooms() -> pa.Table:
    number = np.arange(ROOMS)
    return pa.table({
        "room": pa.array(number, pa.int32()),
        "name": [f"room {room:02}" for room in number],
        "warmest": np.where(number % 4 == 0, -15.0, 6.0),
    })  # fmt: skip


def build_generator(stream: str) -> Callable[[int], pa.Table]:
    """The function that generates the rows of a stream from the number of a minute."""
    return partial(generate_minute, stream)


def generate_minute(stream: str, number: int) -> pa.Table:
    """A minute of a stream. One room after the other is open: it is warm and damp, and its cooling needs full power."""
    rows, columns = STREAMS[stream]
    if stream == "reader" and number in RUSH_MINUTES:
        rows *= 30
    rng = np.random.default_rng((2026, list(STREAMS).index(stream), number))
    begin = START + number * MINUTE
    times = np.sort(rng.integers(begin, begin + MINUTE, rows))
    open_room = number % ROOMS
    first = next(iter(columns))
    place = rng.integers(0, ROOMS if first == "room" else 8, rows)
    if stream in ("temperature", "humidity", "power"):
        usual, more, spread = {"temperature": (3.0, 4.5, 0.6), "humidity": (78, 14, 3), "power": (400, 900, 60)}[stream]
        level = np.where(place % 4 == 0, -18.0, usual) if stream == "temperature" else np.full(rows, float(usual))
        value: NDArray[np.float64] = level + np.where(place == open_room, more, 0.0) + rng.normal(0, spread, rows)
        values = pa.array(np.round(value, 2))
    else:
        values = pa.array(rng.integers(0, TAGS, rows), pa.int32())
    arrays = [pa.array(times).cast(pa.timestamp("us")), pa.array(place, pa.int32()), values]
    return pa.Table.from_arrays(arrays, schema=build_schema(stream))
