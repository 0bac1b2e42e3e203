"""The aggregate operator with SLIDE: the answer of GROUP BY at each report.

Law: each report has the rows of the answer at its instant b, for a RANGE r over the rows of (b - r, b], for ROWS n over
the last n rows, whether they are the same as in the report before or not. They enter at b and leave at the next report.
A report of an empty window has no rows. `reports` say when there is one.

State: that of the aggregation, the rows of the last report, and its number. Cost: that of the aggregation, and O(1) for
each row of a report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from penstock.ops.aggregate.operator import AggregateBase
from penstock.ops.aggregate.reports import ReportRows, Reports
from penstock.ops.protocol import Changes, Inlet, Outlet, SavedState
from penstock.ops.row_groups import make_empty_changes
from penstock.ops.time_merge import find_cut
from penstock.plan import GroupPlan
from penstock.state import ALWAYS, FOREVER, SHIPPED, Maintenance

_ROWS_PER_TURN = 16
"""A turn reads and writes at most about so many rows for each row of its budget: results are many for each tuple."""


class SlidingAggregateOperator(AggregateBase):
    """GROUP BY with SLIDE."""

    def __init__(
        self, id_: str, inlet: Inlet, outlet: Outlet, plan: GroupPlan, classes: Mapping[str, type],
        reports: Reports, maintenance: Maintenance = SHIPPED,
    ) -> None:  # fmt: skip
        super().__init__(id_, inlet, outlet, plan, classes, maintenance)
        self._reports = reports
        self._rows = ReportRows()
        self._done = reports.find_last(int(ALWAYS))

    # ── turns ────────────────────────────────────────────────────────────────────────────────────────────────────

    def has_work(self) -> bool:
        return self._reports.has_work() or self._reports.find_last(self._inlet.frontier) > self._done

    def run(self, budget: int) -> int:
        taken = self._reports.take_in()
        if self._reports.find_last(self._inlet.frontier) > self._done:
            taken += self._report_until(self._choose_last(budget))
        self._outlet.advance(self._reports.find_next_frontier(self._done))
        return taken

    def _report_until(self, last: int) -> int:
        batches = [batch for batch in self._inlet.read(self._reports.find_time(last)) if len(batch)]
        numbered = [replace(batch, times=self._reports.number(batch.times)) for batch in batches]
        changed = self._rows.write(self._apply_batches(numbered), self._done, last)
        if changed is not None and self.failure is None:
            self._write(replace(changed, times=self._reports.find_times(changed.times)))
        self._done = last
        self._reports.forget(last)
        return sum(len(batch) for batch in batches)

    def _choose_last(self, budget: int) -> int:
        """The last report of a turn, which is not much larger than the budget."""
        reports, inlet = self._reports, self._inlet
        last, waiting = reports.find_last(inlet.frontier), inlet.waiting()
        if inlet.frontier >= FOREVER - 1:  # the end of all streams: only changes that wait will come
            last = reports.limit_end(last, self._find_last_change() if waiting else None)
        last = min(last, self._number(find_cut([inlet], reports.find_time(last), _ROWS_PER_TURN * budget)))
        standing, first = len(self._rows), inlet.next_time()
        if not standing and first is None:
            return last
        begin = self._done if standing or first is None else max(self._done, self._number(first) - 1)
        numbers = reports.number(inlet.times(_ROWS_PER_TURN * budget))

        def count_rows(number: int) -> int:
            return (number - begin) * (standing + int(np.searchsorted(numbers, number, side="right")))

        low, high = min(begin + 1, last), last
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if count_rows(middle) <= _ROWS_PER_TURN * budget else (low, middle - 1)
        return low

    def _find_last_change(self) -> int:
        return self._number(int(self._inlet.times(self._inlet.waiting())[-1]))

    def _number(self, time: int) -> int:
        return int(self._reports.number(np.array([time]))[0])

    # ── time and state ───────────────────────────────────────────────────────────────────────────────────────────

    def next_timer(self) -> int | None:
        if len(self._rows):
            return self._reports.find_timer(self._done + 1)
        time = self._inlet.next_time()
        return None if time is None else self._reports.find_timer(self._number(time))

    def find_complete_since(self, since: int) -> int:
        """After the first report at or after `since`: the rows of the report before leave there."""
        found = self._reports.find_timer(self._number(since))
        return since if found is None else found

    def dump(self) -> SavedState:
        return SavedState({"done": self._done, **self._reports.dump()})

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:
        """The state follows from the current rows of the input, except which report was the last one."""
        self._reports.restore(saved.values)
        if current is None:
            return None
        (rows,) = current
        self._done = saved.values.get("done", self._reports.find_last(self._inlet.frontier))
        changed = self._apply_batches([replace(rows, times=np.full(len(rows), self._done))])
        if changed is None:
            return make_empty_changes(self._types)
        return self._rows.stand(replace(changed, times=np.full(len(changed), ALWAYS + 1)))
