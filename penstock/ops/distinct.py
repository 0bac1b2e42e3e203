"""The distinct operator: every row once.

Law: a row is in the answer exactly while at least one row with the same values (NULL is NULL, NaN is NaN) is in the
answer of the input. It reads changes of whole instants and writes changes.
State: how often each row is in the answer of the input. Cost: O(n log n) to sort a batch by row, then O(1) a change.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.ops.change_operators import ChangeOperator
from penstock.ops.protocol import Changes, Inlet, Outlet
from penstock.ops.row_groups import AnswerDiffer, GroupCounts, RowGroups, find_change_points
from penstock.state import I32, SHIPPED, Maintenance


class DistinctOperator(ChangeOperator):
    """DISTINCT over columns of given types."""

    def __init__(
        self, id_: str, inlet: Inlet, outlet: Outlet, columns: Mapping[str, pa.DataType],
        maintenance: Maintenance = SHIPPED,
    ) -> None:  # fmt: skip
        super().__init__(id_, inlet, outlet, columns)
        self._groups = RowGroups(list(columns.values()), maintenance)
        self._counts = GroupCounts()
        self._differ = AnswerDiffer()

    def _apply_changes(self, changes: Changes) -> Changes | None:
        if not len(changes):
            return None
        self._groups.recycle(self._counts.counts)
        at = find_change_points(self._groups.encode(list(changes.columns.values()), len(changes)), changes.times)
        bound = self._groups.bound
        present = self._counts.apply(at, changes.signs[at.order], bound) > 0
        return self._differ.compute_presence_changes(at, present, self._read_rows, bound)

    def _count_rows(self) -> int:
        return int(np.count_nonzero(self._counts.counts))

    def _read_rows(self, codes: I32) -> dict[str, pa.Array]:
        return dict(zip(self._types, self._groups.decode(codes), strict=True))
