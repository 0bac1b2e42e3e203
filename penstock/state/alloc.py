"""Allocation of large arrays from Arrow's memory pool.

The C library returns large blocks to the system as soon as they are freed, so that each new block causes a page fault
per page. That costs several times as much as filling the block. Arrow's pool keeps freed memory for a while, and
results are Arrow data in any case.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_LARGE_SIZE = 1 << 16
"""Elements, mostly of eight bytes. Below this size the C library keeps freed memory and is faster."""

_C_LIBRARY = ctypes.CDLL(None)

T = TypeVar("T", bound=np.generic)


def allocate(size: int, dtype: np.dtype[T] | type[T]) -> NDArray[T]:
    """An uninitialized array of `size` elements."""
    if size < _LARGE_SIZE:
        return np.empty(size, dtype)
    return np.frombuffer(pa.allocate_buffer(size * np.dtype(dtype).itemsize), dtype)


def allocate_lines(lines: int, size: int) -> NDArray[np.int64]:
    """Uninitialized lines of `size` integers."""
    if lines * size < _LARGE_SIZE:
        return np.empty((lines, size), np.int64)
    return allocate(lines * size, np.int64).reshape(lines, size)


def gather(values: NDArray[T], places: NDArray[np.integer[Any]]) -> NDArray[T]:
    """The values at some positions of the last axis."""
    if places.size < _LARGE_SIZE:
        return values.take(places, axis=-1)
    shape = (*values.shape[:-1], places.size)
    out = allocate(prod(shape), values.dtype).reshape(shape)
    return np.take(values, places, axis=-1, out=out, mode="clip")  # other modes fill a second array first


def copy_array(values: NDArray[T]) -> NDArray[T]:
    """A copy."""
    if values.size < _LARGE_SIZE:
        return values.copy()
    out = allocate(values.size, values.dtype).reshape(values.shape)
    out[:] = values
    return out


def concat_arrays(parts: Sequence[NDArray[T]], axis: int = -1) -> NDArray[T]:
    """The arrays one after another along an axis."""
    if sum(part.size for part in parts) < _LARGE_SIZE:
        return np.concatenate(parts, axis=axis)
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return np.concatenate(parts, axis=axis, out=allocate(prod(shape), parts[0].dtype).reshape(shape))


def grow_array(values: NDArray[T], size: int) -> NDArray[T]:
    """The values followed by zeros, with another size of the last axis. Pages that are not written take no memory."""
    grown = np.zeros((*values.shape[:-1], size), values.dtype)
    grown[..., : values.shape[-1]] = values
    return grown


def release_unused() -> None:
    """Return freed memory to the system: that of Arrow's pool, and that of the C library where it can."""
    pa.default_memory_pool().release_unused()
    trim = getattr(_C_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)
