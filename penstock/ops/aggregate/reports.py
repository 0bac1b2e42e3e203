"""Reports of a sliding aggregate: when there is one, and its rows.

Law: reports are numbered. A row of the answer is in every report from the one at which it enters up to the one before
which it leaves. Each report has rows of its own: they enter at the report and leave at the next. A row that says that
the window is empty is in one report only, so that a gap without rows costs nothing, however long it is.
State: the rows of the last report. Cost: O(rows of the reports).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from penstock.ops.protocol import Changes, Inlet, as_stream_rows, concat
from penstock.ops.time_merge import clamp_time
from penstock.state import ALWAYS, FOREVER, I64


class Reports(Protocol):
    """When a sliding aggregate reports."""

    def has_work(self) -> bool:
        """Whether there is something to take in that decides when there are reports."""

    def take_in(self) -> int:
        """Take it in; returns the number of rows."""

    def limit_end(self, last: int, change: int | None) -> int:
        """The last report at the end of all streams: `last`, or sooner if there would be no end of them.

        `change`: the number of the report of the last change that waits, None if none does.
        """

    def forget(self, number: int) -> None:
        """The reports up to this one are done."""

    def find_timer(self, number: int) -> int | None:
        """The time that the frontiers must reach for this report; None if more rows must come first."""

    def dump(self) -> Mapping[str, Any]: ...
    def restore(self, saved: Mapping[str, Any]) -> None: ...

    def find_last(self, frontier: int) -> int:
        """The number of the last report before a frontier, whose changes have all arrived."""

    def number(self, times: I64) -> I64:
        """For each time, the first report at or after it; a number after the last known report if that is not known."""

    def find_times(self, numbers: I64) -> I64:
        """The times of reports."""

    def find_time(self, number: int) -> int:
        """The time of a report."""

    def find_next_frontier(self, number: int) -> int:
        """A time before which no report after this one comes."""


class TimeReports:
    """RANGE ... SLIDE: a report at each multiple of the slide, from 0, the epoch."""

    def __init__(self, slide: int) -> None:
        self._slide = slide

    def has_work(self) -> bool:
        return False

    def take_in(self) -> int:
        return 0

    def limit_end(self, last: int, change: int | None) -> int:
        return last if change is None else change

    def forget(self, number: int) -> None:
        """Nothing is kept."""

    def find_timer(self, number: int) -> int | None:
        return clamp_time(self.find_time(number) + 1)

    def dump(self) -> Mapping[str, Any]:
        return {}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Nothing is kept."""

    def find_last(self, frontier: int) -> int:
        return (frontier - 1) // self._slide

    def number(self, times: I64) -> I64:
        return -(-times // self._slide)

    def find_times(self, numbers: I64) -> I64:
        return numbers * self._slide

    def find_time(self, number: int) -> int:
        return number * self._slide

    def find_next_frontier(self, number: int) -> int:
        return clamp_time((number + 1) * self._slide)


class RowReports:
    """ROWS ... SLIDE: a report at each instant at which the rows of a stream reach a multiple of the slide.

    Rows count from the start of the query, in temporal order, whether or not they pass its conditions. Several
    multiples in one instant are one report: an answer is that of an instant. State: the count, and the times of the
    reports that are not done. A report is certain when all changes up to its time have come, since the changes of an
    instant come after its rows.
    """

    def __init__(self, inlet: Inlet, slide: int, since: int) -> None:
        """`since`: the arrival number of the first row that counts."""
        self._inlet = inlet
        self._slide = slide
        self._since = since
        self._count = 0
        self._first = 1  # the number of the first report whose time is known
        self._times: I64 = np.empty(0, np.int64)
        self._seen_frontier = int(ALWAYS)

    def has_work(self) -> bool:
        return self._inlet.next_time() is not None or self._inlet.frontier > self._seen_frontier

    def take_in(self) -> int:
        self._seen_frontier, taken = self._inlet.frontier, 0
        for batch in map(as_stream_rows, self._inlet.read(int(FOREVER))):
            times = batch.times[batch.numbers >= self._since]
            reached = times[self._slide - 1 - self._count % self._slide :: self._slide]
            self._count += times.size
            taken += len(batch)
            self._add_times(np.unique(reached))
        return taken

    def _add_times(self, times: I64) -> None:
        newest = self._times[-1:]
        self._times = np.concatenate([self._times, times[times > newest] if newest.size else times])

    def limit_end(self, last: int, change: int | None) -> int:  # noqa: ARG002 - rows end
        return last

    def forget(self, number: int) -> None:
        done = min(number + 1 - self._first, self._times.size - 1)  # the newest one stays, for `_add_times`
        if done > 0:
            self._first, self._times = self._first + done, self._times[done:]

    def find_timer(self, number: int) -> int | None:
        place = number - self._first
        return clamp_time(int(self._times[place]) + 1) if place < self._times.size else None

    def find_last(self, frontier: int) -> int:
        return self._first - 1 + int(np.searchsorted(self._times, frontier, side="left"))

    def number(self, times: I64) -> I64:
        return self._first + np.searchsorted(self._times, times, side="left")

    def find_times(self, numbers: I64) -> I64:
        return self._times[numbers - self._first]

    def find_time(self, number: int) -> int:
        return int(self._times[number - self._first])

    def find_next_frontier(self, number: int) -> int:
        place = number + 1 - self._first
        return int(self._times[place]) if place < self._times.size else self._inlet.frontier

    def dump(self) -> Mapping[str, Any]:
        return {
            "rows": self._count,
            "since": self._since,
            "unread": self._inlet.waiting(),
            "first": self._first,
            "times": self._times.tolist(),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        self._count, self._since, self._first = saved["rows"], saved["since"], saved["first"]
        self._times = np.array(saved["times"], np.int64)
        self._inlet.rewind(saved["unread"])


class ReportRows:
    """The answer of each report as rows that enter at the report and leave at the next."""

    def __init__(self) -> None:
        self._standing: Changes | None = None
        self._shown: I64 = np.empty(0, np.int64)  # the numbers with which the standing rows entered
        self._next_number = 0

    def __len__(self) -> int:
        return 0 if self._standing is None else len(self._standing)

    def stand(self, rows: Changes) -> Changes:
        """Take the rows of the last report; returns them as they entered."""
        self._standing, self._shown = rows, self._number(len(rows))
        return replace(rows, numbers=self._shown)

    def write(self, changed: Changes | None, done: int, last: int) -> Changes | None:
        """The changes of the reports after `done` up to `last`, with report numbers as times.

        `changed` are the changes of the answer in that span, which compared it with the answer of `done`.
        """
        rows = [] if self._standing is None else [self._standing]
        entering = None if changed is None else changed.take(np.flatnonzero(changed.signs > 0))
        rows += [] if entering is None else [entering]
        if not sum(map(len, rows)):
            return None
        held = concat(rows)
        stood = np.arange(len(held)) < len(self)
        first = held.times.copy()
        first[stood] = done if len(self) else 0
        until = self._find_ends(held, changed, last)
        counts = np.minimum(until, last + 1) - first
        origin = np.repeat(np.arange(len(held)), counts)
        within = np.arange(origin.size) - np.repeat(np.cumsum(counts) - counts, counts)
        at = first[origin] + within
        enters = np.flatnonzero(~(stood[origin] & (within == 0)))
        enters = enters[np.argsort(at[enters], kind="stable")]
        numbers = np.empty(origin.size, np.int64)
        numbers[enters] = self._number(enters.size)
        numbers[np.flatnonzero(stood[origin] & (within == 0))] = self._shown
        leaves = np.flatnonzero(at < last)
        stays = np.flatnonzero(until > last)
        ends = np.cumsum(counts) - 1
        self._standing, self._shown = held.take(stays), numbers[ends[stays]]
        return _merge(held, origin, at, numbers, leaves, enters)

    def _find_ends(self, held: Changes, changed: Changes | None, last: int) -> I64:
        """The report from which on each row is gone."""
        until = np.full(len(held), last + 1)
        if changed is not None:
            leaving = np.flatnonzero(changed.signs < 0)
            order = np.argsort(held.numbers, kind="stable")
            places = order[np.searchsorted(held.numbers, changed.numbers[leaving], sorter=order)]
            until[places] = changed.times[leaving]
        return until

    def _number(self, count: int) -> I64:
        self._next_number += count
        return np.arange(self._next_number - count, self._next_number)


def _merge(held: Changes, origin: I64, at: I64, numbers: I64, leaves: I64, enters: I64) -> Changes:
    """Rows that leave and enter in the order of the reports; at one report, rows leave before others enter."""
    times = np.concatenate([at[leaves] + 1, at[enters]])
    rows = np.concatenate([leaves, enters])
    signs = np.repeat(np.array([-1, 1], np.int8), [leaves.size, enters.size])
    order = np.argsort(times, kind="stable")
    rows = rows[order]
    return Changes(times[order], held.take(origin[rows]).columns, signs[order], numbers[rows])
