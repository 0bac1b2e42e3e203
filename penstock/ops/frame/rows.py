"""The rows that frames can still read, in rings, and the partitions that link them.

Law: a row has an id until the rings are rebuilt; then the living rows get new ids in the same order. State: the rows
of all frames. Cost: O(1) a row, amortised: the rings are rebuilt when they are full, with space for as many rows again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.ops.row_groups import RowGroups, grow
from penstock.state import I32, I64, NONE, U8, Maintenance, make_ring_column, ring_read, ring_take, ring_write


class Partitions:
    """The partitions of one window: codes for their keys, and the rows of each as a list; see `kernels`."""

    def __init__(self, types: Sequence[pa.DataType], maintenance: Maintenance) -> None:
        self._groups = RowGroups(types, maintenance)
        self.heads, self.entries, self.tails, self.lasts = (np.full(1, NONE, np.int64) for _ in range(4))
        self.counts: I64 = np.zeros(1, np.int64)
        self.positions: I64 = np.zeros(1, np.int64)
        """How many rows each partition has had."""

    @property
    def bound(self) -> int:
        return self._groups.bound

    def encode(self, keys: Sequence[pa.Array], rows: int) -> I32:
        """The codes of rows; codes of partitions without rows are used again."""
        self._groups.recycle(self.counts)
        codes = self._groups.encode(keys, rows)
        if self.bound > self.heads.size:
            size = 1 << (self.bound - 1).bit_length()
            more = np.full(size - self.heads.size, NONE, np.int64)
            self.heads, self.entries, self.tails, self.lasts = (
                np.concatenate([each, more]) for each in (self.heads, self.entries, self.tails, self.lasts)
            )
            self.counts, self.positions = grow(self.counts, size), grow(self.positions, size)
        return codes

    def decode(self, codes: I64) -> list[pa.Array]:
        return self._groups.decode(codes.astype(np.int32))

    def empty(self) -> None:
        """No partition has rows."""
        for rows in (self.heads, self.entries, self.tails, self.lasts):
            rows.fill(NONE)
        self.counts.fill(0)

    def count_used(self) -> int:
        return int(np.count_nonzero(self.counts))

    def renumber(self, new: I64, base: int) -> None:
        """Rows have new ids: row base + i is now new[i]."""
        for rows in (self.heads, self.entries, self.tails, self.lasts):
            known = np.flatnonzero(rows >= base)
            found = new[rows[known] - base]
            rows.fill(NONE)
            rows[known] = found


class FrameRows:
    """Rows of all partitions with the columns that functions read. `places` order them inside a partition.

    `ages`: whether places are times, so that rows are found by their age.
    """

    def __init__(self, types: Mapping[str, pa.DataType], maintenance: Maintenance, *, ages: bool) -> None:
        self._types = dict(types)
        self._has_ages = ages
        self._least = maintenance.capacity
        self.base = self.end = 0
        self._allocate(self._least)
        self._ages: list[tuple[int, int]] = []
        """For each batch, the id behind its last row, and its last place."""

    def _allocate(self, capacity: int) -> None:
        self.places, self.codes, self.numbers, self.links = (np.zeros(capacity, np.int64) for _ in range(4))
        self.alive: U8 = np.zeros(capacity, np.uint8)
        self._columns = {name: make_ring_column(kind, capacity) for name, kind in self._types.items()}

    @property
    def names(self) -> list[str]:
        return list(self._types)

    def __len__(self) -> int:
        return int(np.count_nonzero(ring_read(self.alive, self.base, self.end)))

    def append(
        self, partitions: Partitions, codes: I64, places: I64, numbers: I64, columns: Mapping[str, pa.Array]
    ) -> int:
        """Store rows, not yet linked; returns the id of the first."""
        if self.end - self.base + codes.size > self.links.size:
            self._rebuild(partitions, codes.size)
        first = self.end
        for ring, values in ((self.places, places), (self.codes, codes), (self.numbers, numbers)):
            ring_write(ring, first, values)
        ring_write(self.alive, first, np.ones(codes.size, np.uint8))
        for name, column in self._columns.items():
            column.append(self.base, first, columns[name])
        self.end += codes.size
        if codes.size and self._has_ages:
            self._ages.append((self.end, int(places.max())))
        return first

    def take(self, name: str, rows: I64) -> pa.Array:
        return self._columns[name].take(rows)

    def list_living(self) -> I64:
        return self.base + np.flatnonzero(ring_read(self.alive, self.base, self.end))

    def pop_ages(self, limit: int) -> int:
        """The id behind the last row of the batches that are before a place."""
        done = 0
        while done < len(self._ages) and self._ages[done][1] < limit:
            done += 1
        stop = self._ages[done - 1][0] if done else self.base
        del self._ages[:done]
        return stop

    def free_until(self, row: int) -> None:
        """All rows before this one are dead."""
        self.base = max(self.base, row)

    def _rebuild(self, partitions: Partitions, more: int) -> None:
        """Keep the living rows only, with space for `more`."""
        kept, base = self.list_living(), self.base
        new = np.full(self.end - base, NONE, np.int64)
        new[kept - base] = np.arange(kept.size)
        links = ring_take(self.links, kept)
        links = np.where(links >= 0, new[np.maximum(links - base, 0)], NONE) if kept.size else links
        rings = [ring_take(ring, kept) for ring in (self.places, self.codes, self.numbers)]
        columns = {name: column.take(kept) for name, column in self._columns.items()}
        self._ages = [(int(np.searchsorted(kept, end)), last) for end, last in self._ages]
        self._allocate(max(self._least, 1 << (2 * (kept.size + more) - 1).bit_length()))
        for ring, values in zip((self.places, self.codes, self.numbers, self.links), (*rings, links), strict=True):
            ring_write(ring, 0, values)
        ring_write(self.alive, 0, np.ones(kept.size, np.uint8))
        for name, column in self._columns.items():
            column.append(0, 0, columns[name])
        self.base, self.end = 0, kept.size
        partitions.renumber(new, base)
