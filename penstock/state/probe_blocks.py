"""Blocks of matches: a probe returns its pairs in blocks of bounded size, for any fan-out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.state.alloc import copy_array
from penstock.state.kernels import I32, I64, NONE, U8

NO_AGE_LIMIT: I64 = np.empty(0, np.int64)
"""For probes without a limit on the age of a row."""

ProbeOut = tuple[I64, I64, I64, I64]
RowLines = NDArray[np.int64]
"""Rows, a column for each: lines of ids, a line of births, a line of deaths."""


@dataclass(frozen=True)
class PairBlock:
    """Pairs: probe i matches `row`, and the combination lives in [born, dies)."""

    probe: I64
    row: I64
    born: I64
    dies: I64

    def __len__(self) -> int:
        return self.probe.size


@dataclass(frozen=True)
class ProbeTarget:
    """The rows that an index refers to: their lifetimes, and which of them count."""

    mask: int
    """Row i lies at i & mask; the mask -1 is for rows that lie at their own number."""
    base: int
    limit: int
    born: I64
    dies: I64
    fresh: U8
    """One byte per row if only rows that are not fresh count; empty if all rows count."""


def find_equal_pairs(left: I32, right: I32, block: int) -> Iterator[tuple[I64, I64]]:
    """Blocks of positions (i, j) with left[i] == right[j], for rows without an index."""
    order = np.argsort(right, kind="stable")
    begin, end = (np.searchsorted(right, left, side, sorter=order) for side in ("left", "right"))
    found = np.cumsum(end - begin)
    first = 0
    while first < left.size:
        done = found[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(found, done + block, "right")))
        counts = (end - begin)[first:last]
        one = np.repeat(np.arange(first, last), counts)
        places = np.arange(one.size) - np.repeat(np.cumsum(counts) - counts, counts) + begin[one]
        if one.size:
            yield one, order[places]
        first = last


class ProbeBuffer:
    """Output arrays that kernels reuse."""

    def __init__(self, block: int) -> None:
        self.block = block
        self._out: ProbeOut = (*(np.empty(block, np.int64) for _ in range(4)),)  # type: ignore[assignment]
        self._row_buffers: dict[int, RowLines] = {}
        self.code_buffer: I32 = np.empty(block, np.int32)
        """Room for a code of each of these rows."""

    def get_row_buffer(self, width: int) -> RowLines:
        """Room for a block of rows with so many ids, and their lifetimes."""
        if width not in self._row_buffers:
            self._row_buffers[width] = np.empty((width + 2, self.block), np.int64)
        return self._row_buffers[width]

    def iter_blocks(
        self, kernel: Callable[[int, int, ProbeOut], tuple[int, int, int]], probes: int
    ) -> Iterator[PairBlock]:
        """Call a probe kernel until it has finished the last probe; each call continues where the last one stopped."""
        at, row = 0, NONE
        while at < probes:
            pairs, at, row = kernel(at, row, self._out)
            if pairs:
                yield PairBlock(*[copy_array(column[:pairs]) for column in self._out])
