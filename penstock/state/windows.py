"""Windows as validity intervals: when a tuple dies.

Law: a tuple of time t lives in [t, dies). RANGE w: t + w; NOW: t + 1; UNBOUNDED and static rows: FOREVER; ROWS n: the
time of the n-th later tuple of its partition, FOREVER until that tuple has arrived; a row of a relation: the time of
the change that ends it, FOREVER until that change has arrived.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.state.alloc import allocate
from penstock.state.code_set import Mask
from penstock.state.columns import ring_resize, ring_take, ring_write
from penstock.state.kernels import ALWAYS, FOREVER, I32, I64, NONE, rows_window_append, rows_window_relink
from penstock.state.key_space import KeySpace
from penstock.state.maintenance import Maintenance
from penstock.state.number_map import NumberMap
from penstock.state.time_kernels import add_lifetime


def compute_expirations(times: I64, length: int | None) -> I64:
    """When tuples of a time-based window die, at most FOREVER."""
    if length is None:
        return np.full(times.size, FOREVER)
    dies = allocate(times.size, np.int64)
    add_lifetime(times, min(length, int(FOREVER)), dies)
    return dies


class LateEnds(ABC):
    """How the rows of a leaf end that do not know their end at birth. The leaf stores them under ascending ids."""

    @property
    @abstractmethod
    def is_fifo(self) -> bool:
        """Whether rows die in the order of their ids."""

    @abstractmethod
    def resize(self, capacity: int, base: int, end: int) -> None:
        """The rings of the leaf have another capacity and hold the rows from `base` to before `end`."""

    @abstractmethod
    def renumber(self, kept: I64, first: int, living: Mask) -> None:
        """The rows `kept` become first, first + 1, …; all others are removed. `living`: which have not ended."""

    @abstractmethod
    def keep_only(self, ids: I64) -> None:
        """Only these rows are still needed; the end of any other one is not recorded."""


class AnnouncedEnds(LateEnds):
    """The rows of a relation: a later change with the number of a row ends it."""

    is_fifo = False

    def __init__(self, maintenance: Maintenance) -> None:
        self._rows = NumberMap(maintenance)
        self._numbers: I64 = np.zeros(maintenance.capacity, np.int64)

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + self._numbers.nbytes

    def add_rows(self, numbers: I64, first: int) -> None:
        """Rows with these numbers are stored as first, first + 1, …"""
        ring_write(self._numbers, first, numbers)
        self._rows.put(numbers, np.arange(first, first + numbers.size))

    def end_rows(self, numbers: I64, times: I64, row_dies: I64) -> None:
        """Rows end; the leaf may not store some of them."""
        ids = self._rows.pop(numbers)
        stored = ids >= 0
        row_dies[ids[stored] & (row_dies.size - 1)] = times[stored]

    def resize(self, capacity: int, base: int, end: int) -> None:
        self._numbers = ring_resize(self._numbers, capacity, base, end)

    def renumber(self, kept: I64, first: int, living: Mask) -> None:  # noqa: ARG002 - it knows which have ended
        numbers = ring_take(self._numbers, kept)
        mapped = self._rows.pop(numbers) >= 0  # a row that has ended may not be purged yet
        self._rows.clear()
        ring_write(self._numbers, first, numbers)
        self._rows.put(numbers[mapped], first + np.flatnonzero(mapped))

    def keep_only(self, ids: I64) -> None:
        numbers = ring_take(self._numbers, ids)
        mapped = self._rows.pop(numbers) >= 0
        self._rows.clear()
        self._rows.put(numbers[mapped], ids[mapped])


class RowsWindow(LateEnds):
    """The counts of [ROWS n] and [PARTITION BY k ROWS n] for the rows of a leaf.

    A tuple counts whether or not its leaf stores it. Stored rows that are alive form a queue per partition.
    """

    def __init__(self, size: int, partition_types: Sequence[pa.DataType], maintenance: Maintenance) -> None:
        capacity = maintenance.capacity
        self.size = size
        """How many tuples of a partition are valid."""
        self._keys = KeySpace(partition_types, maintenance, null_is_value=True)
        self._counts: I64 = np.zeros(capacity, np.int64)
        self._oldest: I64 = np.full(capacity, NONE, np.int64)
        self._newest: I64 = np.full(capacity, NONE, np.int64)
        self._partitions: I32 = np.zeros(capacity, np.int32)
        self._position: I64 = np.zeros(capacity, np.int64)
        self._successor: I64 = np.zeros(capacity, np.int64)
        self._newest_tuples: tuple[I32, I64] = np.empty(0, np.int32), np.empty(0, np.int64)
        """The partitions and times of the tuples that were counted last."""

    @property
    def is_fifo(self) -> bool:
        """Whether rows die in the order of their ids."""
        return not self._keys.full_key

    def encode_partitions(self, values: Sequence[pa.Array], rows: int) -> I32:
        """The partition of every tuple. NULL is a value, as in GROUP BY."""
        codes = self._keys.encode_columns(values, rows, insert=True)
        self._reserve(int(codes.max(initial=0)) + 1)
        return codes

    def add_tuples(self, parts: I32, times: I64, stored: I64, row_dies: I64) -> None:
        """Count tuples in order; `stored` is the row id of each, NONE if the leaf does not store it."""
        kept = stored >= 0
        rows = stored[kept]
        self._newest_tuples = parts, times
        if rows.size:
            ring_write(self._partitions, int(rows[0]), parts[kept])
        rows_window_append(
            parts, times, stored, self.size, self._counts, self._oldest, self._newest,
            self._partitions.size - 1, self._position, self._successor, row_dies,
        )  # fmt: skip

    def resize(self, capacity: int, base: int, end: int) -> None:
        self._partitions = ring_resize(self._partitions, capacity, base, end)
        self._position = ring_resize(self._position, capacity, base, end)
        self._successor = ring_resize(self._successor, capacity, base, end)

    def renumber(self, kept: I64, first: int, living: Mask) -> None:
        mask = self._partitions.size - 1
        self._relink(self._partitions[kept & mask], self._position[kept & mask], first, living)

    def count_newer(self, ids: I64) -> I64:
        """How many tuples of its partition arrived after each row: a snapshot saves this."""
        at = ids & (self._partitions.size - 1)
        ages: I64 = self._counts[self._partitions[at]] - self._position[at] - 1
        return ages

    def count_newer_until(self, ids: I64, times: I64) -> I64:
        """How many tuples of its partition arrived after each row by a time, which earlier batches do not exceed."""
        ages = self.count_newer(ids)
        parts, arrived = self._newest_tuples
        if not arrived.size:
            return ages
        if self.is_fifo:
            return ages - (arrived.size - np.searchsorted(arrived, times, side="right"))
        instants, places = np.unique(arrived, return_inverse=True)
        keys = np.sort(parts.astype(np.int64) * (instants.size + 1) + places)  # by partition, then by time
        ends = self._partitions[ids & (self._partitions.size - 1)].astype(np.int64) * (instants.size + 1)
        until = ends + np.searchsorted(instants, times, side="right")
        later: I64 = np.searchsorted(keys, ends + instants.size) - np.searchsorted(keys, until)
        return ages - later

    def set_size(self, size: int, ids: I64, row_dies: I64) -> None:
        """Let fewer or more tuples be valid. `ids` are the living rows; those that leave the window die at once."""
        self.size = size
        stays = self.count_newer(ids) < size
        row_dies[ids[~stays] & (row_dies.size - 1)] = ALWAYS
        self.keep_only(ids[stays])

    def restore(self, parts: I32, ages: I64, first: int, living: Mask) -> None:
        """Enter rows of a snapshot as first, first + 1, … `living`: which have not ended."""
        self._relink(parts, self._counts[parts] - ages - 1, first, living)

    def _relink(self, parts: I32, position: I64, first: int, living: Mask) -> None:
        ring_write(self._partitions, first, parts)
        ring_write(self._position, first, position)
        self.keep_only(first + np.flatnonzero(living))

    def keep_only(self, ids: I64) -> None:
        """Keep only these rows, in order, in the queues: rows that have not ended, so that each ends once."""
        self._oldest.fill(NONE)
        self._newest.fill(NONE)
        mask = self._partitions.size - 1
        rows_window_relink(
            self._partitions[ids & mask], ids, self._counts, self.size, self._oldest, self._newest,
            mask, self._position, self._successor,
        )  # fmt: skip

    def _reserve(self, partitions: int) -> None:
        if partitions > self._counts.size:
            more = (1 << (partitions - 1).bit_length()) - self._counts.size
            self._counts = np.concatenate([self._counts, np.zeros(more, np.int64)])
            self._oldest = np.concatenate([self._oldest, np.full(more, NONE, np.int64)])
            self._newest = np.concatenate([self._newest, np.full(more, NONE, np.int64)])
