"""Results counted by slice: between which two windows of a filter group their age lies.

Law: `count_within(w)` is the number of added results whose age was below w, if the window w existed when they were
added. For a later window, results of the slice that it splits count as older. A removed window leaves its results to
the next larger one.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from penstock.state import I64


class SliceCounts:
    """The results of one filter group by slice."""

    def __init__(self, windows: Iterable[int]) -> None:
        self.windows: I64 = np.array(sorted(set(windows)), np.int64)
        self.counts: I64 = np.zeros(self.windows.size + 1, np.int64)

    def add_counts(self, windows: I64, counts: I64) -> None:
        """Add results counted by the slices of more windows than these; the last count is of results older than all."""
        np.add.at(self.counts, np.searchsorted(self.windows, windows), counts[:-1])
        self.counts[-1] += counts[-1]

    def count_within(self, window: int) -> int:
        return int(self.counts[: int(np.searchsorted(self.windows, window, "right"))].sum())

    def reslice(self, windows: Iterable[int]) -> SliceCounts:
        """The same counts by other windows."""
        new = SliceCounts(windows)
        new.add_counts(self.windows, self.counts)
        return new
