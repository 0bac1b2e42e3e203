"""A map from the numbers of changes to the ids of stored rows.

Law: `pop` returns the id that `put` gave to a number, and removes it; NONE for a number that is not in the map.
Cost: O(1) a number. The table keeps at least half of its slots free.
"""

from __future__ import annotations

import numpy as np

from penstock.state.kernels import I64, NONE, number_map_pop, number_map_put
from penstock.state.maintenance import SHIPPED, Maintenance


class NumberMap:
    """An open-addressing hash table of 64-bit numbers."""

    def __init__(self, maintenance: Maintenance = SHIPPED) -> None:
        self._least = 2 * maintenance.capacity
        self.clear()

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes + self._values.nbytes

    def clear(self) -> None:
        """Remove all numbers."""
        self._size = 0
        self._allocate(self._least)

    def put(self, numbers: I64, rows: I64) -> None:
        """Enter numbers that the map does not have, with the ids of their rows."""
        if 2 * (self._size + numbers.size) > self._keys.size:
            self._grow(self._size + numbers.size)
        number_map_put(numbers, rows, self._keys, self._values)
        self._size += numbers.size

    def pop(self, numbers: I64) -> I64:
        """Remove numbers; returns the id of each, NONE where the map has none."""
        out = np.empty(numbers.size, np.int64)
        self._size -= number_map_pop(numbers, self._keys, self._values, out)
        return out

    def _grow(self, size: int) -> None:
        used = self._values >= 0
        keys, values = self._keys[used], self._values[used]
        self._allocate(1 << (2 * size - 1).bit_length())
        number_map_put(keys, values, self._keys, self._values)

    def _allocate(self, slots: int) -> None:
        self._keys: I64 = np.zeros(slots, np.int64)
        self._values: I64 = np.full(slots, NONE, np.int64)
