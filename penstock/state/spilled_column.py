"""A column of a leaf whose older rows are in files: memory-mapped Arrow files of consecutive rows, oldest first.

Law: as of any `RingColumn`, `take(ids)` returns for every id the value that was appended as that row. Rows before
`memory_from` are read from segments, the others from a ring in memory. `prepare` writes a segment without changing the
column; `adopt` replaces rows in memory by it. A segment whose rows have all expired is deleted, with its file; a view
that still reads it keeps the mapping.

State: the ring of the newer rows, and for each segment its mapping. A segment whose rows were renumbered also has their
places in the file, 4 bytes per row. Cost: a `take` that reads segments sorts its ids, and costs a gather for each MiB
that it reads and another one to put the rows in order.
"""

from __future__ import annotations

import io
import mmap
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.state.columns import RingColumn
from penstock.state.kernels import I32, I64
from penstock.state.nested_columns import make_ring_column

_BLOCK = 1 << 16
"""Bytes that are written by one call, and that the system maps around a page that is read."""
_BLOCKS = 16
"""The number of blocks that are read before their pages are given back."""

NewFile = Callable[[], Path]
"""Names a file that does not exist yet."""


class _BlockWriter(io.FileIO):
    """A new file that is written block by block: what one call writes may become one large page, mapped as a whole."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "xb")

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        written = 0
        while written < len(view):
            written += super().write(view[written : written + _BLOCK])
        return written


class SegmentFile:
    """One column of consecutive rows in an Arrow file, mapped into memory. The pages belong to the system's cache."""

    def __init__(self, path: Path, values: pa.Array) -> None:
        """Write the file; after an error there is none."""
        self.path = path
        try:
            with _BlockWriter(path) as sink, pa.ipc.new_file(sink, pa.schema([("value", values.type)])) as writer:
                writer.write_batch(pa.record_batch([values], ["value"]))
            with path.open("rb") as source:
                self._mapping = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        _advise(self._mapping, "MADV_RANDOM")
        self._values = pa.ipc.open_file(pa.py_buffer(self._mapping)).get_batch(0).column(0)

    def take(self, places: I64 | I32) -> list[pa.Array]:
        """The values at some ascending places, in parts. After each part the pages that it read are given back.

        Otherwise the process would hold them as long as the file exists: of one row, all pages that the system maps
        around it.
        """
        blocks = (places * (self.nbytes / len(self._values) / _BLOCK)).astype(np.int64)
        changes = np.flatnonzero(np.diff(blocks)) + 1
        taken = []
        for part in np.split(places, changes[_BLOCKS - 1 :: _BLOCKS]):
            taken.append(self._values.take(pa.array(part)))
            _advise(self._mapping, "MADV_DONTNEED")
        return taken

    def delete(self) -> None:
        """Delete the file; the mapping exists until nothing reads it."""
        self.path.unlink(missing_ok=True)

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return len(self._mapping)

    def measure_held(self) -> int:
        """Nothing: pages of files are not memory of the process."""
        return 0


@dataclass(frozen=True)
class Segment:
    """Rows first … end - 1 in a file."""

    first: int
    end: int
    file: SegmentFile = field(repr=False)
    places: I32 | None = None
    """The places of the rows in the file; None if they are 0, 1, …"""

    def take(self, ids: I64) -> list[pa.Array]:
        return self.file.take(ids - self.first if self.places is None else self.places[ids - self.first])

    def keep(self, kept: I64, first: int) -> Segment:
        """Some of its rows as rows first, first + 1, …"""
        places = kept - self.first if self.places is None else self.places[kept - self.first]
        return replace(self, first=first, end=first + kept.size, places=places.astype(np.int32))


class SpilledColumn:
    """A column with segments of older rows and a ring of newer ones."""

    def __init__(self, type_: pa.DataType, ring: RingColumn, capacity: int) -> None:
        self._type = type_
        self._ring = ring
        self._capacity = capacity
        self._segments: tuple[Segment, ...] = ()
        self._memory_from: int | None = None
        """The first row in memory; None if all are."""

    @classmethod
    def wrap(cls, column: RingColumn, type_: pa.DataType, capacity: int) -> SpilledColumn:
        """A column that can spill; one that can already is returned as it is."""
        return column if isinstance(column, SpilledColumn) else cls(type_, column, capacity)

    # ── rows move to disk ────────────────────────────────────────────────────────────────────────────────────────

    def first_in_memory(self, base: int) -> int:
        """The first stored row that is in memory."""
        return base if self._memory_from is None else max(base, self._memory_from)

    def prepare(self, base: int, until: int, new_file: NewFile) -> Segment | None:
        """Write the rows in memory before `until` to a file; None if there are none. The column does not change."""
        first = self.first_in_memory(base)
        if until <= first:
            return None
        return Segment(first, until, SegmentFile(new_file(), self._ring.take(np.arange(first, until))))

    def adopt(self, segment: Segment, end: int) -> None:
        """Read rows from a segment from now on; the ring keeps those from its end to before `end`."""
        ring = make_ring_column(self._type, capacity := _choose_capacity(end - segment.end))
        ring.append(segment.end, segment.end, self._ring.take(np.arange(segment.end, end)))
        self._ring, self._capacity = ring, capacity
        self._segments, self._memory_from = (*self._segments, segment), segment.end

    def drop_expired(self, base: int) -> None:
        """Delete the files whose rows are all before `base`."""
        while self._segments and self._segments[0].end <= base:
            self._segments[0].file.delete()
            self._segments = self._segments[1:]

    @property
    def spilled_bytes(self) -> int:
        """Bytes on disk."""
        return sum(segment.file.nbytes for segment in self._segments)

    # ── as a ring column ─────────────────────────────────────────────────────────────────────────────────────────

    def append(self, base: int, first: int, values: pa.Array) -> None:
        self.drop_expired(base)
        from_ = min(self.first_in_memory(base), first)
        need = first + len(values) - from_
        if need > self._capacity:
            self._capacity = _choose_capacity(need)
            self._ring.resize(self._capacity, from_, first)
        self._ring.append(from_, first, values)

    def take(self, ids: I64) -> pa.Array:
        if self._memory_from is None or not self._segments or bool((ids >= self._memory_from).all()):
            return self._ring.take(ids)
        order = np.argsort(ids, kind="stable")
        ascending = ids[order]
        cuts = [0, *np.searchsorted(ascending, [segment.end for segment in self._segments])]
        parts = []
        for segment, (start, stop) in zip(self._segments, pairwise(cuts), strict=True):
            if stop > start:
                parts += segment.take(ascending[start:stop])
        if cuts[-1] < ids.size:
            parts.append(self._ring.take(ascending[cuts[-1] :]))
        back = np.empty(ids.size, np.int64)
        back[order] = np.arange(ids.size)
        return pa.concat_arrays(parts).take(pa.array(back))

    def resize(self, capacity: int, base: int, end: int) -> None:
        """The ring has a capacity of its own, unless all rows are in memory."""
        self.drop_expired(base)
        if not self._segments:
            self._capacity = capacity
            self._ring.resize(capacity, self.first_in_memory(base), end)

    def move(self, kept: I64, first: int) -> SpilledColumn:
        """Files without such a row are deleted; this column reads them as long as it exists."""
        in_memory = 0 if self._memory_from is None else int(np.searchsorted(kept, self._memory_from))
        segments, at = [], 0
        for segment in self._segments:
            stop = int(np.searchsorted(kept, segment.end))
            if stop > at:
                segments.append(segment.keep(kept[at:stop], first + at))
            else:
                segment.file.delete()
            at = stop
        newer = kept[in_memory:]
        moved = copy(self)
        moved._capacity = max(self._capacity, _choose_capacity(newer.size))
        moved._ring = make_ring_column(self._type, moved._capacity)
        moved._ring.append(first + in_memory, first + in_memory, self._ring.take(newer))
        moved._segments, moved._memory_from = tuple(segments), first + in_memory if segments else None
        return moved

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self._ring.nbytes + sum(0 if each.places is None else each.places.nbytes for each in self._segments)


def _choose_capacity(rows: int) -> int:
    return 1 << max(0, rows - 1).bit_length()


def _advise(mapping: mmap.mmap, advice: str) -> None:
    """Advise the system on a mapping, where it takes advice."""
    if hasattr(mmap, advice):
        mapping.madvise(getattr(mmap, advice))
