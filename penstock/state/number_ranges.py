"""A set of numbers that grows: a union of closed ranges.

Law: a number is in the set if it lies in a range that was added. `add` returns ranges that cover all numbers that were
not in the set before; of earlier numbers they contain at most the ends of earlier ranges.

State: disjoint ranges in ascending order. Cost: O(log n) for each range that is in the set already; a pass over all of
them where one is not.
"""

from __future__ import annotations

import numpy as np

from penstock.state.code_set import Mask
from penstock.state.sorted_index import F64

_NO_NUMBERS: F64 = np.empty(0, np.float64)


class NumberRanges:
    """A union of ranges."""

    def __init__(self) -> None:
        self._lows = self._highs = _NO_NUMBERS

    def __len__(self) -> int:
        """How many disjoint ranges there are."""
        return self._lows.size

    @property
    def nbytes(self) -> int:
        return self._lows.nbytes + self._highs.nbytes

    def has(self, numbers: F64) -> Mask:
        """Which numbers are in the set; NaN never is."""
        return self._covers(numbers, numbers)

    def add(self, lows: F64, highs: F64) -> tuple[F64, F64]:
        """Add the ranges from `lows` to `highs`, of which some may be empty; returns what was not in the set."""
        new = np.flatnonzero((lows <= highs) & ~self._covers(lows, highs))
        if not new.size:
            return _NO_NUMBERS, _NO_NUMBERS
        lows, highs = _unite(lows[new], highs[new])
        added = self._subtract_from(lows, highs)
        self._lows, self._highs = _unite(np.concatenate([self._lows, lows]), np.concatenate([self._highs, highs]))
        return added

    def _covers(self, lows: F64, highs: F64) -> Mask:
        """Which ranges lie within one of the set."""
        if not self._lows.size:
            return np.zeros(lows.size, np.bool_)
        place = np.searchsorted(self._lows, lows, side="right") - 1
        covered: Mask = (place >= 0) & (self._highs[np.maximum(place, 0)] >= highs)
        return covered

    def _subtract_from(self, lows: F64, highs: F64) -> tuple[F64, F64]:
        """The parts of disjoint ranges between those of the set: gap g lies before range g, the last after all."""
        first = np.searchsorted(self._lows, lows, side="left")
        counts = np.searchsorted(self._highs, highs, side="right") - first + 1
        part = np.repeat(np.arange(lows.size), counts)
        gap = np.arange(part.size) + np.repeat(first - np.cumsum(counts) + counts, counts)
        gap_lows, gap_highs = np.append(-np.inf, self._highs), np.append(self._lows, np.inf)
        return np.maximum(lows[part], gap_lows[gap]), np.minimum(highs[part], gap_highs[gap])

    def clear(self) -> None:
        self._lows = self._highs = _NO_NUMBERS


def _unite(lows: F64, highs: F64) -> tuple[F64, F64]:
    """The union of ranges, none empty, as disjoint ranges in order."""
    order = np.argsort(lows)
    lows, reach = lows[order], np.maximum.accumulate(highs[order])
    last = np.flatnonzero(np.append(lows[1:] > reach[:-1], True))
    return lows[np.append(0, last[:-1] + 1)], reach[last]
