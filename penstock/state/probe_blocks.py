"""Blocks of matches: a probe hands out its pairs in pieces of bounded size, whatever the fan-out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.state.alloc import copy_array
from penstock.state.kernels import I32, I64, NONE, U8

NO_AGE_LIMIT: I64 = np.empty(0, np.int64)
"""For probes that do not ask how old a row is."""

ProbeOut = tuple[I64, I64, I64, I64]
InterestOut = tuple[I64, I64, I64, I64, I32]


@dataclass(frozen=True)
class PairBlock:
    """Pairs: probe i meets `row`, and the combination lives in [born, dies)."""

    probe: I64
    row: I64
    born: I64
    dies: I64
    interest: I32 | None = None
    """Who wants both, where that was asked."""

    def __len__(self) -> int:
        return self.probe.size


@dataclass(frozen=True)
class ProbeTarget:
    """The rows an index refers to: where their lives are, and which of them count."""

    mask: int
    """Row i lies at i & mask; -1 where rows lie at their own number."""
    base: int
    limit: int
    born: I64
    dies: I64
    fresh: U8
    """One byte per row where only rows that are not fresh count; empty where all do."""


def find_equal_pairs(left: I32, right: I32, block: int) -> Iterator[tuple[I64, I64]]:
    """Blocks of positions (i, j) with left[i] == right[j], for rows that no index holds."""
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
    """Output space that kernels fill again and again."""

    def __init__(self, block: int) -> None:
        self.block = block
        self._out: ProbeOut = (*(np.empty(block, np.int64) for _ in range(4)),)  # type: ignore[assignment]
        self._interest_out: InterestOut = (*self._out, np.empty(block, np.int32))

    def iter_blocks(
        self, kernel: Callable[[int, int, ProbeOut], tuple[int, int, int]], probes: int
    ) -> Iterator[PairBlock]:
        """Call a probe kernel until it has come to its last probe; each call goes on where the last one stopped."""
        return _iter_blocks(kernel, probes, self._out)

    def iter_interest_blocks(
        self, kernel: Callable[[int, int, InterestOut], tuple[int, int, int]], probes: int
    ) -> Iterator[PairBlock]:
        """As `blocks`, for a kernel that also says who wants each pair."""
        return _iter_blocks(kernel, probes, self._interest_out)


def _iter_blocks(
    kernel: Callable[[int, int, Any], tuple[int, int, int]], probes: int, out: Sequence[Any]
) -> Iterator[PairBlock]:
    at, row = 0, NONE
    while at < probes:
        pairs, at, row = kernel(at, row, out)
        if pairs:
            yield PairBlock(*[copy_array(column[:pairs]) for column in out])
