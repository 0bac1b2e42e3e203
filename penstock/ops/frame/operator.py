"""The frame operator: functions with OVER (PARTITION BY k ORDER BY time ...) over rows that only come.

Law: every row of the input is in the answer once, from its own time on, with the results over its frames (see
`window`). No later row changes them: a row is written when all rows of its time are known. Rows of one time are in the
order in which they come, or, if that has no meaning, in that of their columns: ascending, NULLs first.

State: for each window the rows that a later frame can have; if the reader asks for the current rows after a restart,
also all rows of the answer. Cost: O(n log n) to sort a batch by partition, then O(1) a row and function, O(log n) for
MIN and MAX.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.ops.aggregate.user import AggregateError, make_aggregate_error
from penstock.ops.changelog import as_batch, as_table
from penstock.ops.frame.window import FrameState
from penstock.ops.protocol import (
    Batch,
    Changes,
    Inlet,
    Outlet,
    OutputMode,
    QueryOperator,
    SavedState,
    as_changes,
    concat,
)
from penstock.ops.row_groups import make_empty_changes
from penstock.ops.time_merge import clamp_time
from penstock.plan import FramePart
from penstock.state import ALWAYS, FOREVER, I64, SHIPPED, Maintenance


class FrameOperator(QueryOperator):
    """The rows of a part with the results of its functions."""

    def __init__(
        self, id_: str, inlet: Inlet, outlet: Outlet, part: FramePart, mode: OutputMode,
        classes: Mapping[str, type], maintenance: Maintenance = SHIPPED,
    ) -> None:  # fmt: skip
        self.id = id_
        self._inlet = inlet
        self._outlet = outlet
        self._part = part
        self._mode = mode
        types = dict(part.columns)
        self._windows = [FrameState(window, types, classes, maintenance) for window in part.windows]
        self._done = int(ALWAYS)
        self._emitted = 0
        self._kept: list[Changes] = []

    def _find_bound(self) -> int:
        """The last instant of which all rows have arrived."""
        return clamp_time(self._inlet.frontier - 1)

    def has_work(self) -> bool:
        return self._find_bound() > self._done

    def run(self, budget: int) -> int:  # noqa: ARG002 - the rows of an instant stay together
        bound = self._find_bound()
        batches = [batch for batch in self._inlet.read(bound) if len(batch)]
        if batches and self.failure is None:
            self._write(concat(batches))
        for window in self._windows:
            window.expire(bound)
        self._done = bound
        self._outlet.advance(bound + 1)
        return sum(len(batch) for batch in batches)

    def next_timer(self) -> int | None:
        time = self._inlet.next_time()
        return None if time is None else time + 1

    def metrics(self) -> dict[str, object]:
        error = {} if self.failure is None else {"error": str(self.failure)}
        return {
            "rows": sum(map(len, self._windows)),
            "partitions": sum(window.count_partitions() for window in self._windows),
            "emitted": self._emitted,
            **error,
        }

    def find_complete_since(self, since: int) -> int:
        """After the longest frame of time; a frame of rows or of all rows before may lack some forever."""
        frames = [window.frame for window in self._part.windows]
        spans = [frame.start if frame.unit == "range" else None for frame in frames]
        known = [span for span in spans if span is not None]
        return clamp_time(since + max(known)) if len(known) == len(spans) else int(FOREVER)

    def _write(self, batch: Batch) -> None:
        ordered = batch.take(order) if (order := self._order_ties(batch)) is not None else batch
        columns = {name: ordered.columns[name] for name in self._part.shown}
        try:
            for window in self._windows:
                columns |= window.add_rows(ordered.times, ordered.columns)
        except AggregateError as failed:
            self.failure = make_aggregate_error(self.id, failed)
            return
        count = len(ordered)
        numbers = self._emitted + np.arange(count)
        self._emitted += count
        if not self._mode.ends:
            self._outlet.write(Batch(ordered.times, columns))
            return
        changes = Changes(ordered.times, columns, np.ones(count, np.int8), numbers)
        if self._mode.current:
            self._kept.append(changes)
        self._outlet.write(changes)

    def _order_ties(self, batch: Batch) -> I64 | None:
        """The rows by time and the columns that decide between rows of one time; None if they are in order."""
        if not self._part.ties or not (batch.times[1:] == batch.times[:-1]).any():
            return None
        keys = {"time": pa.array(batch.times)}
        for place, name in enumerate(self._part.ties):
            column = batch.columns[name]
            if column.null_count:
                keys[f"{place} known"] = column.is_valid()
            keys[f"{place}"] = column
        found: I64 = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys]).to_numpy()
        return found.astype(np.int64)

    # ── saved state ──────────────────────────────────────────────────────────────────────────────────────────────

    def dump(self) -> SavedState:
        tables = {f"window {place}": window.dump() for place, window in enumerate(self._windows)}
        if self._kept:
            self._kept = [concat(self._kept)]
            tables["kept"] = as_table(self._kept[0])
        return SavedState({"done": self._done, "emitted": self._emitted}, tables)

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        self._done, self._emitted = saved.values["done"], saved.values["emitted"]
        for place, window in enumerate(self._windows):
            window.restore(saved.tables[f"window {place}"])
        if not self._mode.ends or not self._mode.current:
            return None
        if "kept" not in saved.tables:
            return make_empty_changes(self._part.types)
        kept = as_changes(as_batch(saved.tables["kept"]))
        self._kept = [kept]
        return Changes(np.full(len(kept), ALWAYS + 1), kept.columns, kept.signs, kept.numbers)
