"""Result rows that have not expired yet: when they do, their end is reported.

Law: `pop_due` returns every row given to `add` exactly once, with the time at which it expires, in the first call whose
bound reaches it. A row that never expires is never returned. An expiration that is known from the start costs O(log n)
per row and call. Rows with a part in a ROWS window are checked again, because their expiration depends on later rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.ops.protocol import Changes
from penstock.state import FOREVER, I64, Renumbering


@dataclass(frozen=True)
class _ExpirationChunk:
    """Current rows, the next to expire first. `ids` has one line for each ROWS leaf: its row in each result."""

    dies: I64
    numbers: I64
    ids: NDArray[np.int64]
    columns: Mapping[str, pa.Array]

    def take(self, chosen: I64) -> _ExpirationChunk:
        indices = pa.array(chosen)
        columns = {name: column.take(indices) for name, column in self.columns.items()}
        return _ExpirationChunk(self.dies[chosen], self.numbers[chosen], self.ids[:, chosen], columns)


def _merge_chunks(a: _ExpirationChunk, b: _ExpirationChunk) -> _ExpirationChunk:
    columns = {name: pa.concat_arrays([a.columns[name], b.columns[name]]) for name in a.columns}
    return _ExpirationChunk(
        np.concatenate([a.dies, b.dies]),
        np.concatenate([a.numbers, b.numbers]),
        np.concatenate([a.ids, b.ids], axis=1),
        columns,
    )


def _sort_chunk(chunk: _ExpirationChunk) -> _ExpirationChunk:
    return chunk.take(np.argsort(chunk.dies, kind="stable"))


class Expirations:
    """Current result rows, in chunks of geometric sizes, so that there are few of them."""

    def __init__(self, late_ending: list[Callable[[I64], I64]]) -> None:
        """`late_ending`: for every ROWS leaf, a function that returns when its rows expire, as far as is known."""
        self._late_ending = late_ending
        self._chunks: list[_ExpirationChunk] = []

    def __len__(self) -> int:
        return sum(chunk.dies.size for chunk in self._chunks)

    def add(self, dies: I64, numbers: I64, ids: NDArray[np.int64], columns: Mapping[str, pa.Array]) -> None:
        if not self._late_ending:
            expiring = np.flatnonzero(dies < FOREVER)
            chunk = _ExpirationChunk(dies, numbers, ids, columns).take(expiring)
        else:
            chunk = _ExpirationChunk(dies, numbers, ids, columns)
        if not chunk.dies.size:
            return
        while self._chunks and self._chunks[-1].dies.size <= 2 * chunk.dies.size:
            chunk = _merge_chunks(self._chunks.pop(), chunk)
        self._chunks.append(_sort_chunk(chunk))

    def next_due(self) -> int | None:
        """The earliest expiration that is known; None if there is none."""
        earliest = min((int(chunk.dies[0]) for chunk in self._chunks), default=int(FOREVER))
        return None if earliest == FOREVER else earliest

    def pop_due(self, bound: int) -> Changes | None:
        """The ends of rows that expire at or before `bound`, in temporal order."""
        due: _ExpirationChunk | None = None
        current = []
        for chunk in self._refresh_chunks():
            count = int(np.searchsorted(chunk.dies, bound, side="right"))
            if count:
                expired = chunk.take(np.arange(count))
                due = expired if due is None else _merge_chunks(due, expired)
            if count < chunk.dies.size:
                current.append(chunk.take(np.arange(count, chunk.dies.size)) if count else chunk)
        self._chunks = current
        if due is None:
            return None
        due = _sort_chunk(due)
        return Changes(due.dies, due.columns, np.full(due.dies.size, -1, np.int8), due.numbers)

    def renumber(self, place: int, change: Renumbering) -> None:
        """Apply new ids of the ROWS leaf `place`. Call it after `pop_due`, when results hold current rows only."""
        for chunk in self._chunks:
            chunk.ids[place], _ = change.apply(chunk.ids[place])

    def _refresh_chunks(self) -> list[_ExpirationChunk]:
        if self._late_ending:
            self._chunks = [_sort_chunk(self._refresh_expirations(chunk)) for chunk in self._chunks]
        return self._chunks

    def _refresh_expirations(self, chunk: _ExpirationChunk) -> _ExpirationChunk:
        dies = chunk.dies
        for ids, dies_now in zip(chunk.ids, self._late_ending, strict=True):
            dies = np.minimum(dies, dies_now(ids))
        return _ExpirationChunk(dies, chunk.numbers, chunk.ids, chunk.columns)
