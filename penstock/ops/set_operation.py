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
from dataclasses import replace
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.ops.protocol import Changes, Inlet, Outlet, QueryOperator, SavedState, as_changes, concat
from penstock.ops.row_groups import (
    AnswerDiffer,
    ChangePoints,
    GroupCounts,
    RowGroups,
    find_change_points,
    grow,
    make_empty_changes,
)
from penstock.ops.time_merge import compute_bound, find_cut, has_ready
from penstock.state import ALWAYS, I32, I64, SHIPPED, Maintenance

CountedKind = Literal["intersect", "intersect all", "except all", "by value"]
_COUNTS: Mapping[CountedKind, Callable[[I64, I64], I64]] = {
    "by value": lambda left, _: left,
    "intersect": lambda left, right: np.minimum(np.minimum(left, right), 1),
    "intersect all": np.minimum,
    "except all": lambda left, right: np.maximum(left - right, 0),
}


class SetOperationOperator(QueryOperator):
    """One of the set operations that count rows. `columns` are the output columns."""

    def __init__(
        self, id_: str, inlets: Sequence[Inlet], outlet: Outlet, kind: CountedKind, columns: Mapping[str, pa.DataType],
        maintenance: Maintenance = SHIPPED,
    ) -> None:  # fmt: skip
        self.id = id_
        self.inlets = tuple(inlets)
        self._outlet = outlet
        self._count = _COUNTS[kind]
        self._types = dict(columns)
        self._groups = RowGroups(list(columns.values()), maintenance)
        self._sides = GroupCounts(), GroupCounts()
        self._copies = RowGroups([pa.int64()], maintenance)
        self._present = GroupCounts()
        self._differ = AnswerDiffer()
        self._done = int(ALWAYS)
        self._emitted = 0

    def has_work(self) -> bool:
        bound = compute_bound(self.inlets, whole=True)
        return bound > self._done or has_ready(self.inlets, bound)

    def run(self, budget: int) -> int:
        bound = compute_bound(self.inlets, whole=True)
        until = find_cut(self.inlets, bound, budget)
        sides = [[as_changes(batch) for batch in inlet.read(until)] for inlet in self.inlets]
        changed = self._apply_changes(sides)
        if changed is not None:
            self._emitted += len(changed)
            self._outlet.write(changed)
        self._done = until
        self._outlet.advance(until + 1)
        return sum(len(batch) for batches in sides for batch in batches)

    def metrics(self) -> dict[str, object]:
        return {
            "rows": [int(np.count_nonzero(side.counts)) for side in self._sides],
            "waiting": [inlet.waiting() for inlet in self.inlets],
            "emitted": self._emitted,
        }

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        """The state follows from the current rows of the inputs."""
        if current is None:
            return None
        changed = self._apply_changes([[replace(side, times=np.full(len(side), ALWAYS + 1))] for side in current])
        return make_empty_changes(self._types) if changed is None else changed

    def _apply_changes(self, sides: Sequence[Sequence[Changes]]) -> Changes | None:
        parts = [replace(each, columns=dict(zip(self._types, each.columns.values(), strict=True)))
                 for batches in sides for each in batches]  # fmt: skip
        if not any(len(part) for part in parts):
            return None
        side = np.repeat(np.arange(len(sides)), [sum(len(batch) for batch in batches) for batches in sides])
        changes = concat(parts)
        order = np.argsort(changes.times, kind="stable")
        changes, side = changes.take(order), side[order]
        most = max(each.counts.size for each in self._sides)
        self._groups.recycle(grow(self._sides[0].counts, most) + grow(self._sides[1].counts, most))
        at = find_change_points(self._groups.encode(list(changes.columns.values()), len(changes)), changes.times)
        signs, side, bound = changes.signs[at.order], side[at.order], self._groups.bound
        left, right = (
            counts.apply(at, np.where(side == place, signs, np.int8(0)), bound)
            for place, counts in enumerate(self._sides)
        )
        return self._change_copies(at, self._count(left, right))

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
