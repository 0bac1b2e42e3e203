"""Interning: values of one column become dense int32 codes, and codes become values again.

Law: equal values get equal codes and only those (codes are exact, never hashes). NULL gets NONE, which matches nothing,
or, where NULL is a value like another (`NullableInterner`), the code 0. See `key_space` for keys of several columns and
for recycling.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.state.alloc import grow_array
from penstock.state.kernels import I32, I64, NONE, U8, table_fill, table_intern, table_lookup
from penstock.state.maintenance import SHIPPED


def empty_codes(capacity: int) -> I32:
    return np.full(capacity, NONE, np.int32)


class CodeTable:
    """An exact map from int64 keys to dense codes."""

    def __init__(self, capacity: int = SHIPPED.capacity) -> None:
        self._table = empty_codes(capacity)
        self._values: I64 = np.zeros(capacity, np.int64)
        self._free_codes: I32 = np.zeros(capacity, np.int32)
        self._counts: I64 = np.zeros(3, np.int64)

    @property
    def code_limit(self) -> int:
        """All codes are below this."""
        return int(self._counts[0])

    @property
    def live_count(self) -> int:
        return int(self._counts[2])

    def lookup(self, keys: I64) -> I32:
        out = np.empty(keys.size, np.int32)
        table_lookup(keys, self._table, self._values, out)
        return out

    def intern(self, keys: I64) -> I32:
        out = np.empty(keys.size, np.int32)
        done = 0
        while True:
            done = table_intern(keys, done, self._table, self._values, self._free_codes, self._counts, out)
            if done == keys.size:
                return out
            self._grow()

    def values(self, codes: I32) -> I64:
        return self._values[codes]

    def list_live_values(self) -> I64:
        """The keys that have a code."""
        return self._values[np.flatnonzero(self._mark_live())]

    def recycle(self, used: U8) -> None:
        """Free every code that is not marked in `used` (one byte per code)."""
        freed = np.flatnonzero(used == 0).astype(np.int32)
        self._free_codes[: freed.size] = freed
        self._counts[1] = freed.size
        self._counts[2] = self.code_limit - freed.size
        self._refill(used)

    def _grow(self) -> None:
        used = self._mark_live()
        if self.code_limit == self._values.size and self._counts[1] == 0:
            capacity = 2 * self._values.size
            self._values = grow_array(self._values, capacity)
            self._free_codes = np.zeros(capacity, np.int32)
        if 2 * (self.live_count + 1) > self._table.size:
            self._table = empty_codes(2 * self._table.size)
        self._refill(used)

    def _mark_live(self) -> U8:
        marks = np.ones(self.code_limit, np.uint8)
        marks[self._free_codes[: int(self._counts[1])]] = 0
        return marks

    def _refill(self, used: U8) -> None:
        self._table.fill(NONE)
        table_fill(self._table, self._values, used)


class Interner(Protocol):
    """Values of one equality class to codes and back."""

    @property
    def code_limit(self) -> int: ...
    @property
    def live_count(self) -> int: ...
    def intern(self, values: pa.Array) -> I32: ...
    def find(self, values: pa.Array) -> I32:
        """The codes of values that are not NULL; NONE for a value without a code."""

    def values(self, codes: I32) -> pa.Array: ...
    def recycle(self, used: U8) -> None: ...


class NumberInterner:
    """Integers, floats, booleans, dates, timestamps and durations: types whose values are one 64-bit word."""

    def __init__(self, type_: pa.DataType, capacity: int) -> None:
        self._type = type_
        self._codes = CodeTable(capacity)

    @property
    def code_limit(self) -> int:
        return self._codes.code_limit

    @property
    def live_count(self) -> int:
        return self._codes.live_count

    def intern(self, values: pa.Array) -> I32:
        words = _to_words(values)
        if values.null_count == 0:
            return self._codes.intern(words)
        out = empty_codes(len(values))
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        out[valid] = self._codes.intern(np.ascontiguousarray(words[valid]))
        return out

    def find(self, values: pa.Array) -> I32:
        return self._codes.lookup(_to_words(values))

    def values(self, codes: I32) -> pa.Array:
        return _from_words(self._codes.values(codes), self._type)

    def recycle(self, used: U8) -> None:
        self._codes.recycle(used)


def _to_words(values: pa.Array) -> I64:
    """The values as 64-bit integers, equal exactly where the values are equal (-0.0 is 0.0, all NaN are equal)."""
    if isinstance(values, pa.Int64Array) and values.null_count == 0 and len(values):
        return np.frombuffer(values.buffers()[1], np.int64, len(values), 8 * values.offset)
    if pa.types.is_floating(values.type):
        floats = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        return np.where(np.isnan(floats), np.nan, floats).view(np.int64)
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    words: I64 = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return words


def _from_words(words: I64, type_: pa.DataType) -> pa.Array:
    if pa.types.is_floating(type_):
        return pa.array(words.view(np.float64)).cast(type_)
    if pa.types.is_date32(type_):
        return pa.array(words.astype(np.int32)).cast(type_)
    return pa.array(words).cast(type_)


class ObjectInterner:
    """Strings, decimals and binaries: one dictionary lookup for each distinct value of a batch."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._codes: dict[object, int] = {}
        self._values: list[object] = []
        self._free_codes: list[int] = []

    @property
    def code_limit(self) -> int:
        return len(self._values)

    @property
    def live_count(self) -> int:
        return len(self._codes)

    def intern(self, values: pa.Array) -> I32:
        encoded = pc.dictionary_encode(values)
        distinct = np.fromiter(
            map(self._intern_value, encoded.dictionary.to_pylist()), np.int32, len(encoded.dictionary)
        )
        indices = encoded.indices
        if indices.null_count == 0:
            codes: I32 = distinct[indices.to_numpy()]
            return codes
        out = empty_codes(len(values))
        valid = indices.is_valid().to_numpy(zero_copy_only=False)
        out[valid] = distinct[indices.drop_null().to_numpy()]
        return out

    def find(self, values: pa.Array) -> I32:
        return np.array([self._codes.get(value, NONE) for value in values.to_pylist()], np.int32)

    def values(self, codes: I32) -> pa.Array:
        return pa.array([self._values[code] for code in codes], self._type)

    def recycle(self, used: U8) -> None:
        self._free_codes = np.flatnonzero(used == 0).tolist()
        self._codes = {value: code for value, code in self._codes.items() if used[code]}
        for code in self._free_codes:
            self._values[code] = None

    def _intern_value(self, value: object) -> int:
        code = self._codes.get(value)
        if code is None:
            if self._free_codes:
                code = self._free_codes.pop()
                self._values[code] = value
            else:
                code = len(self._values)
                self._values.append(value)
            self._codes[value] = code
        return code


class NestedInterner(ObjectInterner):
    """Arrays, maps and structs: Python for each row. Only changes that a restart finds unread are compared by them."""

    def __init__(self, type_: pa.DataType) -> None:
        super().__init__(type_)
        self._originals: dict[object, object] = {}

    def intern(self, values: pa.Array) -> I32:
        out = empty_codes(len(values))
        for place, value in enumerate(values.to_pylist()):
            if value is not None:
                key = repr(value)  # equal for equal values, NaN too
                self._originals[key] = value
                out[place] = self._intern_value(key)
        return out

    def values(self, codes: I32) -> pa.Array:
        return pa.array([self._originals[self._values[code]] for code in codes], self._type)


class NullableInterner:
    """Values of another interner, with NULL as one more value: its code is 0, the others are moved up by one."""

    def __init__(self, type_: pa.DataType, values: Interner) -> None:
        self._type = type_
        self._values = values

    @property
    def code_limit(self) -> int:
        return self._values.code_limit + 1

    @property
    def live_count(self) -> int:
        return self._values.live_count

    def intern(self, values: pa.Array) -> I32:
        return self._values.intern(values) + np.int32(1)

    def find(self, values: pa.Array) -> I32:
        codes = self._values.find(values)
        return np.where(codes == NONE, codes, codes + np.int32(1))

    def values(self, codes: I32) -> pa.Array:
        known = codes > 0
        if known.all():
            return self._values.values(codes - np.int32(1))
        if not known.any():
            return pa.nulls(codes.size, self._type)
        values = self._values.values(np.where(known, codes, codes[known][0]).astype(np.int32) - np.int32(1))
        return pc.if_else(pa.array(known), values, pa.scalar(None, self._type))

    def recycle(self, used: U8) -> None:
        self._values.recycle(np.ascontiguousarray(used[1:]))


def make_interner(type_: pa.DataType, capacity: int) -> Interner:
    by_word = (
        pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_date32(type_)
        or pa.types.is_timestamp(type_)
        or pa.types.is_duration(type_)
    )
    if pa.types.is_nested(type_):
        return NestedInterner(type_)
    return NumberInterner(type_, capacity) if by_word else ObjectInterner(type_)
