"""Payload columns of arrays, maps and structs: rings of their parts; see `columns`.

Law: that of every `RingColumn`. An array is a start and a length in a ring of elements; the elements of a map are
structs of a key and a value. A struct has a ring for each field. State: as many elements as the stored rows have, and
less than as many again. Cost: that of the parts.
"""

from __future__ import annotations

from copy import copy

import numpy as np
import pyarrow as pa

from penstock.state.columns import (
    FixedColumn,
    RingColumn,
    TextColumn,
    Validity,
    pack_bitmap,
    ring_resize,
    ring_take,
    ring_write,
)
from penstock.state.kernels import I64


class ListColumn:
    """Arrays and maps: a ring of (start, length) into a column of elements."""

    def __init__(self, type_: pa.DataType, capacity: int) -> None:
        self._type = type_
        is_map = pa.types.is_map(type_)
        self._element_type = pa.struct([type_.key_field, type_.item_field]) if is_map else type_.value_type
        self._empty(capacity, capacity)

    def _empty(self, capacity: int, elements: int) -> None:
        self._starts: I64 = np.zeros(capacity, np.int64)
        self._lengths = np.zeros(capacity, np.int32)
        self._elements: RingColumn = make_ring_column(self._element_type, elements)
        self._element_capacity = elements
        self._next_element = 0
        self._validity = Validity(capacity)

    def append(self, base: int, first: int, values: pa.Array) -> None:
        if not len(values):
            return
        offsets = values.offsets.to_numpy()
        starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
        elements = values.values
        if values.null_count:  # what stands under a NULL is no element
            lengths = np.where(values.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
        count = int(lengths.sum())
        if count == offsets[-1] - offsets[0]:
            elements = elements.slice(int(offsets[0]), count)
        else:
            elements = elements.take(pa.array(_list_elements(starts, lengths)))
        self._append_elements(base, first, elements)
        ring_write(self._starts, first, self._next_element - count + np.cumsum(lengths) - lengths)
        ring_write(self._lengths, first, lengths.astype(np.int32))
        self._validity.append(first, values)

    def _append_elements(self, base: int, first: int, elements: pa.Array) -> None:
        oldest = self._find_oldest(base, first)
        need = self._next_element + len(elements) - oldest
        if need > self._element_capacity:
            self._element_capacity = 1 << (need - 1).bit_length()
            self._elements.resize(self._element_capacity, oldest, self._next_element)
        if len(elements):
            self._elements.append(oldest, self._next_element, elements)
            self._next_element += len(elements)

    def _find_oldest(self, base: int, first: int) -> int:
        """The first element of the rows from `base` on."""
        return int(self._starts[base & (self._starts.size - 1)]) if base < first else self._next_element

    def take(self, ids: I64) -> pa.Array:
        valid = self._validity.take(ids)
        lengths = ring_take(self._lengths, ids).astype(np.int64)
        if valid is not None:
            lengths = np.where(valid, lengths, 0)
        offsets = np.zeros(ids.size + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        elements = self._elements.take(_list_elements(ring_take(self._starts, ids), lengths))
        buffers = [pack_bitmap(valid), pa.py_buffer(offsets)]
        return pa.Array.from_buffers(self._type, ids.size, buffers, children=[elements])

    def resize(self, capacity: int, base: int, end: int) -> None:
        self._starts = ring_resize(self._starts, capacity, base, end)
        self._lengths = ring_resize(self._lengths, capacity, base, end)
        self._validity.resize(capacity, base, end)

    def move(self, kept: I64, first: int) -> ListColumn:
        moved = copy(self)
        moved._empty(self._starts.size, self._element_capacity)
        moved.append(first, first, self.take(kept))
        return moved

    @property
    def nbytes(self) -> int:
        return self._starts.nbytes + self._lengths.nbytes + self._elements.nbytes + self._validity.nbytes


def _list_elements(starts: I64, lengths: I64) -> I64:
    """The elements from each start on, as many as its length."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if ends.size else 0
    return np.repeat(starts - ends + lengths, lengths) + np.arange(total)


class StructColumn:
    """Structs: a column for each field."""

    def __init__(self, type_: pa.DataType, capacity: int) -> None:
        self._type = type_
        self._fields: list[RingColumn] = [make_ring_column(field.type, capacity) for field in type_]
        self._validity = Validity(capacity)

    def append(self, base: int, first: int, values: pa.Array) -> None:
        if not len(values):
            return
        for column, part in zip(self._fields, values.flatten(), strict=True):
            column.append(base, first, part)
        self._validity.append(first, values)

    def take(self, ids: I64) -> pa.Array:
        parts = [column.take(ids) for column in self._fields]
        return pa.Array.from_buffers(self._type, ids.size, [pack_bitmap(self._validity.take(ids))], children=parts)

    def resize(self, capacity: int, base: int, end: int) -> None:
        for column in self._fields:
            column.resize(capacity, base, end)
        self._validity.resize(capacity, base, end)

    def move(self, kept: I64, first: int) -> StructColumn:
        moved = copy(self)
        moved._fields = [column.move(kept, first) for column in self._fields]
        moved._validity = self._validity.move(kept, first)
        return moved

    @property
    def nbytes(self) -> int:
        return self._validity.nbytes + sum(column.nbytes for column in self._fields)


def make_ring_column(type_: pa.DataType, capacity: int) -> FixedColumn | TextColumn | ListColumn | StructColumn:
    """An empty column with space for `capacity` rows."""
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return TextColumn(type_, capacity)
    if pa.types.is_list(type_) or pa.types.is_map(type_):
        return ListColumn(type_, capacity)
    if pa.types.is_struct(type_):
        return StructColumn(type_, capacity)
    return FixedColumn(type_, capacity)
