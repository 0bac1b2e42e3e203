"""The interest of a leaf's rows: which filter groups need each row, and how long.

Law: `read(ids)` are the codes of interest under which the rows were written. A row lives as long as the longest window
of the groups that need it. It exists only while queries with different needs share the leaf.

State: one code per row, see `code_ring`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.join.sharing.code_ring import CodeRing
from penstock.join.sharing.interest import NO_INTEREST, Interest
from penstock.join.sharing.kernels import clip_expirations, compute_window_ends, intersect_bits, intersect_codes
from penstock.join.stored_rows import StoredRows
from penstock.state import I32, I64, U8


class LeafInterest:
    """The codes of interest of the rows of one leaf."""

    def __init__(
        self, alias: str, interest: Interest, rows: StoredRows, codes: I32, null_codes: Mapping[int, int]
    ) -> None:
        """`codes` are those of the stored rows."""
        self.interest = interest
        self.null_codes = null_codes
        """Classes in which a term may be NULL, each with the code of the groups that need the tuple nevertheless."""
        self._alias = alias
        self._rows = rows
        self._codes = CodeRing()
        self._windows: I64 = np.empty(0, np.int64)
        self._readers_code = 0, NO_INTEREST
        self.append(rows.base, codes, codes.size)

    @property
    def nbytes(self) -> int:
        return self._codes.nbytes

    @property
    def ring(self) -> NDArray[np.integer[Any]]:
        """The codes as kernels read them: row i at i & (length - 1)."""
        return self._codes.ring

    def encode_readers(self) -> int:
        """The code of all groups that read this stream."""
        groups = self.interest.filter_groups
        if self._readers_code[0] != len(groups):
            readers = (place for place, group in enumerate(groups) if self._alias in group.longest)
            self._readers_code = len(groups), self.interest.encode_groups(readers)
        return self._readers_code[1]

    def append(self, first: int, codes: I32 | None, rows: int) -> None:
        """The codes of rows from `first` on; None if all groups that read this stream need all of them."""
        if codes is None:
            code = self.encode_readers()
            if self._codes.has_only(code):
                return
            codes = np.full(rows, code, np.int32)
        wide = not self.interest.has_few_sets
        self._codes.write(self._rows.base, first, codes, self._rows.capacity, wide=wide)

    def resize(self) -> None:
        """The rings of the rows have another capacity."""
        self._codes.resize(self._rows.capacity, self._rows.base, self._rows.end)

    def move(self, kept: I64, first: int) -> None:
        """Keep some rows only, as rows first, first + 1, …"""
        self._codes.move(kept, first)

    def read(self, ids: I64) -> I32:
        return self._codes.take(ids)

    def read_needs(self, ids: I64, groups: Sequence[int]) -> list[bytes]:
        """For each of some groups which of the sets of interest that occur in rows contain it."""
        return self.interest.read_groups(np.flatnonzero(np.bincount(self.read(ids))), groups)

    def list_windows(self) -> I64:
        """By code, the longest window on this stream of the groups in its set."""
        if self._windows.size < len(self.interest.sets):
            self._windows = self.interest.longest_windows(self._alias)
        return self._windows

    def compute_expirations(self, born: I64, codes: I32) -> I64:
        """When tuples with these codes die."""
        dies = np.empty(born.size, np.int64)
        compute_window_ends(born, self.list_windows(), codes, dies)
        return dies

    def clip_expirations(self, ids: I64, codes: I32, dies: I64) -> None:
        """Lower the deaths of combinations to when these rows leave the longest window of the groups that need them."""
        self.clip_by_windows(ids, self.list_windows(), codes, dies)

    def clip_by_windows(self, ids: I64, windows: I64, codes: I32, dies: I64) -> None:
        """As `clip_expirations`, with the windows by code."""
        clip_expirations(self._rows.born, ids, windows, codes, dies)

    def intersect(self, ids: I64, intersections: NDArray[np.int32], codes: I32) -> None:
        """Restrict codes of interest to the groups that also need these rows."""
        intersect_codes(self._codes.ring, ids, intersections, codes)

    def intersect_bits(self, ids: I64, bits: U8) -> None:
        """As `intersect`, for sets that are rows of bits."""
        intersect_bits(self._codes.ring, ids, self.interest.read_sets(), bits)

    def narrow_nulls(self, chosen: I64, codes: dict[int, I32], wanted: I32) -> tuple[I64, dict[int, I32], I32]:
        """Restrict tuples with a NULL term to the groups that do not join on that term."""
        for id_, by in self.null_codes.items():
            excused = self.interest.intersect(wanted, np.full(wanted.size, by, np.int32))
            wanted = np.where(codes[id_] < 0, excused, wanted)
        kept = wanted != NO_INTEREST
        return chosen[kept], {id_: column[kept] for id_, column in codes.items()}, wanted[kept]
