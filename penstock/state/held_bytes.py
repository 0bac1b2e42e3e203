"""How many bytes objects hold: arrays, Arrow data and Python containers, each block of memory counted once.

Law: a block that several objects share is counted for the object that is added first. Of a large block only the pages
that were written count, because the others take no memory yet. Plans, types and functions count as nothing. Of a
container with many entries a sample is measured.

Cost: one visit per object that was not seen before, and one system call per large block.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections import deque
from collections.abc import Iterable
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Protocol, runtime_checkable
from weakref import ref

import numpy as np
import pyarrow as pa

_LARGE_BLOCK = 1 << 18
"""Bytes from which on the pages of a block are looked up."""
_SAMPLE = 64
"""The number of entries that are measured of a large container."""
_NO_STATE = (str, bytes, type(None), bool, int, float, type, FunctionType, MethodType, BuiltinFunctionType, ModuleType,
             ref, pa.DataType, pa.Schema, pa.Field, np.dtype, np.generic)  # fmt: skip
_PLAN_PACKAGES = ("penstock.plan", "penstock.cql", "penstock.expr")
_ARROW_DATA = (pa.Array, pa.ChunkedArray, pa.RecordBatch, pa.Table)


@runtime_checkable
class MeasuredObject(Protocol):
    """An object that knows what it holds in memory; its attributes are not visited."""

    def measure_held(self) -> int: ...


class HeldBytes:
    """Adds up what objects hold."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._kept: list[object] = []
        """Objects made during the visit stay alive, so that no later one gets their identity."""

    def add(self, *roots: object) -> int:
        """The bytes that some objects hold, without those counted before."""
        total, stack = 0, list(roots)
        while stack:
            item = stack.pop()
            if isinstance(item, _NO_STATE) or id(item) in self._seen:
                continue
            self._seen.add(id(item))
            if isinstance(item, np.ndarray):
                total += self._add_array(item)
            elif isinstance(item, _ARROW_DATA):
                total += sum(self._add_block(*block) for block in _list_buffers(item))
            elif isinstance(item, (dict, list, tuple, set, frozenset, deque)):
                total += sys.getsizeof(item) + self._add_entries(item, stack)
            elif isinstance(item, MeasuredObject):
                total += item.measure_held()
            elif not type(item).__module__.startswith(_PLAN_PACKAGES):
                total += sys.getsizeof(item)
                stack += _list_attributes(item)
        return total

    def _add_entries(self, container: Any, stack: list[object]) -> int:
        """Put the entries on the stack; of many entries the bytes are estimated by a sample, and returned."""
        entries = (container.keys(), container.values()) if isinstance(container, dict) else (container,)
        if len(container) <= 4 * _SAMPLE:
            for part in entries:
                stack += part
            return 0
        sample = [list(islice(part, _SAMPLE)) for part in entries]
        self._kept.append(sample)
        return sum(self.add(*part) + sum(map(sys.getsizeof, part)) for part in sample) * len(container) // _SAMPLE

    def _add_array(self, array: np.ndarray[Any, Any]) -> int:
        while isinstance(array.base, np.ndarray):
            array = array.base
        size = self._add_block(array.__array_interface__["data"][0], array.nbytes)
        if array.dtype == np.object_ and size:
            size += self.add(*islice(array.flat, _SAMPLE)) * array.size // min(_SAMPLE, array.size)
        return size

    def _add_block(self, address: int, size: int) -> int:
        key = -address  # identities of objects are positive
        if not size or key in self._seen:
            return 0
        self._seen.add(key)
        return size if size < _LARGE_BLOCK else count_resident(address, size)


def _list_buffers(data: Any) -> Iterable[tuple[int, int]]:
    if isinstance(data, pa.Array):
        return [(each.address, each.size) for each in data.buffers() if each is not None]
    parts = data.chunks if isinstance(data, pa.ChunkedArray) else data.columns
    return [block for part in parts for block in _list_buffers(part)]


def _list_attributes(item: object) -> list[object]:
    found: list[object] = list(getattr(item, "__dict__", {}).values())
    for cls in type(item).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        names = (slots,) if isinstance(slots, str) else slots
        found += [getattr(item, name) for name in names if name != "__weakref__" and hasattr(item, name)]
    return found


# ── pages ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _load_mincore() -> Any:
    try:
        found = ctypes.CDLL(None, use_errno=True).mincore
    except (OSError, AttributeError):
        return None
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    return found


_MINCORE = _load_mincore()


def count_resident(address: int, size: int) -> int:
    """The bytes of a block in pages that take memory; all of them where the system does not tell."""
    if _MINCORE is None:
        return size
    begin = address & ~(mmap.PAGESIZE - 1)
    pages = np.zeros(-(-(address + size - begin) // mmap.PAGESIZE), np.uint8)
    if _MINCORE(begin, pages.size * mmap.PAGESIZE, pages.ctypes.data):
        return size
    return min(size, int(np.count_nonzero(pages & 1)) * mmap.PAGESIZE)
