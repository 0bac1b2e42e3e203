"""Renumbering: the new ids of a leaf's rows after a compaction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.state.code_set import Mask
from penstock.state.kernels import I64


@dataclass(frozen=True)
class Renumbering:
    """Rows `kept` (ascending) become first, first + 1, …; every other row is dead."""

    kept: I64
    first: int

    def apply(self, ids: I64) -> tuple[I64, Mask]:
        """The new ids, and which of the old ids are still alive."""
        place = np.minimum(np.searchsorted(self.kept, ids), max(self.kept.size - 1, 0))
        alive = self.kept[place] == ids if self.kept.size else np.zeros(ids.size, np.bool_)
        return place + self.first, alive

    def map_mark(self, row: int) -> int:
        """The new id of the first row that is still alive at or after an old id."""
        return self.first + int(np.searchsorted(self.kept, row))
