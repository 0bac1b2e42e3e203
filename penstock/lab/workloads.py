"""Seeded streams for measurements. The parts of a history are generated separately: no run keeps all of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.engine import Engine

SECOND = 1_000_000
"""Microseconds of a timestamp."""

Integers = NDArray[np.int64]
"""Times, keys or ids."""

PushTables = dict[str, pa.Table]
"""The rows of one push, by stream."""


@dataclass(frozen=True)
class KeyedStreams:
    """Streams of (ts, k, v) that join on one uniformly drawn key, all with the same RANGE window.

    Each stream has `rows` rows in `span` units of time: microseconds of a timestamp, or ticks of an integer.
    """

    ways: int
    rows: int
    span: int
    keys: int
    window: int
    ticks: bool = False
    seed: int = 7

    @property
    def names(self) -> tuple[str, ...]:
        return tuple("abcdefgh"[: self.ways])

    @property
    def schema(self) -> pa.Schema:
        time = pa.int64() if self.ticks else pa.timestamp("us")
        return pa.schema([("ts", time), ("k", pa.int64()), ("v", pa.int64())])

    @property
    def cql(self) -> str:
        """The continuous query: the payloads of all streams, joined on the key."""
        size = f"{self.window}" if self.ticks else f"{self.window // SECOND} SECONDS"
        sources = ", ".join(f"{name} [RANGE {size}]" for name in self.names)
        return f"SELECT {self._items} FROM {sources} WHERE {self._same_key}"

    @property
    def sql(self) -> str:
        """The same join over whole tables with integer times: tuples are pairwise less than a window apart."""
        near = " AND ".join(f"{x}.ts < {y}.ts + {self.window}" for x in self.names for y in self.names if x != y)
        return f"SELECT {self._items} FROM {', '.join(self.names)} WHERE {self._same_key} AND {near}"

    @property
    def _items(self) -> str:
        return ", ".join(["a.k", *(f"{name}.v AS v{name}" for name in self.names)])

    @property
    def _same_key(self) -> str:
        return " AND ".join(f"{x}.k = {y}.k" for x, y in zip(self.names, self.names[1:], strict=False))

    def build_engine(self) -> Engine:
        """A new engine with the streams and the query `q`."""
        engine = Engine()
        for name in self.names:
            engine.stream(name, self.schema, time="ts")
        engine.query("q", self.cql)
        return engine

    def generate_between(self, begin: int, end: int) -> PushTables:
        """The rows of every stream with begin <= ts < end, sorted by time. The seed depends on begin and end."""
        return {name: self._generate_table(order, begin, end) for order, name in enumerate(self.names)}

    def _generate_table(self, order: int, begin: int, end: int) -> pa.Table:
        rng = np.random.default_rng((self.seed, order, begin, end))
        first, last = (time * self.rows // self.span for time in (begin, end))
        columns = [
            pa.array(np.sort(rng.integers(begin, end, last - first))).cast(self.schema.field("ts").type),
            pa.array(rng.integers(0, self.keys, last - first)),
            pa.array(np.arange(first, last)),
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def generate_pushes(self, parts: int, history: int = 1) -> Iterator[PushTables]:
        """`history` histories one after the other, in pushes of span / parts each, generated one at a time."""
        length = self.span // parts
        return (self.generate_between(number * length, (number + 1) * length) for number in range(parts * history))


def concat_pushes(pushes: Iterable[PushTables]) -> PushTables:
    """The rows of all pushes in one table for each stream, as a batch engine reads them."""
    pushes = list(pushes)
    return {name: pa.concat_tables(push[name] for push in pushes).combine_chunks() for name in pushes[0]}


def has_same_rows(one: pa.Table, other: pa.Table) -> bool:
    """Whether two tables have the same rows in any order."""
    order = [(name, "ascending") for name in one.column_names]
    return bool(one.sort_by(order).equals(other.sort_by(order)))


def count_rows(tables: Iterable[pa.Table]) -> int:
    return sum(table.num_rows for table in tables)


def build_w3(rows: int = 300_000, keys: int = 10_000, seconds: int = 6000) -> KeyedStreams:
    """W3: three streams with windows of 100 seconds, the workload that the speed of the engine is judged by."""
    return KeyedStreams(3, rows, seconds * SECOND, keys, 100 * SECOND)


def build_steady(ways: int, window_rows: int) -> KeyedStreams:
    """One tuple per tick and stream, windows of `window_rows` tuples, as many keys: a probe finds about one match."""
    return KeyedStreams(ways, window_rows, window_rows, window_rows, window_rows, ticks=True)
