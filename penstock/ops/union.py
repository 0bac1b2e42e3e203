"""The union operator: UNION ALL of k inputs, merged by time.

Law: every row of every input is written exactly once, in temporal order. A row is written as soon as no input can
bring an earlier one: when its time is not after the lowest frontier (the relaxed `more`, Figure 8 of the query graph
paper), so that simultaneous rows never wait for each other. With `whole` an instant is written as a whole, for readers
that report answers. Signs stay the same; numbers are changed so that they stay unique.
State: none, waiting rows are in the arcs. Cost: O(n log n) for the rows of a turn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.ops.protocol import Batch, Changes, Inlet, Outlet, QueryOperator, SavedState, as_changes, concat
from penstock.ops.time_merge import compute_bound, find_cut, has_ready
from penstock.state import ALWAYS, I64


class UnionOperator(QueryOperator):
    """k inputs become one stream, with the column names `names`."""

    def __init__(
        self, id_: str, inlets: Sequence[Inlet], outlet: Outlet, names: Sequence[str], *, whole: bool = False
    ) -> None:
        self.id = id_
        self.inlets = tuple(inlets)
        self._outlet = outlet
        self._names = tuple(names)
        self._whole_instants = whole
        self._done = int(ALWAYS)
        self._emitted = 0

    def has_work(self) -> bool:
        bound = compute_bound(self.inlets, whole=self._whole_instants)
        return bound > self._done or has_ready(self.inlets, bound)

    def run(self, budget: int) -> int:
        bound = compute_bound(self.inlets, whole=self._whole_instants)
        until = find_cut(self.inlets, bound, budget)
        parts = [self.to_output(place, batch) for place, inlet in enumerate(self.inlets) for batch in inlet.read(until)]
        taken = 0
        if parts:
            merged = concat(parts)
            if len(parts) > 1:
                merged = merged.take(np.argsort(merged.times, kind="stable"))
            self._outlet.write(merged)
            taken = len(merged)
        self._emitted += taken
        self._done = until
        self._outlet.advance(until + 1 if self._whole_instants else until)
        return taken

    def to_output(self, place: int, batch: Batch) -> Batch:
        """Rows of one input as rows of the union."""
        columns = dict(zip(self._names, batch.columns.values(), strict=True))
        if isinstance(batch, Changes):
            return Changes(batch.times, columns, batch.signs, self._spread_numbers(place, batch))
        return Batch(batch.times, columns)

    def _spread_numbers(self, place: int, changes: Changes) -> I64:
        """Numbers that stay unique when those of all inputs come together."""
        return changes.numbers * len(self.inlets) + place

    def metrics(self) -> dict[str, object]:
        return {"waiting": [inlet.waiting() for inlet in self.inlets], "emitted": self._emitted}

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        """No state: the current rows of the inputs are those of the union."""
        if current is None:
            return None
        return concat([as_changes(self.to_output(place, batch)) for place, batch in enumerate(current)])
