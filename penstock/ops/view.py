"""Views: the answer of a query as a relation that other queries read.

Law: at every instant a view has the rows of its query's answer. The query is computed once, however many queries read
the view. A reader that starts later begins with the rows that the view has then: they enter at the last instant that is
complete. From then on it reads the same changes as all other readers.
State: the view keeps its rows, for readers that start later; a reader keeps nothing. Cost: O(1) a change, plus O(log n)
when the kept rows are sorted out, which is when as many changes have come as there are rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.ops.changelog import apply_changes
from penstock.ops.emit import BatchMapper
from penstock.ops.operator_id import make_view_id
from penstock.ops.protocol import Batch, Changes, Inlet, Outlet, SavedState, as_changes, concat
from penstock.ops.row_groups import make_empty_changes
from penstock.state import ALWAYS, FOREVER, SHIPPED, Maintenance


class ViewOperator(BatchMapper):
    """Writes the changes of a view, with the column names `columns`, and keeps its rows."""

    def __init__(
        self, name: str, inlet: Inlet, outlet: Outlet, columns: Mapping[str, pa.DataType],
        maintenance: Maintenance = SHIPPED,
    ) -> None:  # fmt: skip
        super().__init__(make_view_id(name), inlet, outlet)
        self._rows = make_empty_changes(columns)
        self._changes: list[Changes] = []
        self._pending = 0
        self._least = maintenance.capacity
        self._last_instant = int(ALWAYS) + 1

    def metrics(self) -> dict[str, object]:
        return {"rows": len(self.read_rows()), **super().metrics()}

    @property
    def instant(self) -> int:
        """The last instant that is complete; the time of the last change if the streams have ended."""
        known = self._outlet.frontier - 1
        return self._last_instant if known >= FOREVER - 1 else max(known, self._last_instant)

    def read_rows(self) -> Changes:
        """The rows that the view has now."""
        if self._changes:
            self._rows = apply_changes(self._rows, concat(self._changes))
            self._changes, self._pending = [], 0
        return self._rows

    def dump(self) -> SavedState:
        return SavedState({"last_instant": self._last_instant})

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:
        """The rows are those of the input."""
        self._last_instant = saved.values["last_instant"]
        if current is None:
            return None
        self._rows = self._rename_columns(current[0])
        return self._rows

    def _map_batch(self, batch: Batch) -> Batch:
        changes = self._rename_columns(as_changes(batch))
        self._changes.append(changes)
        self._pending += len(changes)
        self._last_instant = int(changes.times[-1])
        if self._pending > max(len(self._rows), self._least):
            self.read_rows()
        return changes

    def _rename_columns(self, changes: Changes) -> Changes:
        return replace(changes, columns=dict(zip(self._rows.columns, changes.columns.values(), strict=True)))


class ViewReaderOperator(BatchMapper):
    """Reads a view for one query."""

    def __init__(self, id_: str, view: ViewOperator, inlet: Inlet, outlet: Outlet) -> None:
        super().__init__(id_, inlet, outlet)
        self._view = view

    def start(self) -> None:
        """Write the rows that the view has now, after all readers of this operator were opened."""
        rows = self._view.read_rows()
        if len(rows):
            self._outlet.write(replace(rows, times=np.full(len(rows), self._view.instant)))

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        """It has read all that the view has written, so the current rows are those of the view."""
        return self._view.read_rows()

    def _map_batch(self, batch: Batch) -> Batch:
        return batch
