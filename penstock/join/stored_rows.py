"""The rows of a leaf in rings: birth, death, the code in every equality class, and the columns that are read above.

Law: rows have ascending ids, and those from `base` to before `end` are stored. A payload view may read the rings
instead of a copy, as long as its rows are stored under their ids; it is materialized before that ends, or keeps the
rings of before. A row before `base` can be read until rows are appended.

Cost: O(1) per row appended; a move or a change of capacity copies every stored row.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from copy import copy
from math import ceil
from typing import Protocol
from weakref import ref

import numpy as np
import pyarrow as pa

from penstock.join.row_kernels import raise_ages, read_rows, store_lifetimes
from penstock.state import (
    ALWAYS,
    I32,
    I64,
    Mask,
    NewFile,
    RingColumn,
    RowLines,
    Segment,
    SpilledColumn,
    allocate_lines,
    empty_codes,
    make_ring_column,
    ring_move,
    ring_parts,
    ring_read,
    ring_resize,
    ring_take,
    ring_write,
)

NO_TIMES: I64 = np.empty(0, np.int64)
_MAX_VIEWERS = 16
"""With more viewers than this, the oldest are materialized, because each is checked at every append."""


class ColumnViewer(Protocol):
    """A reader of some rows of a leaf that holds no copy of them."""

    def find_oldest(self, alias: str) -> int:
        """The smallest id of its rows."""

    def keep_rows(self, alias: str, former: StoredRows) -> None:
        """The rows of a leaf get other ids; `former` has them under their ids as long as it exists."""

    def materialize(self) -> None:
        """Copy everything that is still needed: the rows can no longer be read."""


class StoredRows:
    """Rows under ascending ids."""

    def __init__(self, schema: pa.Schema, columns: Iterable[str], classes: Iterable[int], capacity: int) -> None:
        self.base = 0
        self.end = 0
        self.capacity = capacity
        """The length of every ring, a power of two: row i lies at i & (capacity - 1)."""
        self.born: I64 = np.zeros(capacity, np.int64)
        self.dies: I64 = np.zeros(capacity, np.int64)
        self.columns: dict[str, RingColumn] = {
            name: make_ring_column(schema.field(name).type, capacity) for name in columns
        }
        self._codes = {id_: empty_codes(capacity) for id_ in classes}
        self._viewers: list[tuple[ref[ColumnViewer], str]] = []

    def __len__(self) -> int:
        return self.end - self.base

    @property
    def nbytes(self) -> int:
        columns = sum(column.nbytes for column in self.columns.values())
        codes = sum(ring.nbytes for ring in self._codes.values())
        return self.born.nbytes + self.dies.nbytes + columns + codes

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, born: I64, dies: I64 | int, codes: Mapping[int, I32], payload: Mapping[str, pa.Array]) -> RowLines:
        """Store rows as end, end + 1, …; the rings have space for them. `dies`: when they die, or how long they live.

        Returns what `read_span` gives for them.
        """
        first = self.end
        self.end += born.size
        if self._viewers:
            self._materialize_viewers(self.base)
        lines = allocate_lines(3, born.size)
        known, length = (NO_TIMES, dies) if isinstance(dies, int) else (dies, 0)
        store_lifetimes(born, known, length, first, self.born, self.dies, lines)
        for id_, ring in self._codes.items():
            ring_write(ring, first, codes[id_])
        for name, column in self.columns.items():
            column.append(self.base, first, payload[name])
        return lines

    def move(self, kept: I64) -> int:
        """Store some rows again as the next ones and drop all rows before them; returns the id of the first.

        Viewers can read the rows as they were: the former rings are not written to any more.
        """
        first = self.end
        viewers, self._viewers = self._viewers, []
        former = copy(self) if viewers else self
        for reference, alias in viewers:
            viewer = reference()
            if viewer is not None:
                viewer.keep_rows(alias, former)
        self.born, self.dies = ring_move(self.born, kept, first), ring_move(self.dies, kept, first)
        self._codes = {id_: ring_move(ring, kept, first) for id_, ring in self._codes.items()}
        self.columns = {name: column.move(kept, first) for name, column in self.columns.items()}
        self.base, self.end = first, first + kept.size
        return first

    def resize(self, capacity: int) -> None:
        """Copy the stored rows into rings of another capacity."""
        base, end = self.base, self.end
        self._materialize_viewers(base)
        self.capacity = capacity
        self.born = ring_resize(self.born, capacity, base, end)
        self.dies = ring_resize(self.dies, capacity, base, end)
        self._codes = {id_: ring_resize(ring, capacity, base, end) for id_, ring in self._codes.items()}
        for column in self.columns.values():
            column.resize(capacity, base, end)

    # ── rows on disk ─────────────────────────────────────────────────────────────────────────────────────────────

    def spill(self, schema: pa.Schema, until: int, new_file: NewFile) -> None:
        """Move the columns of rows before `until` to files. If a file cannot be written, nothing changes.

        Lifetimes and key codes stay in memory: every probe reads them.
        """
        self._materialize_viewers(self.base)
        spilled = {
            name: SpilledColumn.wrap(column, schema.field(name).type, self.capacity)
            for name, column in self.columns.items()
        }
        written: dict[str, Segment] = {}
        try:
            for name, column in spilled.items():
                segment = column.prepare(self.base, until, new_file)
                if segment is not None:
                    written[name] = segment
        except BaseException:
            for segment in written.values():
                segment.file.delete()
            raise
        self.columns = dict(spilled)
        for name, segment in written.items():
            spilled[name].adopt(segment, self.end)

    def drop_expired_files(self) -> None:
        """Delete the files whose rows have all expired; viewers copy such rows before."""
        columns = self.spilled_columns
        if columns:
            self._materialize_viewers(self.base)
        for column in columns:
            column.drop_expired(self.base)

    @property
    def spilled_columns(self) -> list[SpilledColumn]:
        """The columns that have rows on disk, or had."""
        return [column for column in self.columns.values() if isinstance(column, SpilledColumn)]

    def find_spill_point(self, share: float) -> int:
        """The row before which lies a share of the rows that all columns have in memory."""
        first = max((column.first_in_memory(self.base) for column in self.spilled_columns), default=self.base)
        return first + ceil(share * (self.end - first))

    def materialize_viewers(self) -> None:
        """Let all viewers copy their rows: ids or columns are about to change."""
        self._materialize_viewers(self.end)

    def _materialize_viewers(self, base: int) -> None:
        """Let the viewers of rows before `base` copy them."""
        kept: list[tuple[ref[ColumnViewer], str]] = []
        for place, (reference, alias) in enumerate(self._viewers):
            viewer = reference()
            if viewer is None:
                continue
            if viewer.find_oldest(alias) < base or len(self._viewers) - place > _MAX_VIEWERS:
                viewer.materialize()
            else:
                kept.append((reference, alias))
        self._viewers = kept

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def list_ids(self) -> I64:
        """The ids of all stored rows, dead rows between living ones included."""
        return np.arange(self.base, self.end)

    def codes(self, class_id: int, ids: I64) -> I32:
        return ring_take(self._codes[class_id], ids)

    def code_ring(self, class_id: int) -> I32:
        """The codes of all rows in a class, in their ring."""
        return self._codes[class_id]

    def has_class(self, class_id: int) -> bool:
        return class_id in self._codes

    def list_used_codes(self, class_id: int) -> I32:
        """The codes of all stored rows in a class."""
        return ring_read(self._codes[class_id], self.base, self.end)

    def view_deaths(self, class_id: int) -> list[tuple[I32, I64]]:
        """The codes in a class, and the deaths, of all stored rows: views of the rings, in two parts."""
        codes = ring_parts(self._codes[class_id], self.base, self.end)
        return list(zip(codes, ring_parts(self.dies, self.base, self.end), strict=True))

    def read_lifetimes(self, ids: I64) -> tuple[I64, I64]:
        """Birth and death of rows that are still stored."""
        return ring_take(self.born, ids), ring_take(self.dies, ids)

    def read_span(self, first: int, end: int) -> RowLines:
        """The ids, births and deaths of the rows from `first` to before `end`."""
        lines = allocate_lines(3, end - first)
        read_rows(self.born, self.dies, first, lines)
        return lines

    def read_births(self, ids: I64) -> I64:
        return ring_take(self.born, ids)

    def raise_ages(self, ids: I64, born: I64, ages: I64) -> None:
        """Raise the ages of combinations at `born` to those of these parts."""
        raise_ages(self.born, ids, born, ages)

    def read_expirations(self, ids: I64) -> I64:
        """When rows die as far as is known now; a row that is no longer stored has been dead always."""
        return np.where(ids >= self.base, ring_take(self.dies, ids), ALWAYS)

    def is_freed(self, ids: I64) -> Mask:
        """Which rows no query needs any more: they stay between other rows until the next compaction."""
        freed: Mask = ring_take(self.dies, ids) == ALWAYS
        return freed

    @property
    def newest_birth(self) -> int:
        """The birth of the newest row; ALWAYS if there is none."""
        return int(self.born[(self.end - 1) & (self.capacity - 1)]) if len(self) else int(ALWAYS)

    def find_first_after(self, time: int) -> int:
        """The first row born after a time."""
        mask = self.capacity - 1
        return self.base + bisect_right(range(self.base, self.end), time, key=lambda row: int(self.born[row & mask]))

    def take(self, name: str, ids: I64) -> pa.Array:
        return self.columns[name].take(ids)

    def add_viewer(self, viewer: ColumnViewer, alias: str) -> None:
        """Call `viewer.materialize` before its rows can no longer be read, if the viewer still exists then."""
        self._viewers.append((ref(viewer), alias))
