"""Earlier rows of a sequence that a later one can still pair with.

Law: rows keep their order. A row leaves when it has expired, has paired (CHRONICLE), or expires before a newer one of
its key (RECENT without further predicates). State: rows in growing columns, a queue per key, compacted when half of the
rows are gone, so that the cost is O(1) a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.ops.kernels import (
    append_to_queues,
    compute_sequence_limits,
    find_sequence_candidates,
    match_sequence,
    remove_from_queues,
)
from penstock.state import I32, I64, NONE, U8, KeySpace, Maintenance, make_ring_column


class SequenceBuffer:
    """Rows with their times, numbers, expirations, keys and columns."""

    def __init__(
        self, keys: Sequence[pa.DataType], columns: Mapping[str, pa.DataType], maintenance: Maintenance
    ) -> None:
        self._maintenance = maintenance
        self._types = dict(columns)
        self._key_space = KeySpace(keys, maintenance)
        self._head: I64 = np.full(maintenance.capacity, NONE, np.int64)
        self._tail = self._head.copy()
        self._compact_at = float(maintenance.compact_rows)
        self._clear(maintenance.capacity)

    def _clear(self, capacity: int) -> None:
        self._size = self._queued_until = 0
        self._times, self._numbers, self._dies, self._older, self._newer = (
            np.zeros(capacity, np.int64) for _ in range(5)
        )
        self._codes: I32 = np.zeros(capacity, np.int32)
        self._gone: U8 = np.zeros(capacity, np.uint8)
        self._columns = {name: make_ring_column(type_, capacity) for name, type_ in self._types.items()}
        self._head.fill(NONE)
        self._tail.fill(NONE)

    @property
    def _mask(self) -> int:
        return self._times.size - 1

    def __len__(self) -> int:
        return self._size - int(self._gone[: self._size].sum())

    # ── adding rows ──────────────────────────────────────────────────────────────────────────────────────────────

    def encode_keys(self, values: Sequence[pa.Array], rows: int, *, insert: bool) -> I32:
        """The code of each key; NONE if it has a NULL, or, without `insert`, if it is not known."""
        return self._key_space.encode_columns(values, rows, insert=insert)

    def append(self, times: I64, numbers: I64, dies: I64, codes: I32, columns: Mapping[str, pa.Array]) -> None:
        """Add rows, in their order, after all others. A row without a key code can match nothing and is not kept."""
        if (codes < 0).any():
            kept = np.flatnonzero(codes >= 0)
            times, numbers, dies, codes = times[kept], numbers[kept], dies[kept], codes[kept]
            columns = {name: column.take(pa.array(kept)) for name, column in columns.items()}
        first, end = self._size, self._size + times.size
        if end > self._times.size:
            self._resize(1 << (end - 1).bit_length())
        self._times[first:end], self._numbers[first:end], self._dies[first:end] = times, numbers, dies
        self._codes[first:end], self._gone[first:end] = codes, 0
        if times.size:
            for name, column in self._columns.items():
                column.append(0, first, columns[name])
        self._size = end
        bound = self._key_space.code_limit(self._key_space.full_key)
        if bound > self._head.size:
            more = np.full((1 << (bound - 1).bit_length()) - self._head.size, NONE, np.int64)
            self._head, self._tail = np.concatenate([self._head, more]), np.concatenate([self._tail, more])

    def _resize(self, capacity: int) -> None:
        more = capacity - self._times.size
        self._times, self._numbers, self._dies, self._older, self._newer = (
            np.concatenate([array, np.zeros(more, np.int64)])
            for array in (self._times, self._numbers, self._dies, self._older, self._newer)
        )
        self._codes = np.concatenate([self._codes, np.zeros(more, np.int32)])
        self._gone = np.concatenate([self._gone, np.zeros(more, np.uint8)])
        for column in self._columns.values():
            column.resize(capacity, 0, self._size)

    # ── pairing rows ─────────────────────────────────────────────────────────────────────────────────────────────

    def find_limits(self, times: I64, numbers: I64, tie: int) -> I64:
        """For every later row, the id after the last earlier row (see `compute_sequence_limits`)."""
        out = np.empty(times.size, np.int64)
        new = slice(self._queued_until, self._size)
        compute_sequence_limits(self._times[new], self._numbers[new], self._queued_until, times, numbers, tie, out)
        return out

    def match(self, wanted: I32, times: I64, limits: I64, *, recent: bool) -> I64:
        """The row that each later row pairs with, or NONE."""
        out = np.empty(times.size, np.int64)
        self._queued_until = match_sequence(
            recent, wanted, times, limits, self._queued_until, self._codes, self._dies, self._mask,
            self._head, self._tail, self._older, self._newer, self._gone, out,
        )  # fmt: skip
        return out

    def iter_candidates(self, wanted: I32, times: I64, limits: I64, *, recent: bool) -> Iterable[tuple[I64, I64]]:
        """Pairs (later row, row) whose predicates are not tested yet, in the order in which to test them.

        Call `remove` with the rows that paired before you take the next pairs.
        """
        end = int(limits[-1])
        append_to_queues(
            self._queued_until, end, self._codes, self._mask, self._head, self._tail, self._older, self._newer
        )
        self._queued_until = max(self._queued_until, end)
        room = 2 * self._size + self._maintenance.block
        right, left = np.empty(room, np.int64), np.empty(room, np.int64)
        start = 0
        while start < times.size:
            found, start = find_sequence_candidates(
                recent, wanted, times, limits, start, self._size, self._dies, self._mask,
                self._head, self._tail, self._older, self._newer, right, left,
            )  # fmt: skip
            yield right[:found], left[:found]

    @property
    def gone(self) -> U8:
        """One byte a row: whether it was removed."""
        return self._gone

    def remove(self, rows: I64) -> None:
        """Remove rows that paired."""
        self._gone[rows] = 1
        remove_from_queues(rows, self._codes, self._mask, self._head, self._tail, self._older, self._newer)

    def dies(self, rows: I64) -> I64:
        return self._dies[rows]

    def take(self, name: str, rows: I64) -> pa.Array:
        return self._columns[name].take(rows)

    # ── removing rows ────────────────────────────────────────────────────────────────────────────────────────────

    def purge(self, now: int) -> None:
        """Free rows that were removed, or have expired at `now`, if there can be enough of them."""
        if self._size < self._compact_at:
            return
        kept = np.flatnonzero((self._gone[: self._size] == 0) & (self._dies[: self._size] > now))
        queued = int(np.searchsorted(kept, self._queued_until))
        columns = {name: column.take(kept) for name, column in self._columns.items()}
        rows = self._times[kept], self._numbers[kept], self._dies[kept], self._codes[kept]
        self._clear(max(self._maintenance.capacity, 1 << (2 * kept.size).bit_length()))
        self.append(*rows, columns)
        append_to_queues(0, queued, self._codes, self._mask, self._head, self._tail, self._older, self._newer)
        self._queued_until = queued
        self._compact_at = max(self._maintenance.compact_rows, self._maintenance.regrowth * kept.size)
        self._key_space.recycle(lambda key: (self._codes[: self._size],) if key == self._key_space.full_key else ())

    def dump(self) -> pa.Table:
        """The rows that can still pair, without their keys."""
        kept = np.flatnonzero(self._gone[: self._size] == 0)
        columns = {
            "_time": pa.array(self._times[kept]),
            "_number": pa.array(self._numbers[kept]),
            "_dies": pa.array(self._dies[kept]),
        }
        return pa.table(columns | {f"column {name}": column.take(kept) for name, column in self._columns.items()})
