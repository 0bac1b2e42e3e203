"""Result rows that were born and have not died yet: when they die, their end is reported.

Law: every row given to `add` leaves through `due` exactly once, with the time of its death, at the first call whose
bound reaches it; a row that never dies never leaves. Deaths known at birth cost O(log n) per row and call; rows with a
part in a ROWS window are asked again, because their death depends on tuples to come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.ops.protocol import Batch
from penstock.state.kernels import FOREVER, I64
from penstock.state.renumbering import Renumbering


@dataclass(frozen=True)
class _ExpirationChunk:
    """Living rows, the next to die first. `ids` has one line per ROWS leaf: which of its rows each result holds."""

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
    """Living result rows in chunks of geometric sizes, so that there are few of them."""

    def __init__(self, row_counted: list[Callable[[I64], I64]]) -> None:
        """`mortal`: for every ROWS leaf, the function that tells when its rows die as far as is known."""
        self._row_counted = row_counted
        self._chunks: list[_ExpirationChunk] = []

    def __len__(self) -> int:
        return sum(chunk.dies.size for chunk in self._chunks)

    def add(self, dies: I64, numbers: I64, ids: NDArray[np.int64], columns: Mapping[str, pa.Array]) -> None:
        if not self._row_counted:
            mortal = np.flatnonzero(dies < FOREVER)
            chunk = _ExpirationChunk(dies, numbers, ids, columns).take(mortal)
        else:
            chunk = _ExpirationChunk(dies, numbers, ids, columns)
        if not chunk.dies.size:
            return
        while self._chunks and self._chunks[-1].dies.size <= 2 * chunk.dies.size:
            chunk = _merge_chunks(self._chunks.pop(), chunk)
        self._chunks.append(_sort_chunk(chunk))

    def next_due(self) -> int | None:
        """The earliest death that is known; None if there is none."""
        earliest = min((int(chunk.dies[0]) for chunk in self._chunks), default=int(FOREVER))
        return None if earliest == FOREVER else earliest

    def pop_due(self, bound: int) -> Batch | None:
        """The ends of rows that die at or before `bound`, in temporal order."""
        dead: _ExpirationChunk | None = None
        alive = []
        for chunk in self._refresh_chunks():
            count = int(np.searchsorted(chunk.dies, bound, side="right"))
            if count:
                gone = chunk.take(np.arange(count))
                dead = gone if dead is None else _merge_chunks(dead, gone)
            if count < chunk.dies.size:
                alive.append(chunk.take(np.arange(count, chunk.dies.size)) if count else chunk)
        self._chunks = alive
        if dead is None:
            return None
        dead = _sort_chunk(dead)
        return Batch(dead.dies, dead.columns, np.full(dead.dies.size, -1, np.int8), dead.numbers)

    def renumber(self, place: int, change: Renumbering) -> None:
        """Rows of the ROWS leaf `place` got new ids. Call after `due`: the living refer to living rows only."""
        for chunk in self._chunks:
            chunk.ids[place], _ = change.apply(chunk.ids[place])

    def _refresh_chunks(self) -> list[_ExpirationChunk]:
        if self._row_counted:
            self._chunks = [_sort_chunk(self._refresh_expirations(chunk)) for chunk in self._chunks]
        return self._chunks

    def _refresh_expirations(self, chunk: _ExpirationChunk) -> _ExpirationChunk:
        dies = chunk.dies
        for ids, dies_now in zip(chunk.ids, self._row_counted, strict=True):
            dies = np.minimum(dies, dies_now(ids))
        return _ExpirationChunk(dies, chunk.numbers, chunk.ids, chunk.columns)
