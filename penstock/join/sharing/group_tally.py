"""Results counted by filter group, where the sets of groups are rows of bits.

Law: `take_counts` gives, for each group and each of its windows, how many results younger than the window and not
younger than the next smaller one were added since the last call, and how many older ones. Cost: one compiled pass over
the bits of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from penstock.join.sharing.kernels import count_by_group
from penstock.join.sharing.shared_needs import FilterGroup
from penstock.state import FOREVER, I64, U8


class GroupTally:
    """The results of the groups at some places, by the windows that they have now."""

    def __init__(self, places: Mapping[FilterGroup, int]) -> None:
        self._groups = sorted(places, key=places.__getitem__)
        windows = [np.array(sorted(set(group.list_uniform_windows())), np.int64) for group in self._groups]
        self._firsts: I64 = np.cumsum([0, *(each.size + 1 for each in windows)])
        self._ends: I64 = np.concatenate([np.append(each, FOREVER) for each in windows])
        self._counts: I64 = np.zeros(self._ends.size, np.int64)

    def add(self, age: I64, bits: U8) -> None:
        """Count results by their ages and the groups that need them."""
        count_by_group(age, bits, self._ends, self._firsts, self._counts)

    def take_counts(self) -> Iterator[tuple[FilterGroup, I64, I64]]:
        """For each group its windows, and the results by slice; the last ones are older than all windows."""
        counts, self._counts = self._counts, np.zeros(self._ends.size, np.int64)
        for place, group in enumerate(self._groups):
            first, last = self._firsts[place], self._firsts[place + 1]
            if counts[first:last].any():
                yield group, self._ends[first : last - 1], counts[first:last]
