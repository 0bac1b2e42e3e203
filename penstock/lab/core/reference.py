"""The references of the engine: a join written as one compiled loop, and DuckDB over the whole history.

Both compute exactly the join of `KeyedStreams` and materialise its rows, as the engine does.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.lab.database import load_database
from penstock.lab.workloads import Integers, KeyedStreams
from penstock.state import compile_kernel


class CompiledJoin:
    """A symmetric hash join of n streams, written by hand for one key and one window, compiled as one loop.

    The query is fixed at compile time. There is no plan, no interning, no late rows and no second query: the loop is a
    bound for comparison, not a replacement of the engine. State for `capacity` rows per stream is allocated at the
    start; expired rows stay at the end of their chains.
    """

    def __init__(self, streams: KeyedStreams, capacity: int) -> None:
        self.streams = streams
        self._mask = (1 << max(4, (2 * streams.keys - 1).bit_length())) - 1
        self._heads = np.full((streams.ways, self._mask + 1), -1, np.int64)
        self._rows = np.empty((streams.ways, capacity, 4), np.int64)  # ts, key, payload, next older row of the chain
        self._filled = np.zeros(streams.ways, np.int64)

    def push(self, tables: Mapping[str, pa.Table]) -> Integers:
        """The results of one batch, a row each: the key and the payload of every stream."""
        columns = [_to_integers(tables[name]) for name in self.streams.names]
        batch = np.concatenate(columns)
        owner = np.repeat(np.arange(self.streams.ways), [len(column) for column in columns])
        order = np.argsort(batch[:, 0], kind="stable")
        state = (self._heads, self._rows, self._filled, self._mask)
        results: Integers = _join(batch, owner, order, *state, self.streams.window)
        return results


def _to_integers(table: pa.Table) -> Integers:
    columns = [table.column(name).cast(pa.int64()).to_numpy() for name in ("ts", "k", "v")]
    return np.stack(columns, axis=1)


@compile_kernel
def _join(
    batch: Integers,
    owner: Integers,
    order: Integers,
    heads: Integers,
    rows: Integers,
    filled: Integers,
    mask: int,
    window: int,
) -> Integers:  # pragma: no cover - compiled
    ways = heads.shape[0]
    found = np.empty((ways, 64), np.int64)  # payloads that match, per stream
    counts = np.empty(ways, np.int64)
    cursor = np.empty(ways, np.int64)
    out = np.empty((max(1024, len(batch)), ways + 1), np.int64)
    emitted = 0
    for position in order:
        ts, key, payload = batch[position]
        own = owner[position]
        slot = ((key * -7046029254386353131) >> 20) & mask
        total = 1
        for stream in range(ways):
            if stream == own:
                found[stream, 0] = payload
                counts[stream] = 1
                continue
            count = 0
            row = heads[stream, slot]
            while row >= 0 and rows[stream, row, 0] > ts - window:
                if rows[stream, row, 1] == key:
                    if count == found.shape[1]:
                        wider = np.empty((ways, 2 * count), np.int64)
                        wider[:, :count] = found
                        found = wider
                    found[stream, count] = rows[stream, row, 2]
                    count += 1
                row = rows[stream, row, 3]
            counts[stream] = count
            total *= count
            if total == 0:
                break
        if total > 0:
            if emitted + total > len(out):
                longer = np.empty((2 * (emitted + total), ways + 1), np.int64)
                longer[:emitted] = out[:emitted]
                out = longer
            cursor[:] = 0
            for _ in range(total):
                out[emitted, 0] = key
                for stream in range(ways):
                    out[emitted, stream + 1] = found[stream, cursor[stream]]
                emitted += 1
                for stream in range(ways):  # the next combination: an odometer over the matches
                    cursor[stream] += 1
                    if cursor[stream] < counts[stream]:
                        break
                    cursor[stream] = 0
        row = filled[own]
        rows[own, row, 0] = ts
        rows[own, row, 1] = key
        rows[own, row, 2] = payload
        rows[own, row, 3] = heads[own, slot]
        heads[own, slot] = row
        filled[own] = row + 1
    return out[:emitted]


class BatchDatabase:
    """DuckDB with two threads over the whole history. Loading the tables is not measured."""

    def __init__(self, streams: KeyedStreams, tables: Mapping[str, pa.Table]) -> None:
        self.streams = streams
        self._duckdb = load_database(tables)

    def join(self) -> pa.Table:
        result: pa.Table = self._duckdb.sql(self.streams.sql).to_arrow_table()
        return result

    def close(self) -> None:
        self._duckdb.close()
