"""Instants: 64-bit integers internally, values of a time column in tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.state.kernels import FOREVER, I64

AFTER_END = int(FOREVER) - 16
"""The instant behind the end of all streams. At the end all frontiers are after it, also where they lag by one."""


def to_ticks(column: pa.Array) -> I64:
    """A time column without NULLs as integers."""
    if column.type.bit_width == 64 and len(column):  # as it is, without a call of Arrow
        return np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset)
    values: I64 = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return values


def as_times(instants: I64, type_: pa.DataType) -> pa.Array:
    """Instants as values of a time column; values beyond the range of a narrow integer are clipped to it.

    NULL is behind the end of all streams.
    """
    if instants.size and int(instants.max()) >= AFTER_END:
        ended = instants >= AFTER_END
        times = as_times(np.where(ended, 0, instants), type_)
        return times.take(pa.array(np.arange(instants.size), mask=ended))
    if type_.bit_width == 64:
        return pa.Array.from_buffers(type_, instants.size, [None, pa.py_buffer(np.ascontiguousarray(instants))])
    if pa.types.is_integer(type_):
        last = 2 ** (type_.bit_width - 1) - 1
        instants = np.clip(instants, -last - 1, last)
    return pa.array(instants).cast(type_)
