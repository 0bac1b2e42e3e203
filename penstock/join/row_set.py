"""An exact set of rows by identity, for inserting rows if absent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.state import Mask, empty_codes, rowset_add


class RowSet:
    """The rows of a table of ids (one line per alias), found by a hash and compared id by id.

    The table may grow without the set: rows that the set does not know yet are inserted first.
    """

    def __init__(self) -> None:
        self._table = empty_codes(1)
        self._size = 0

    @property
    def nbytes(self) -> int:
        return self._table.nbytes

    def add(self, ids: NDArray[np.int64], stored: NDArray[np.int64], size: int) -> Mask:
        """Which of the rows `ids` are absent from `stored[:, :size]` and from their predecessors in `ids`.

        Absent rows are inserted under the positions they get when they are appended to `stored` in order.
        """
        need = 2 * (size + ids.shape[1])
        if need > self._table.size:
            self._table = empty_codes(1 << need.bit_length())
            self._size = 0
        if self._size < size:
            entered = stored[:, self._size : size]
            rowset_add(entered, stored, self._size, self._size, self._table, np.empty(size, np.bool_))
        absent = np.empty(ids.shape[1], np.bool_)
        rowset_add(ids, stored, size, size, self._table, absent)
        self._size = size + int(absent.sum())
        return absent
