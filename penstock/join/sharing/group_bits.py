"""Sets of filter groups as a matrix of bits: a row for each set, a bit for each group.

Law: row i holds the bits of set i. Rows are added when they are first read. Cost: reading a group, or the longest
window, of new sets is a compiled pass over their bits, for any number of groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.join.sharing.kernels import find_longest_windows
from penstock.state import I32, I64, U8, Mask

_BLOCK_BITS = 1 << 24
"""The most bits that are unpacked at a time."""


class GroupBits:
    """The bits of a list of sets that only grows."""

    def __init__(self, groups: int) -> None:
        self._rows: NDArray[np.uint8] = np.zeros((1, _count_bytes(groups)), np.uint8)
        self._known = 0

    def widen(self, groups: int) -> None:
        """Make room for more groups, which are in none of the sets."""
        more = _count_bytes(groups) - self._rows.shape[1]
        if more > 0:
            self._rows = np.pad(self._rows, ((0, 0), (0, max(more, self._rows.shape[1]))))

    def read(self, sets: Sequence[int]) -> NDArray[np.uint8]:
        """The bits of all sets."""
        width = self._rows.shape[1]
        if self._known < len(sets):
            if len(sets) > len(self._rows):
                grown = np.zeros((max(len(sets), 2 * len(self._rows)), width), np.uint8)
                grown[: self._known] = self._rows[: self._known]
                self._rows = grown
            new = b"".join(set_.to_bytes(width, "little") for set_ in sets[self._known :])
            self._rows[self._known : len(sets)] = np.frombuffer(new, np.uint8).reshape(-1, width)
            self._known = len(sets)
        return self._rows[: len(sets)]

    def read_group(self, sets: Sequence[int], group: int, first: int = 0) -> Mask:
        """For each set from `first` on whether it contains a group."""
        bits: U8 = self.read(sets)[first:, group >> 3]
        return (bits >> np.uint8(group & 7) & np.uint8(1)).astype(np.bool_)

    def find_longest(self, sets: Sequence[int], windows: I64, first: int = 0) -> I64:
        """For each set from `first` on the longest of its groups' windows; 0 for the empty set."""
        found = np.zeros(len(sets) - first, np.int64)
        find_longest_windows(self.read(sets)[first:], windows, found)
        return found

    def read_groups(self, sets: Sequence[int], codes: I64, groups: Sequence[int]) -> NDArray[np.uint8]:
        """For each of some groups whether they are in some of the sets, given by their codes, as packed bits."""
        rows = self.read(sets)[codes]
        places = np.array(groups, np.int64)
        return np.packbits(rows[:, places >> 3].T >> (places & 7).astype(np.uint8)[:, np.newaxis] & 1, axis=1)

    def move_groups(self, sets: Sequence[int], codes: I32, kept: Sequence[int | None]) -> list[int]:
        """Some sets, given by their codes, with group `kept[i]` as group i; a new group (None) is in none of them."""
        places = np.array([place or 0 for place in kept], np.int64)
        stays = np.array([place is not None for place in kept], np.uint8)
        moved: list[int] = []
        block = max(1, _BLOCK_BITS // max(1, len(kept)))
        for first in range(0, codes.size, block):
            rows = self.read(sets)[codes[first : first + block]]
            bits = (rows[:, places >> 3] >> (places & 7).astype(np.uint8) & 1) * stays
            moved += [int.from_bytes(row.tobytes(), "little") for row in np.packbits(bits, axis=1, bitorder="little")]
        return moved


def _count_bytes(groups: int) -> int:
    return max(1, -(-groups // 8))
