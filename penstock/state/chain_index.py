"""Indexes over the rows of a leaf: newest-first chains per key code.

Law: the chain from `head[code]` contains every row with that code and an id >= base, newest first. Rows are dropped at
the old end only, so no row is ever unlinked: a probe reads a chain until it reaches an id below base.
"""

from __future__ import annotations

import numpy as np

from penstock.state.alloc import grow_array
from penstock.state.columns import ring_read, ring_resize
from penstock.state.interning import empty_codes
from penstock.state.kernels import I32, I64, NONE, chain_retract, ring_chain_append


class ChainIndex:
    """Chains over a ring of rows. `codes` holds the key code of each row, to rebuild chains and to list used codes."""

    def __init__(self, capacity: int) -> None:
        self.head: I64 = np.full(capacity, NONE, np.int64)
        self._heads = self.head
        """The heads, and space for more of them: it is written when codes need it."""
        self.next_older: I64 = np.full(capacity, NONE, np.int64)
        self.codes: I32 = empty_codes(capacity)

    def append(self, first: int, codes: I32) -> None:
        """Add rows first, first + 1, …"""
        done = ring_chain_append(codes, 0, first, self.codes, self.head, self.next_older)
        if done < codes.size:
            self._extend(int(codes.max()) + 1)
            ring_chain_append(codes, done, first, self.codes, self.head, self.next_older)

    def _extend(self, code_limit: int) -> None:
        """Have a chain for each code below `code_limit`."""
        known = self.head.size
        if code_limit > self._heads.size:
            self._heads = grow_array(self.head, 1 << (code_limit - 1).bit_length())
        self.head = self._heads[:code_limit]
        self.head[known:] = NONE

    def retract(self, first: int, end: int) -> None:
        """Remove the newest rows, from `first` on."""
        chain_retract(ring_read(self.codes, first, end), first, self.next_older.size - 1, self.head, self.next_older)

    def list_used_codes(self, base: int, end: int) -> I32:
        return ring_read(self.codes, base, end)

    def resize(self, capacity: int, base: int, end: int) -> None:
        self.codes = ring_resize(self.codes, capacity, base, end)
        self.next_older = ring_resize(self.next_older, capacity, base, end)

    @property
    def nbytes(self) -> int:
        return self.head.nbytes + self.next_older.nbytes + self.codes.nbytes
