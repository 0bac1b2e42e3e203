"""The set operation operator: INTERSECT, INTERSECT ALL and EXCEPT ALL of two inputs, merged by time.

Law: at every instant a row is in the answer as often as SQL says, given how often rows with the same values (NULL is
NULL, NaN is NaN) are in the answers of the left and of the right: INTERSECT once if both have it, INTERSECT ALL the
smaller number of times, EXCEPT ALL the left's number minus the right's, at least 0. It reads changes of both inputs and
writes changes of whole instants. `by value` has one input: its rows, where a row that leaves and an equal one that
enters at the same instant are one row that stays.

The copies of a row are numbered: with n copies in the answer, those numbered 0 to n - 1 are there.
State: how often each row is in the answer of each input, and the copies in the answer. Cost: O(n log n) to sort a batch
by row, then O(1) a change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.ops.count_merge import CountMerge
from penstock.ops.protocol import I8, Changes, Inlet, Outlet
from penstock.ops.row_groups import ChangePoints, GroupCounts, RowGroups, find_change_points
from penstock.state import I32, I64, SHIPPED, Maintenance

CountedKind = Literal["intersect", "intersect all", "except all", "by value"]
_COUNTS: Mapping[CountedKind, Callable[..., I64]] = {
    "by value": lambda rows: rows,
    "intersect": lambda left, right: np.minimum(np.minimum(left, right), 1),
    "intersect all": np.minimum,
    "except all": lambda left, right: np.maximum(left - right, 0),
}
"""How often a row is in the answer, given how often it is in that of each input."""


class SetOperationOperator(CountMerge):
    """One of the set operations that count rows. `columns` are the output columns."""

    def __init__(
        self, id_: str, inlets: Sequence[Inlet], outlet: Outlet, kind: CountedKind, columns: Mapping[str, pa.DataType],
        maintenance: Maintenance = SHIPPED,
    ) -> None:  # fmt: skip
        super().__init__(id_, inlets, outlet, columns, maintenance)
        self._combine = _COUNTS[kind]
        self._copies = RowGroups([pa.int64()], maintenance)
        self._present = GroupCounts()

    def _find_changes(self, at: ChangePoints, signs: I8, inputs: I64) -> Changes | None:
        counts = [self._count(place, at, signs, inputs) for place in range(len(self._counts))]
        return self._change_copies(at, self._combine(*counts))

    def _change_copies(self, at: ChangePoints, counts: I64) -> Changes | None:
        """The copies that enter and leave, given how often each row is in the answer at every point."""
        before = np.where(at.first, counts, np.append(counts[:1], counts[:-1]))
        changed = np.flatnonzero(counts != before)
        if not changed.size:
            return None
        lowest = np.minimum(counts, before)[changed]
        sizes = np.abs(counts - before)[changed]
        points = np.repeat(changed, sizes)
        copies = np.arange(points.size) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(lowest, sizes)
        order = np.argsort(at.times[points], kind="stable")
        points, copies = points[order], copies[order]
        signs = np.where(counts[points] > before[points], np.int8(1), np.int8(-1))
        codes = at.codes[points].astype(np.int64)
        self._copies.recycle(self._present.counts)
        keys = self._copies.encode([pa.array(codes << 32 | copies)], codes.size)
        copied = find_change_points(keys, at.times[points])
        present = self._present.apply(copied, signs[copied.order], self._copies.bound) > 0
        return self._differ.compute_presence_changes(copied, present, self._read_rows, self._copies.bound)

    def _read_rows(self, copies: I32) -> dict[str, pa.Array]:
        keys = self._copies.decode(copies)[0].to_numpy()
        return dict(zip(self._types, self._groups.decode((keys >> 32).astype(np.int32)), strict=True))
