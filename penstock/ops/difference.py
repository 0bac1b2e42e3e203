"""The difference operator: EXCEPT of two inputs, merged by time.

Law: a row is in the answer exactly while at least one row with the same values (NULL is NULL, NaN is NaN) is in the
left input's answer and none in the right one's; once, however often the left has it. It reads changes of both sides and
writes changes; it works on whole instants, up to the smaller of its inputs' frontiers.
State: how often each row is in either input's answer. Cost: O(n log n) to sort a batch by row, then O(1) a change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.ops.groups import Answer, Counts, Groups, no_changes, points
from penstock.ops.merge import bound_of, cut, ready
from penstock.ops.operator import Batch, Inlet, Outlet, concat
from penstock.state.kernels import ALWAYS


class DifferenceOperator:
    """EXCEPT of the second input from the first. The columns are called as in `columns`."""

    def __init__(self, id_: str, inlets: Sequence[Inlet], outlet: Outlet, columns: Mapping[str, pa.DataType]) -> None:
        self.id = id_
        self.inlets = tuple(inlets)
        self._outlet = outlet
        self._types = dict(columns)
        self._groups = Groups(list(columns.values()))
        self._counts = (Counts(), Counts())
        self._answer = Answer()
        self._done = int(ALWAYS)
        self._emitted = 0

    def more(self) -> bool:
        bound = bound_of(self.inlets, whole=True)
        return bound > self._done or ready(self.inlets, bound)

    def run(self, budget: int) -> int:
        bound = bound_of(self.inlets, whole=True)
        until = cut(self.inlets, bound, budget)
        sides = [inlet.read(until) for inlet in self.inlets]
        changed = self._changed(sides)
        if changed is not None:
            self._emitted += len(changed)
            self._outlet.write(changed)
        if until == bound:
            self._done = bound
            self._outlet.advance(bound + 1)
        return sum(len(batch) for batches in sides for batch in batches)

    def metrics(self) -> dict[str, object]:
        return {
            "rows": [int(np.count_nonzero(side.counts)) for side in self._counts],
            "waiting": [inlet.waiting() for inlet in self.inlets],
            "emitted": self._emitted,
        }

    def revive(self, living: Sequence[Batch]) -> Batch:
        """Start from the inputs' living rows; returns the answer."""
        sides = [[Batch(np.full(len(side), ALWAYS + 1), side.columns, side.signs)] for side in living]
        changed = self._changed(sides)
        return no_changes(self._types) if changed is None else changed

    def _part(self, batch: Batch) -> Batch:
        columns = dict(zip(self._types, batch.columns.values(), strict=True))
        return Batch(batch.times, columns, batch.signs)

    def _changed(self, sides: Sequence[Sequence[Batch]]) -> Batch | None:
        parts = [self._part(batch) for batches in sides for batch in batches]
        if not any(len(part) for part in parts):
            return None
        right = np.repeat([False, True], [sum(len(batch) for batch in batches) for batches in sides])
        changes = concat(parts)
        order = np.argsort(changes.times, kind="stable")
        changes, right = changes.take(order), right[order]
        assert changes.signs is not None
        counted = np.maximum(*(np.pad(side.counts, (0, self._most - side.counts.size)) for side in self._counts))
        self._groups.recycle(counted)
        at = points(self._groups.codes(list(changes.columns.values()), len(changes)), changes.times)
        bound, signs, right = self._groups.bound, changes.signs[at.order], right[at.order]
        here = self._counts[0].apply(at, np.where(right, np.int8(0), signs), bound)
        gone = self._counts[1].apply(at, np.where(right, signs, np.int8(0)), bound)
        rows = dict(zip(self._types, self._groups.keys(at.codes), strict=True))
        return self._answer.changes(at, (here > 0) & (gone == 0), rows, bound)

    @property
    def _most(self) -> int:
        return max(side.counts.size for side in self._counts)
