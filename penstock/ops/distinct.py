"""The distinct operator: every row once.

Law: a row is in the answer exactly while at least one row with the same values (NULL is NULL, NaN is NaN) is in the
answer of the input. It reads changes of whole instants and writes changes.
State: how often each row is in the answer of the input. Cost: O(n log n) to sort a batch by row, then O(1) a change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.ops.protocol import (
    Changes,
    FrontierBypass,
    Inlet,
    Outlet,
    QueryOperator,
    SavedState,
    as_changes,
    concat,
)
from penstock.ops.row_groups import AnswerDiffer, GroupCounts, RowGroups, find_change_points, make_empty_changes
from penstock.ops.time_merge import pass_frontier
from penstock.state import ALWAYS, I32, SHIPPED, Maintenance


class DistinctOperator(QueryOperator, FrontierBypass):
    """DISTINCT over columns of given types."""

    def __init__(
        self, id_: str, inlet: Inlet, outlet: Outlet, columns: Mapping[str, pa.DataType],
        maintenance: Maintenance = SHIPPED,
    ) -> None:  # fmt: skip
        self.id = id_
        self._inlet = inlet
        self._outlet = outlet
        self._types = dict(columns)
        self._groups = RowGroups(list(columns.values()), maintenance)
        self._counts = GroupCounts()
        self._differ = AnswerDiffer()
        self._emitted = 0

    def has_work(self) -> bool:
        return self._inlet.next_time() is not None

    def run(self, budget: int) -> int:
        batches = self._inlet.take_batches(budget)
        changed = self._apply_changes(as_changes(concat(batches))) if batches else None
        if changed is not None:
            self._emitted += len(changed)
            self._outlet.write(changed)
        pass_frontier(self._inlet, self._outlet)
        return sum(len(batch) for batch in batches)

    def metrics(self) -> dict[str, object]:
        return {"rows": int(np.count_nonzero(self._counts.counts)), "emitted": self._emitted}

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        """The state follows from the current rows of the input."""
        if current is None:
            return None
        (rows,) = current
        changed = self._apply_changes(replace(rows, times=np.full(len(rows), ALWAYS + 1)))
        return make_empty_changes(self._types) if changed is None else changed

    def _apply_changes(self, changes: Changes) -> Changes | None:
        if not len(changes):
            return None
        self._groups.recycle(self._counts.counts)
        at = find_change_points(self._groups.encode(list(changes.columns.values()), len(changes)), changes.times)
        bound = self._groups.bound
        present = self._counts.apply(at, changes.signs[at.order], bound) > 0
        return self._differ.compute_presence_changes(at, present, self._read_rows, bound)

    def _read_rows(self, codes: I32) -> dict[str, pa.Array]:
        return dict(zip(self._types, self._groups.decode(codes), strict=True))
