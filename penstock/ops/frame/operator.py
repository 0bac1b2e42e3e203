"""The frame operator: functions with OVER (PARTITION BY k ORDER BY time ...) over rows that only come.

Law: every row of the input is in the answer once, from its own time on, with the results over its frames (see
`window`). No later row changes them: a row is written when all rows of its time are known. If a frame ends behind the
row, it is in the answer from the instant on at which all of its frames are complete (see `waiting`). Rows of one time
are in the order in which they come, or, if that has no meaning, in that of their columns: ascending, NULLs first.

State: for each window the rows that a later frame can have, and the rows that wait; if the reader asks for the current
rows after a restart, also all rows of the answer. Cost: O(n log n) to sort a batch by partition, then O(1) a row and
function, O(log n) for MIN and MAX.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.cql import FrameWindow
from penstock.ops.aggregate.user import AggregateError, make_aggregate_error
from penstock.ops.changelog import as_batch, as_table
from penstock.ops.frame.waiting import RowsWaitingForRows, RowsWaitingForTime
from penstock.ops.frame.window import FrameResults, FrameState, fill_default
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
from penstock.state import AFTER_END, ALWAYS, FOREVER, I64, SHIPPED, Maintenance


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
        self._behind: list[tuple[FrameWindow, FrameState]] = []
        """The windows whose frames end at the row or before it."""
        self._ahead: list[tuple[FrameWindow, FrameState]] = []
        types = dict(part.columns)
        for window in part.windows:
            windows, delay = (self._ahead, part.ahead) if window.frame.ahead else (self._behind, 0)
            windows.append((window, FrameState(window, types, classes, maintenance, delay)))
        self._windows = [state for _, state in (*self._behind, *self._ahead)]
        self._waiting: RowsWaitingForRows | RowsWaitingForTime | None = None
        if self._ahead:
            self._waiting = (
                RowsWaitingForTime(part.ahead)
                if part.ahead_unit == "range"
                else RowsWaitingForRows(self._list_keys(), self._list_waiting_types(), part.ahead, maintenance)
            )
        self._done = int(ALWAYS)
        self._emitted = 0
        self._kept: list[Changes] = []

    def _list_keys(self) -> list[str]:
        """The columns by which frames that end behind the row are divided."""
        return list(dict.fromkeys(column.name for window, _ in self._ahead for column in window.partition))

    def _list_waiting_types(self) -> dict[str, pa.DataType]:
        """The columns of rows that wait: what is shown and known, and what their functions still read."""
        types = dict(self._part.columns)
        read = [*self._part.shown, *self._list_keys()]
        read += [each.default.name for window, _ in self._ahead for each in window.functions if each.default]
        known = {each.name: each.value.type for window, _ in self._behind for each in window.functions}
        return {**{name: types[name] for name in read}, **known}

    def _find_bound(self) -> int:
        """The last instant of which all rows have arrived."""
        return clamp_time(self._inlet.frontier - 1)

    def has_work(self) -> bool:
        return self._find_bound() > self._done

    def run(self, budget: int) -> int:  # noqa: ARG002 - the rows of an instant stay together
        bound = self._find_bound()
        batches = [batch for batch in self._inlet.read(bound) if len(batch)]
        if self.failure is None:
            try:
                self._process(concat(batches) if batches else None, bound)
            except AggregateError as failed:
                self.failure = make_aggregate_error(self.id, failed)
        for window in self._windows:
            window.expire(bound)
        self._done = bound
        self._outlet.advance(bound + 1)
        return sum(len(batch) for batch in batches)

    def next_timer(self) -> int | None:
        times = (self._inlet.next_time(), None if self._waiting is None else self._waiting.next_time())
        return min((time + 1 for time in times if time is not None), default=None)

    def metrics(self) -> dict[str, object]:
        error = {} if self.failure is None else {"error": str(self.failure)}
        waiting = {} if self._waiting is None else {"waiting": len(self._waiting)}
        return {
            "rows": sum(map(len, self._windows)),
            "partitions": sum(window.count_partitions() for window in self._windows),
            **waiting,
            "emitted": self._emitted,
            **error,
        }

    def find_complete_since(self, since: int) -> int:
        """After the longest frame of time; a frame of rows or of all rows before may lack some forever."""
        frames = [window.frame for window in self._part.windows]
        spans = [frame.start if frame.unit == "range" else None for frame in frames]
        known = [max(span, 0) for span in spans if span is not None]
        return clamp_time(since + max(known) + self._part.ahead) if len(known) == len(spans) else int(FOREVER)

    def _process(self, batch: Batch | None, bound: int) -> None:
        """Add the rows of a batch, and write those that are complete at `bound`."""
        if batch is not None:
            order = self._order_ties(batch)
            batch = batch if order is None else batch.take(order)
            columns = dict(batch.columns)
            for window, state in self._behind:
                results = state.add_rows(batch.times, batch.columns)
                columns |= {each.name: fill_default(each, results, columns) for each in window.functions}
            batch = Batch(batch.times, columns)
        match self._waiting:
            case RowsWaitingForRows():
                self._write_after_rows(self._waiting, batch)
                if bound > AFTER_END:
                    count, columns = self._waiting.end()
                    found = [state.find_results_behind(columns, count) for _, state in self._ahead]
                    self._write_complete(np.full(count, AFTER_END), columns, found)
            case RowsWaitingForTime():
                self._write_after_time(self._waiting, batch, bound)
            case _ if batch is not None:
                self._write(batch.times, batch.columns)

    def _write_after_rows(self, waiting: RowsWaitingForRows, batch: Batch | None) -> None:
        """Write the rows that those of a batch complete."""
        if batch is None:
            return
        found = [state.add_rows(batch.times, batch.columns) for _, state in self._ahead]
        at, columns = waiting.exchange(batch.times, batch.columns)
        indices = pa.array(at)
        taken = [{name: (values.take(indices), there[at]) for name, (values, there) in each.items()} for each in found]
        self._write_complete(batch.times[at], columns, taken)

    def _write_after_time(self, waiting: RowsWaitingForTime, batch: Batch | None, bound: int) -> None:
        """Write the rows whose frames ended until `bound`."""
        types = self._list_waiting_types()
        if batch is None:
            empty = {name: pa.array([], kind) for name, kind in self._part.columns}
            batch = Batch(np.empty(0, np.int64), empty)
        waiting.add(batch.times, {name: batch.columns[name] for name in types if len(batch)})
        due = waiting.pop_due(bound)
        if due is None and not len(batch):
            return
        if due is None:
            due = Batch(np.empty(0, np.int64), {name: pa.array([], kind) for name, kind in types.items()})
        times = np.minimum(due.times, AFTER_END - self._part.ahead) + self._part.ahead
        found = [state.add_rows_and_places(batch.times, batch.columns, times, due.columns) for _, state in self._ahead]
        self._write_complete(times, due.columns, found)

    def _write_complete(self, times: I64, columns: Mapping[str, pa.Array], found: Sequence[FrameResults]) -> None:
        """Write rows with the results of the frames that end behind them."""
        known = dict(columns)
        for (window, _), results in zip(self._ahead, found, strict=True):
            known |= {each.name: fill_default(each, results, columns) for each in window.functions}
        if not times.size:
            return
        complete = Batch(times, known)
        ordered = (times[1:] >= times[:-1]).all()
        complete = complete if ordered else complete.take(np.argsort(times, kind="stable"))
        self._write(complete.times, complete.columns)

    def _write(self, times: I64, computed: Mapping[str, pa.Array]) -> None:
        columns = {name: computed[name] for name in self._part.types}
        count = times.size
        numbers = self._emitted + np.arange(count)
        self._emitted += count
        if not self._mode.ends:
            self._outlet.write(Batch(times, columns))
            return
        changes = Changes(times, columns, np.ones(count, np.int8), numbers)
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
        if self._waiting is not None and (waiting := self._waiting.dump()) is not None:
            tables["waiting"] = waiting
        if self._kept:
            self._kept = [concat(self._kept)]
            tables["kept"] = as_table(self._kept[0])
        return SavedState({"done": self._done, "emitted": self._emitted}, tables)

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        self._done, self._emitted = saved.values["done"], saved.values["emitted"]
        for place, window in enumerate(self._windows):
            window.restore(saved.tables[f"window {place}"])
        if self._waiting is not None and "waiting" in saved.tables:
            self._waiting.restore(saved.tables["waiting"])
        if not self._mode.ends or not self._mode.current:
            return None
        if "kept" not in saved.tables:
            return make_empty_changes(self._part.types)
        kept = as_changes(as_batch(saved.tables["kept"]))
        self._kept = [kept]
        return Changes(np.full(len(kept), ALWAYS + 1), kept.columns, kept.signs, kept.numbers)
