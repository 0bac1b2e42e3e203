"""Reports of a sliding aggregate: when there is one, and its rows.

Law: reports are numbered. A row of the answer is in every report from the one at which it enters up to the one before
which it leaves. Each report has rows of its own: they enter at the report and leave at the next. A row that says that
the window is empty is in one report only, so that a gap without rows costs nothing, however long it is.
State: the rows of the last report. Cost: O(rows of the reports).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from penstock.ops.protocol import Changes, concat
from penstock.ops.time_merge import clamp_time
from penstock.state import I64


class Reports(Protocol):
    """When a sliding aggregate reports."""

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
