"""SESSION: rows of a partition between pauses.

Law: the rows of a partition, in temporal order, are in one session while each comes less than `gap` after the one
before. The session is [first, last + gap). All of its rows enter the answer at its end, when no row can extend it, and
leave one tick later: its window is not known before.

State: the rows of open sessions. Cost: O(n log n) in the rows of open sessions for each batch that ends one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.ops.changelog import as_batch, as_table
from penstock.ops.protocol import Batch, Changes, Inlet, Outlet, SavedState, as_changes, concat
from penstock.ops.row_groups import RowGroups, make_empty_changes
from penstock.ops.time_window.rows import WindowedRowsOperator
from penstock.plan import EVENT_TIME, WindowPart
from penstock.state import ALWAYS, FOREVER, SHIPPED, Maintenance, to_ticks


class SessionOperator(WindowedRowsOperator):
    """SESSION(s PARTITION BY k, ts, gap)."""

    def __init__(
        self, id_: str, inlet: Inlet, outlet: Outlet, part: WindowPart, maintenance: Maintenance = SHIPPED
    ) -> None:
        super().__init__(id_, inlet, outlet, part, maintenance)
        self._open: list[Changes] = []
        self._first_end = int(FOREVER)
        """No session ends before this."""

    def run(self, budget: int) -> int:  # noqa: ARG002 - the changes of an instant stay together
        bound = self._find_bound()
        batches = [as_changes(batch) for batch in self._inlet.read(bound)]
        for batch in batches:
            rows = batch.take(np.flatnonzero(batch.signs > 0))
            if len(rows):
                self._open.append(rows)
                self._first_end = min(self._first_end, int(to_ticks(rows.columns[EVENT_TIME])[0]) + self._gap)
        self._write(self._close_sessions(bound) if self._first_end <= bound else None, bound)
        return sum(len(batch) for batch in batches)

    @property
    def _gap(self) -> int:
        return self._part.window.size

    def metrics(self) -> dict[str, object]:
        return {"open": sum(map(len, self._open)), **super().metrics()}

    def next_timer(self) -> int | None:
        due = self._current.next_due()
        first = min(self._first_end, int(FOREVER) if due is None else due)
        return None if first == FOREVER else first + 1

    def _close_sessions(self, bound: int) -> Changes | None:
        """The rows of the sessions that end at or before an instant, in temporal order."""
        rows = concat(self._open)
        times = to_ticks(rows.columns[EVENT_TIME])
        keys = [rows.columns[name] for name in self._part.window.partition]
        codes = RowGroups([key.type for key in keys], self._maintenance).encode(keys, len(rows))
        order = np.lexsort((times, codes))
        times, codes = times[order], codes[order]
        begins = np.ones(order.size, np.bool_)
        begins[1:] = (codes[1:] != codes[:-1]) | (times[1:] - times[:-1] >= self._gap)
        first = np.flatnonzero(begins)
        session = np.cumsum(begins) - 1
        ends = times[np.append(first[1:], order.size) - 1] + self._gap
        closed = (ends <= bound)[session]
        staying = np.sort(order[~closed])
        self._open = [rows.take(staying)] if staying.size else []
        self._first_end = int(ends[ends > bound].min()) if staying.size else int(FOREVER)
        chosen = np.flatnonzero(closed)
        if not chosen.size:
            return None
        chosen = chosen[np.argsort(ends[session[chosen]], kind="stable")]
        starts, until = times[first][session[chosen]], ends[session[chosen]]
        return self._add_rows(rows.take(order[chosen]), until, starts, until, until + 1)

    def dump(self) -> SavedState:
        """The rows of open sessions, and those of sessions that end now."""
        tables: dict[str, pa.Table] = {}
        if self._open:
            tables["open"] = as_table(concat(self._open))
        if (current := self._current.pop_due(int(FOREVER) - 1)) is not None:
            self._restore_current(current)
            tables["current"] = as_table(current)
        return SavedState({"done": self._done, "first_end": self._first_end}, tables)

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        self._done, self._first_end = saved.values["done"], saved.values["first_end"]
        if "open" in saved.tables:
            self._open = [as_changes(as_batch(saved.tables["open"]))]
        if "current" not in saved.tables:
            return make_empty_changes(self.types)
        rows = as_batch(saved.tables["current"])
        count = len(rows)
        self._next_number = count
        entered = Changes(rows.times, rows.columns, np.ones(count, np.int8), np.arange(count))
        self._restore_current(entered)
        return Changes(np.full(count, ALWAYS + 1), rows.columns, entered.signs, entered.numbers)

    def _restore_current(self, rows: Batch) -> None:
        shape = np.empty((0, len(rows)), np.int64)
        self._current.add(rows.times, as_changes(rows).numbers, shape, rows.columns)
