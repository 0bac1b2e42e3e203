"""The difference operator: A EXCEPT B EXCEPT C …, all inputs merged by time.

Law: a row is in the answer exactly while at least one row with the same values (NULL is NULL, NaN is NaN) is in the
answer of the first input and none in that of any other; once, however often the first has it. It reads changes of all
inputs and writes changes; it processes whole instants, up to the lowest frontier of its inputs.

The inputs that are subtracted can be tested in any order, and the order can change between two batches. The JISC paper
(section 4.7) chains binary operators: after a change of their order the states in between, such as A − D, must be
completed, and rows are forwarded past them to the first complete one. Here there is one state, which is complete.
State: how often each row is in the answer of each input. Cost: O(n log n) to sort a batch by row, then for a change one
lookup for each input up to the first that has the row. Later inputs that did not change in the batch cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.ops.protocol import Batch, Changes, Inlet, Outlet, QueryOperator, SavedState, as_changes, concat
from penstock.ops.row_groups import AnswerDiffer, GroupCounts, RowGroups, find_change_points, grow, make_empty_changes
from penstock.ops.time_merge import compute_bound, find_cut, has_ready
from penstock.state import ALWAYS, I32, SHIPPED, Maintenance


class DifferenceOperator(QueryOperator):
    """The first input EXCEPT all others, which are tested in `order`. `columns` are the output columns."""

    def __init__(
        self,
        id_: str,
        inlets: Sequence[Inlet],
        outlet: Outlet,
        columns: Mapping[str, pa.DataType],
        order: Sequence[int],
        maintenance: Maintenance = SHIPPED,
    ) -> None:
        self.id = id_
        self.order = tuple(order)
        self.inlets = tuple(inlets)
        self._outlet = outlet
        self._types = dict(columns)
        self._groups = RowGroups(list(columns.values()), maintenance)
        self._counts = tuple(GroupCounts() for _ in inlets)
        self._differ = AnswerDiffer()
        self._done = int(ALWAYS)
        self._emitted = 0

    def has_work(self) -> bool:
        bound = compute_bound(self.inlets, whole=True)
        return bound > self._done or has_ready(self.inlets, bound)

    def run(self, budget: int) -> int:
        bound = compute_bound(self.inlets, whole=True)
        until = find_cut(self.inlets, bound, budget)
        sides = [inlet.read(until) for inlet in self.inlets]
        changed = self._apply_changes(sides)
        if changed is not None:
            self._emitted += len(changed)
            self._outlet.write(changed)
        self._done = until
        self._outlet.advance(until + 1)
        return sum(len(batch) for batches in sides for batch in batches)

    def metrics(self) -> dict[str, object]:
        return {
            "rows": [int(np.count_nonzero(side.counts)) for side in self._counts],
            "waiting": [inlet.waiting() for inlet in self.inlets],
            "emitted": self._emitted,
        }

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        """The state follows from the current rows of the inputs."""
        if current is None:
            return None
        sides = [[replace(side, times=np.full(len(side), ALWAYS + 1))] for side in current]
        changed = self._apply_changes(sides)
        return make_empty_changes(self._types) if changed is None else changed

    def _rename_columns(self, changes: Changes) -> Changes:
        return replace(changes, columns=dict(zip(self._types, changes.columns.values(), strict=True)))

    def _apply_changes(self, sides: Sequence[Sequence[Batch]]) -> Changes | None:
        parts = [self._rename_columns(as_changes(batch)) for batches in sides for batch in batches]
        if not any(len(part) for part in parts):
            return None
        side = np.repeat(np.arange(len(sides)), [sum(len(batch) for batch in batches) for batches in sides])
        changes = concat(parts)
        order = np.argsort(changes.times, kind="stable")
        changes, side = changes.take(order), side[order]
        most = max(each.counts.size for each in self._counts)
        self._groups.recycle(np.maximum.reduce([grow(each.counts, most) for each in self._counts]))
        at = find_change_points(self._groups.encode(list(changes.columns.values()), len(changes)), changes.times)
        bound, signs, side = self._groups.bound, changes.signs[at.order], side[at.order]
        present = self._counts[0].apply(at, np.where(side == 0, signs, np.int8(0)), bound) > 0
        for place in self.order:
            counts, mine = self._counts[place], side == place
            if mine.any():
                present &= counts.apply(at, np.where(mine, signs, np.int8(0)), bound) == 0
            else:
                tested = np.flatnonzero(present)
                present[tested] = counts.get_counts(at.codes[tested]) == 0
        return self._differ.compute_presence_changes(at, present, self._read_rows, bound)

    def _read_rows(self, codes: I32) -> dict[str, pa.Array]:
        return dict(zip(self._types, self._groups.decode(codes), strict=True))
