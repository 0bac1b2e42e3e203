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

from penstock.ops.change_operators import MergeOperator, ReadBatches
from penstock.ops.protocol import Batch, Changes, Inlet, Outlet, SavedState, as_changes, concat
from penstock.state import I64


class UnionOperator(MergeOperator):
    """k inputs become one stream, with the column names `names`."""

    def __init__(
        self, id_: str, inlets: Sequence[Inlet], outlet: Outlet, names: Sequence[str], *, whole: bool = False
    ) -> None:
        super().__init__(id_, inlets, outlet, whole=whole)
        self._names = tuple(names)

    def _merge(self, read: ReadBatches, until: int) -> Batch | None:  # noqa: ARG002
        parts = [self.to_output(place, batch) for place, batches in enumerate(read) for batch in batches]
        if len(parts) < 2:
            return parts[0] if parts else None
        merged = concat(parts)
        return merged.take(np.argsort(merged.times, kind="stable"))

    def to_output(self, place: int, batch: Batch) -> Batch:
        """Rows of one input as rows of the union."""
        columns = dict(zip(self._names, batch.columns.values(), strict=True))
        if isinstance(batch, Changes):
            return Changes(batch.times, columns, batch.signs, self._spread_numbers(place, batch))
        return Batch(batch.times, columns)

    def _spread_numbers(self, place: int, changes: Changes) -> I64:
        """Numbers that stay unique when those of all inputs come together."""
        return changes.numbers * len(self.inlets) + place

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        """No state: the current rows of the inputs are those of the union."""
        if current is None:
            return None
        return concat([as_changes(self.to_output(place, batch)) for place, batch in enumerate(current)])
