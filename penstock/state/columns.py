"""Payload columns of a leaf: rings of values addressed by absolute row id.

Law: `take(ids)` returns for every id the value that was appended as that row, as Arrow data of the declared type.
The store that owns the columns chooses the capacity and calls `resize`.
"""

from __future__ import annotations

from copy import copy
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.state.alloc import allocate
from penstock.state.kernels import I64, U8, ring_gather, text_gather

T = TypeVar("T", bound=np.generic)


def ring_write(ring: NDArray[np.generic], first: int, values: NDArray[np.generic]) -> None:
    """Write rows first, first + 1, … of a ring, wrapping at its end."""
    size = ring.shape[0]
    at = first & (size - 1)
    end = at + values.shape[0]
    if end <= size:
        ring[at:end] = values
    else:
        ring[at:] = values[: size - at]
        ring[: end - size] = values[size - at :]


def ring_parts(ring: NDArray[T], first: int, end: int) -> tuple[NDArray[T], NDArray[T]]:
    """Views of rows first … end - 1: those up to the end of the ring, and those from its beginning on."""
    at = first & (ring.shape[0] - 1)
    until_end = min(end - first, ring.shape[0] - at)
    return ring[at : at + until_end], ring[: end - first - until_end]


def ring_read(ring: NDArray[T], first: int, end: int) -> NDArray[T]:
    """A copy of rows first … end - 1."""
    at, rows = first & (ring.shape[0] - 1), end - first
    if at + rows <= ring.shape[0]:
        return ring[at : at + rows].copy()
    return np.concatenate(ring_parts(ring, first, end))


def ring_resize(ring: NDArray[T], capacity: int, base: int, end: int) -> NDArray[T]:
    """The same rows in a ring of another capacity."""
    resized = np.zeros(capacity, ring.dtype)
    oldest, newest = ring_parts(ring, base, end)
    ring_write(resized, base, oldest)
    ring_write(resized, base + oldest.shape[0], newest)
    return resized


def ring_take(ring: NDArray[T], ids: I64) -> NDArray[T]:
    """The values of rows."""
    if ring.dtype.kind == "V":  # compiled loops do not support this type
        taken: NDArray[T] = ring[ids & (ring.shape[0] - 1)]
        return taken
    out: NDArray[T] = allocate(ids.size, ring.dtype)
    ring_gather(ring, ids, out)
    return out


def ring_move(ring: NDArray[T], kept: I64, first: int) -> NDArray[T]:
    """A new ring with some rows of another as rows first, first + 1, …"""
    moved = np.empty_like(ring)
    ring_write(moved, first, ring_take(ring, kept))
    return moved


class RingColumn(Protocol):
    """A column of a leaf store: rows from `base` on are stored, an append begins at `first`."""

    def append(self, base: int, first: int, values: pa.Array) -> None: ...
    def take(self, ids: I64) -> pa.Array: ...
    def resize(self, capacity: int, base: int, end: int) -> None: ...
    def move(self, kept: I64, first: int) -> RingColumn:
        """A column with some of the rows, as rows first, first + 1, …; this one keeps its rows and gets no others."""

    @property
    def nbytes(self) -> int: ...


class Validity:
    """Which rows are not NULL. It takes no memory until the first NULL."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._ring: U8 | None = None

    @property
    def has_nulls(self) -> bool:
        """Whether there was a NULL."""
        return self._ring is not None

    def append(self, first: int, values: pa.Array) -> None:
        if values.null_count and self._ring is None:
            self._ring = np.ones(self._capacity, np.uint8)
        if self._ring is not None:
            ring_write(self._ring, first, values.is_valid().to_numpy(zero_copy_only=False))

    def take(self, ids: I64) -> U8 | None:
        """One byte per row, or None if all are valid."""
        if self._ring is None:
            return None
        valid: U8 = ring_take(self._ring, ids)
        return None if valid.all() else valid

    def resize(self, capacity: int, base: int, end: int) -> None:
        self._capacity = capacity
        if self._ring is not None:
            self._ring = ring_resize(self._ring, capacity, base, end)

    def move(self, kept: I64, first: int) -> Validity:
        moved = Validity(self._capacity)
        moved._ring = None if self._ring is None else ring_move(self._ring, kept, first)
        return moved

    @property
    def nbytes(self) -> int:
        return 0 if self._ring is None else self._ring.nbytes


def pack_bitmap(valid: U8 | None) -> pa.Buffer | None:
    """The validity of an Arrow array, from one byte per row."""
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


class FixedColumn:
    """Values of a fixed width in one numpy ring."""

    def __init__(self, type_: pa.DataType, capacity: int) -> None:
        self._type = type_
        self._is_bool = pa.types.is_boolean(type_)
        width = 1 if self._is_bool else type_.bit_width // 8
        words = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}
        self._dtype: np.dtype[np.generic] = np.dtype(words.get(width, np.dtype((np.void, width))))
        self._ring = np.zeros(capacity, self._dtype)
        self._validity = Validity(capacity)

    def append(self, base: int, first: int, values: pa.Array) -> None:  # noqa: ARG002
        if self._is_bool:
            raw = values.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint8)
        else:
            raw = np.frombuffer(values.buffers()[1], self._dtype, len(values), values.offset * self._dtype.itemsize)
        ring_write(self._ring, first, raw)
        if values.null_count or self._validity.has_nulls:
            self._validity.append(first, values)

    def take(self, ids: I64) -> pa.Array:
        raw = ring_take(self._ring, ids)
        valid = self._validity.take(ids)
        if self._is_bool:
            return pa.array(raw.astype(np.bool_), mask=None if valid is None else valid == 0)
        return pa.Array.from_buffers(self._type, raw.size, [pack_bitmap(valid), pa.py_buffer(raw)])

    def resize(self, capacity: int, base: int, end: int) -> None:
        self._ring = ring_resize(self._ring, capacity, base, end)
        self._validity.resize(capacity, base, end)

    def move(self, kept: I64, first: int) -> FixedColumn:
        moved = copy(self)
        moved._ring, moved._validity = ring_move(self._ring, kept, first), self._validity.move(kept, first)
        return moved

    @property
    def nbytes(self) -> int:
        return self._ring.nbytes + self._validity.nbytes


class TextColumn:
    """Strings and binaries: a ring of (start, length) into a ring of bytes."""

    def __init__(self, type_: pa.DataType, capacity: int) -> None:
        self._type = type_
        self._starts: I64 = np.zeros(capacity, np.int64)
        self._lengths = np.zeros(capacity, np.int32)
        self._pool: U8 = np.zeros(capacity, np.uint8)
        self._next_byte = 0
        self._validity = Validity(capacity)

    def append(self, base: int, first: int, values: pa.Array) -> None:
        offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4)
        lengths = np.diff(offsets)
        text = np.frombuffer(values.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
        self._ensure_bytes(base, first, text.size)
        ring_write(self._starts, first, self._next_byte + (offsets[:-1] - offsets[0]).astype(np.int64))
        ring_write(self._lengths, first, lengths)
        ring_write(self._pool, self._next_byte, text)
        self._next_byte += text.size
        self._validity.append(first, values)

    def take(self, ids: I64) -> pa.Array:
        mask = self._starts.size - 1
        valid = self._validity.take(ids)
        present: U8 = np.ones(ids.size, np.uint8) if valid is None else valid
        offsets = np.zeros(ids.size + 1, np.int32)
        np.cumsum(np.where(present, ring_take(self._lengths, ids), 0), out=offsets[1:])
        out = np.empty(offsets[-1], np.uint8)
        text_gather(self._starts, self._lengths, self._pool, mask, ids, present, offsets, out)
        buffers = [pack_bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(out)]
        return pa.Array.from_buffers(self._type, ids.size, buffers)

    def resize(self, capacity: int, base: int, end: int) -> None:
        self._starts = ring_resize(self._starts, capacity, base, end)
        self._lengths = ring_resize(self._lengths, capacity, base, end)
        self._validity.resize(capacity, base, end)

    def move(self, kept: I64, first: int) -> TextColumn:
        moved = copy(self)
        moved._starts, moved._lengths = np.empty_like(self._starts), np.empty_like(self._lengths)
        moved._pool, moved._validity = np.empty_like(self._pool), Validity(self._starts.size)
        moved.append(first, first, self.take(kept))
        return moved

    def _ensure_bytes(self, base: int, first: int, more: int) -> None:
        oldest = int(self._starts[base & (self._starts.size - 1)]) if base < first else self._next_byte
        need = self._next_byte + more - oldest
        if need > self._pool.size:
            capacity = 1 << (need - 1).bit_length()
            self._pool = ring_resize(self._pool, capacity, oldest, self._next_byte)

    @property
    def nbytes(self) -> int:
        return self._starts.nbytes + self._lengths.nbytes + self._pool.nbytes + self._validity.nbytes
