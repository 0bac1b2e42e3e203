"""The rows of a leaf in rings: when each is born and dies, its code in every equality class, the columns read above.

Rows have ascending ids; those from `base` to `end` are stored. Where several queries share the leaf each row also has a
code of interest, which says who wants it. Results may view columns instead of copying them: who does is told before the
rings it sees are written to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Protocol
from weakref import ref

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.join.sharing.code_ring import CodeRing
from penstock.join.sharing.interest import Interest
from penstock.join.sharing.kernels import intersect_codes
from penstock.state.code_set import Mask
from penstock.state.columns import (
    RingColumn,
    make_ring_column,
    ring_move,
    ring_resize,
    ring_take,
    ring_write,
)
from penstock.state.interning import empty_codes
from penstock.state.kernels import ALWAYS, I32, I64


class ColumnViewer(Protocol):
    """Somebody who views columns of a leaf."""

    def materialize(self) -> None:
        """Read all that is needed: the views end."""


class StoredRows:
    """Rows under ascending ids."""

    def __init__(self, schema: pa.Schema, columns: Iterable[str], classes: Iterable[int], capacity: int) -> None:
        self.base = 0
        self.end = 0
        self._capacity = capacity
        self.born: I64 = np.zeros(self._capacity, np.int64)
        self.dies: I64 = np.zeros(self._capacity, np.int64)
        self._columns = {name: make_ring_column(schema.field(name).type, capacity) for name in columns}
        self._codes = {id_: empty_codes(self._capacity) for id_ in classes}
        self.interest: Interest | None = None
        self._interest_ring = CodeRing()
        self._viewers: list[ref[ColumnViewer]] = []

    def __len__(self) -> int:
        return self.end - self.base

    @property
    def nbytes(self) -> int:
        parts = (*self._columns.values(), *self._codes.values())
        return self.born.nbytes + self.dies.nbytes + self._interest_ring.nbytes + sum(part.nbytes for part in parts)

    @property
    def row_bytes(self) -> float:
        """Bytes a stored row takes, the room that a ring keeps free left out."""
        return self.nbytes / self._capacity

    # ── rows come ────────────────────────────────────────────────────────────────────────────────────────────────

    def _append(
        self, born: I64, dies: I64, codes: Mapping[int, I32], payload: Mapping[str, pa.Array], wanted: I32 | None
    ) -> int:
        """Store rows; returns the id of the first."""
        first = self.end
        self._reserve(born.size)
        self.end += born.size
        if born.size:
            self._materialize_viewers()
            if self.interest is not None and wanted is not None:
                self._interest_ring.write(self.base, first, wanted, self._capacity, wide=not self.interest.has_few_sets)
            ring_write(self.born, first, born)
            ring_write(self.dies, first, dies)
            for id_, ring in self._codes.items():
                ring_write(ring, first, codes[id_])
            for name, column in self._columns.items():
                column.append(self.base, first, payload[name])
        return first

    def _move(self, kept: I64) -> int:
        """Store some rows again as the next ones, and forget all before; returns the id of the first.

        Rings are new: who views columns keeps the old ones.
        """
        first = self.end
        self._viewers = []
        self.born, self.dies = ring_move(self.born, kept, first), ring_move(self.dies, kept, first)
        self._codes = {id_: ring_move(ring, kept, first) for id_, ring in self._codes.items()}
        self._interest_ring.move(kept, first)
        for column in self._columns.values():
            column.move(kept, first)
        self.base, self.end = first, first + kept.size
        return first

    def _materialize_viewers(self) -> None:
        lent, self._viewers = self._viewers, []
        for borrower in lent:
            held = borrower()
            if held is not None:
                held.materialize()

    def _reserve(self, more: int) -> None:
        need = len(self) + more
        if need > self._capacity:
            self._resize(1 << (need - 1).bit_length())

    def _resize(self, capacity: int) -> None:
        base, end = self.base, self.end
        self._viewers = []  # who views columns keeps the old rings
        self._capacity = capacity
        self.born = ring_resize(self.born, capacity, base, end)
        self.dies = ring_resize(self.dies, capacity, base, end)
        self._codes = {id_: ring_resize(ring, capacity, base, end) for id_, ring in self._codes.items()}
        self._interest_ring.resize(capacity, base, end)
        for column in self._columns.values():
            column.resize(capacity, base, end)

    # ── rows are read ────────────────────────────────────────────────────────────────────────────────────────────

    def codes(self, class_id: int, ids: I64) -> I32:
        return ring_take(self._codes[class_id], ids)

    def read_lifetimes(self, ids: I64) -> tuple[I64, I64]:
        """Born and dies of rows that are still stored."""
        return self.read_births(ids), ring_take(self.dies, ids)

    def read_births(self, ids: I64) -> I64:
        return ring_take(self.born, ids)

    def read_expirations(self, ids: I64) -> I64:
        """When rows die as far as is known now; a row that is stored no more is long dead."""
        return np.where(ids >= self.base, ring_take(self.dies, ids), ALWAYS)

    def take(self, name: str, ids: I64) -> pa.Array:
        return self._columns[name].take(ids)

    def view(self, name: str) -> RingColumn:
        """A column that can be read as it is until rows are appended."""
        return self._columns[name].view()

    def add_viewer(self, viewer: ColumnViewer) -> None:
        """Tell somebody who views columns, if it is still there, before the rings it sees are written to."""
        self._viewers.append(ref(viewer))

    def find_first_after(self, time: int) -> int:
        """The first row born after a time."""
        mask = self._capacity - 1
        return self.base + bisect_right(range(self.base, self.end), time, key=lambda row: int(self.born[row & mask]))

    # ── who wants them ───────────────────────────────────────────────────────────────────────────────────────────

    def list_ids(self) -> I64:
        """The ids of all rows, those that died in between included."""
        return np.arange(self.base, self.end)

    @property
    def newest_birth(self) -> int:
        """When the newest tuple was born; the beginning of time if there is none."""
        return int(self.born[(self.end - 1) & (self._capacity - 1)]) if len(self) else int(ALWAYS)

    def list_ids_after(self, time: int) -> I64:
        """The ids of tuples born after a time."""
        ids = self.list_ids()
        return ids[self.read_births(ids) > time]

    def read_interest(self, ids: I64) -> I32:
        """The codes of interest of rows."""
        return self._interest_ring.take(ids)

    def intersect_interest(self, ids: I64, intersections: NDArray[np.int32], codes: I32) -> None:
        """Narrow codes of interest to those who also want these rows."""
        intersect_codes(self._interest_ring.ring, ids, intersections, codes)

    def is_freed(self, ids: I64) -> Mask:
        """Which rows nobody wanted any more: they stand between others only until those close up."""
        freed: Mask = self.read_lifetimes(ids)[1] == ALWAYS
        return freed

    def count_between(self, after: int, until: int) -> int:
        """How many living tuples were born after a time and not after another."""
        born, dies = self.read_lifetimes(self.list_ids())
        return int(np.count_nonzero((born > after) & (born <= until) & (dies > until)))
