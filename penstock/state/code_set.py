"""Sets of key codes, one byte per code: the demanded keys of a gate, the complete keys of a state."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.state.kernels import I32, U8

Mask = NDArray[np.bool_]


class CodeSet:
    """An exact set of codes."""

    def __init__(self) -> None:
        self._marks: U8 = np.zeros(1, np.uint8)
        self.size = 0

    def __len__(self) -> int:
        return self.size

    @property
    def nbytes(self) -> int:
        return self._marks.nbytes

    def has(self, codes: I32) -> Mask:
        """Which codes are in the set. NONE is never in it."""
        if codes.size and int(codes.max()) >= self._marks.size:
            known = (codes >= 0) & (codes < self._marks.size)
            out = np.zeros(codes.size, np.bool_)
            out[known] = self._marks[codes[known]] != 0
            return out
        present: Mask = self._marks[codes] != 0
        return present & (codes >= 0)

    def add(self, codes: I32) -> I32:
        """Add codes (not NONE); returns the codes that were not in the set, each once."""
        new = np.unique(codes[~self.has(codes)])
        if new.size:
            self._grow(int(new[-1]))
            self._marks[new] = 1
            self.size += new.size
        return new

    def add_many(self, codes: I32) -> None:
        """Add codes (not NONE), in time that does not depend on how often each is among them."""
        if codes.size:
            self._grow(int(codes.max()))
            self._marks[codes] = 1
            self.size = int(np.count_nonzero(self._marks))

    def _grow(self, code: int) -> None:
        if code >= self._marks.size:
            more = (1 << code.bit_length()) - self._marks.size
            self._marks = np.concatenate([self._marks, np.zeros(more, np.uint8)])

    def codes(self) -> I32:
        return np.flatnonzero(self._marks).astype(np.int32)

    def clear(self) -> None:
        self._marks.fill(0)
        self.size = 0
