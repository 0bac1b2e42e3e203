"""The codes of interest of a leaf's rows.

Law: `take(ids)` are the codes that were written for these rows. While all rows have the same code, the ring has one
place for all of them; otherwise a code takes one byte, or four bytes if there are too many codes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.state import I32, I64, ring_move, ring_resize, ring_take, ring_write


class CodeRing:
    """A ring of codes. Kernels read `ring`: row i lies at i & (length - 1)."""

    def __init__(self) -> None:
        self.ring: NDArray[np.integer[Any]] = np.zeros(1, np.uint8)

    @property
    def nbytes(self) -> int:
        return self.ring.nbytes

    def has_only(self, code: int) -> bool:
        """Whether all rows have this code."""
        return self.ring.size == 1 and bool(self.ring[0] == code)

    def write(self, base: int, first: int, codes: I32, capacity: int, *, wide: bool) -> None:
        """Write the codes of rows from `first` on in a leaf of that capacity, whose rows begin at `base`.

        `wide`: a code may need more than one byte.
        """
        if not codes.size:
            return
        if wide and self.ring.dtype == np.uint8:
            self.ring = self.ring.astype(np.int32)
        if self.ring.size == 1:
            if first == base:
                self.ring[0] = codes[0]
            if not np.count_nonzero(codes != self.ring[0]):
                return
            self.ring = np.full(capacity, self.ring[0])
        ring_write(self.ring, first, codes)

    def take(self, ids: I64) -> I32:
        return ring_take(self.ring, ids).astype(np.int32, copy=False)

    def resize(self, capacity: int, base: int, end: int) -> None:
        if self.ring.size > 1:
            self.ring = ring_resize(self.ring, capacity, base, end)

    def move(self, kept: I64, first: int) -> None:
        """Keep some rows only, as rows first, first + 1, …"""
        if self.ring.size > 1:
            self.ring = ring_move(self.ring, kept, first)
