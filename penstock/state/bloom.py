"""A Bloom filter over keys: a set that may contain more than was added, never less.

Keys are combinations of column codes and are hashed as such. Unlike an exact set, the filter needs no key code.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.state.code_set import Mask
from penstock.state.kernels import I32, U8, bloom_add, bloom_has
from penstock.state.maintenance import Maintenance

HASHES = 4


class BloomFilter:
    """A lossy set of keys, each a code in every one of some classes."""

    def __init__(self, maintenance: Maintenance, keys: int = 0) -> None:
        self._bits_per_key = maintenance.bloom_bits_per_key
        bits = max(maintenance.bloom_bits, 1 << (2 * self._bits_per_key * keys).bit_length())
        self._bytes: U8 = np.zeros(bits // 8, np.uint8)

    def has_room_for(self, keys: int) -> bool:
        """Whether it is large enough for a number of keys."""
        return self._bits_per_key * keys <= 8 * self._bytes.size

    def add(self, parts: Sequence[I32]) -> None:
        bloom_add(np.stack(parts), self._bytes, HASHES)

    def has(self, parts: Sequence[I32]) -> Mask:
        out = np.empty(parts[0].size, np.bool_)
        bloom_has(np.stack(parts), self._bytes, HASHES, out)
        return out

    @property
    def false_positives(self) -> float:
        """The probability that a key that was never added is found, given the bits that are set."""
        return float(np.bitwise_count(self._bytes).sum() / (8 * self._bytes.size)) ** HASHES

    @property
    def nbytes(self) -> int:
        return self._bytes.nbytes

    def clear(self) -> None:
        self._bytes.fill(0)
