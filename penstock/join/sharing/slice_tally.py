"""Results counted by code of interest and slice.

Law: `list_entries` gives for each code and slice how many results were added. Cost: one compiled pass over the ages of
a batch. With few codes and slices the counts are a matrix; with many, only the pairs that occur are kept.
"""

from __future__ import annotations

import numpy as np

from penstock.join.sharing.kernels import count_slices, find_slice_keys
from penstock.state import FOREVER, I32, I64, CodeTable

DENSE_CELLS = 1 << 16
"""The most pairs of a code and a slice that are kept as a matrix."""


class SliceTally:
    """The results between some windows, which end the slices; results older than all windows are in a last slice."""

    def __init__(self, windows: I64) -> None:
        self.windows = windows
        self.youngest_end = int(windows[0]) if windows.size else int(FOREVER)
        """The age at which the youngest slice ends."""
        self._slices = windows.size + 1
        self._matrix = np.zeros((1, self._slices), np.int64)
        self._pairs = CodeTable()
        self._counts: I64 = np.empty(0, np.int64)

    def add(self, age: I64, codes: I32, code_limit: int) -> None:
        """Count results by their ages and codes, which are below `code_limit`; no codes: all have the code 0."""
        if code_limit * self._slices <= DENSE_CELLS:
            more = code_limit - len(self._matrix)
            if more > 0:
                self._matrix = np.concatenate([self._matrix, np.zeros((more, self._slices), np.int64)])
            count_slices(age, codes, self.windows, self._matrix)
            return
        keys = np.empty(age.size, np.int64)
        find_slice_keys(age, codes, self.windows, keys)
        self._add_pairs(keys, np.ones(age.size, np.int64))

    def add_youngest(self, results: int) -> None:
        """Count results of the youngest slice, all with the code 0."""
        self._matrix[0, 0] += results

    def _add_pairs(self, keys: I64, counts: I64) -> None:
        found = self._pairs.intern(keys)
        if self._pairs.code_limit > self._counts.size:
            grown = np.zeros(2 * self._pairs.code_limit, np.int64)
            grown[: self._counts.size] = self._counts
            self._counts = grown
        np.add.at(self._counts, found, counts)

    def list_entries(self) -> tuple[I64, I64, I64]:
        """Codes, slices and counts."""
        codes, slices = np.nonzero(self._matrix)
        keys = self._pairs.values(np.arange(self._pairs.code_limit, dtype=np.int32))
        return (
            np.concatenate([codes, keys // self._slices]),
            np.concatenate([slices, keys % self._slices]),
            np.concatenate([self._matrix[codes, slices], self._counts[: keys.size]]),
        )

    def reslice(self, windows: I64) -> SliceTally:
        """The same counts by other windows: results of a removed window go to the next larger one."""
        new = SliceTally(windows)
        codes, slices, counts = self.list_entries()
        if counts.size:
            moved = np.append(np.searchsorted(windows, self.windows), windows.size)
            new._add_pairs(codes * new._slices + moved[slices], counts)
        return new
