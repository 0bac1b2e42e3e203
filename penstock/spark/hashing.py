"""Hashes of Arrow columns: equal values have equal hashes, on every machine and in every run.

Values that are equal for the engine have equal hashes: integers of any width, floats of any width (-0.0 is 0.0, NaN is
NaN). NULL has a hash too; callers omit it where it matches no value.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

U64 = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_PRIME = np.uint64(0x100000001B3)


def mix_bits(words: U64) -> U64:
    """The finalizer of splitmix64."""
    z = words + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def hash_column(column: pa.Array, salt: int = 0) -> U64:
    """A hash for every value of a column."""
    return mix_bits(_to_words(column) + np.uint64(salt * int(_GOLDEN) % 2**64))


def hash_rows(columns: Sequence[pa.Array], rows: int) -> U64:
    """A hash for every row."""
    total: U64 = np.zeros(rows, np.uint64)
    for column in columns:
        words = hash_column(column)
        if column.null_count:
            words[~column.is_valid().to_numpy(zero_copy_only=False)] = _GOLDEN
        total = mix_bits(total * _PRIME + words)
    return total


def _to_words(column: pa.Array) -> U64:
    kind = column.type
    if pt.is_string(kind) or pt.is_binary(kind):
        return _hash_bytes(column)
    if pt.is_struct(kind):
        return hash_rows(column.flatten(), len(column))
    if pt.is_list(kind) or pt.is_map(kind):
        offsets = column.offsets.to_numpy()
        sums: U64 = np.append(np.zeros(1, np.uint64), np.cumsum(hash_column(column.values), dtype=np.uint64))
        totals: U64 = sums[offsets[1:]] - sums[offsets[:-1]]
        return totals
    if pt.is_decimal(kind):
        low_high = np.frombuffer(column.buffers()[1], np.uint64).reshape(-1, 2)
        low_high = low_high[column.offset : column.offset + len(column)]
        return low_high[:, 0] * _PRIME + low_high[:, 1]
    if pt.is_floating(kind):
        values = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False) + 0.0
        words = values.view(np.int64).copy()
        words[np.isnan(values)] = -1
        floats: U64 = words.view(np.uint64)
        return floats
    if pt.is_date32(kind):
        column = column.cast(pa.int32())
    integers = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    unsigned: U64 = np.ascontiguousarray(integers).view(np.uint64)
    return unsigned


def _hash_bytes(column: pa.Array) -> U64:
    """Polynomials over the bytes of each value, summed without a loop in Python."""
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(b"" if pt.is_binary(column.type) else "", column.type))
    if not len(column):
        return np.zeros(0, np.uint64)
    _, offsets_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[column.offset : column.offset + len(column) + 1]
    offsets = offsets.astype(np.int64)
    lengths = np.diff(offsets)
    words: U64 = lengths.astype(np.uint64)
    full = np.flatnonzero(lengths)
    if full.size:
        data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]].astype(np.uint64) + np.uint64(1)
        starts = offsets[:-1][full] - offsets[0]
        within = np.arange(data.size) - np.repeat(starts, lengths[full])
        powers = np.full(int(lengths.max()), _PRIME, np.uint64).cumprod(dtype=np.uint64)
        words[full] += np.add.reduceat(data * powers[within], starts)
    return words
