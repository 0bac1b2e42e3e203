"""Results counted by slice and filter group, for members whose rows are built only when they are read.

Law: `count_emitted` is the number of results found for a member since it was added. Results are added up by code of
interest and slice; they are distributed to the filter groups only when a count is read or the slices change.

Cost: one compiled pass over the ages of a batch, for any number of members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from penstock.join.match_batch import MatchBatch
from penstock.join.sharing.interest import NO_CODES, Interest
from penstock.join.sharing.kernels import count_slices
from penstock.join.sharing.member import Member
from penstock.join.sharing.shared_needs import FilterGroup, SharedNeeds
from penstock.join.sharing.slice_counts import SliceCounts


class ResultCounts:
    """The results of one join by slice."""

    def __init__(self, needs: SharedNeeds, get_interest: Callable[[], Interest | None]) -> None:
        self._needs = needs
        self._get_interest = get_interest
        self._by_group: dict[FilterGroup, SliceCounts] = {}
        self._total = SliceCounts(())
        self._pending = np.zeros((1, 1), np.int64)
        """Results that are not distributed yet, by code of interest and slice."""
        self._pending_for: tuple[Interest | None, tuple[FilterGroup, ...]] = (None, ())
        """The codes and the filter groups that `pending` refers to."""
        self._slices_current = False

    def add(self, matches: MatchBatch) -> None:
        """Count results that are built when they are read."""
        if not self._slices_current:
            self._flush()
        codes, interest = matches.rows.interest, self._get_interest()
        if interest is not None and len(interest.sets) > len(self._pending):
            more = np.zeros((len(interest.sets) - len(self._pending), self._pending.shape[1]), np.int64)
            self._pending = np.concatenate([self._pending, more])
        count_slices(matches.age, NO_CODES if codes is None else codes, self._total.windows, self._pending)

    def start_member(self, member: Member) -> None:
        """Results counted so far do not belong to a new member."""
        if self._by_group:
            member.counted_before = self._count_within(member)

    def restart_member(self, member: Member) -> None:
        """As `start_member`, for a member that has changed its filter group."""
        member.counted_before = self._count_within(member)

    def count_emitted(self, member: Member) -> int:
        """How many changes a member was given."""
        if not member.pulls:
            return member.emitted
        return member.emitted + self._count_within(member) - member.counted_before

    def _count_within(self, member: Member) -> int:
        self._flush()
        return self._by_group[member.filter_group].count_within(member.need.common_lifetime or 0)

    def list_totals(self) -> Iterator[tuple[int, int]]:
        """For each slice, youngest first, the age at which it ends and the results found in it."""
        self._flush()
        return zip(self._total.windows.tolist(), self._total.counts.tolist(), strict=False)

    def mark_slices_changed(self) -> None:
        """Filter groups, their windows or the codes of interest have changed: pending results are distributed first."""
        self._slices_current = False

    def clear_groups(self) -> None:
        """The members were divided into other filter groups: their counts start again."""
        self._by_group, self._slices_current = {}, False

    def _flush(self) -> None:
        """Distribute pending results to the filter groups, and continue with the current slices."""
        interest, groups = self._pending_for
        has_pending = bool(self._pending.any())  # counting a thousand members one after the other flushes once
        for place, group in enumerate(groups if has_pending else ()):
            if group in self._by_group:
                count = len(self._pending)
                codes = list(range(count)) if interest is None else interest.list_codes_with(place, count)
                self._by_group[group].add_counts(self._total.windows, self._pending[codes].sum(axis=0))
        self._total.counts += self._pending.sum(axis=0)
        if not self._slices_current:
            self._reslice()
        self._pending_for = self._get_interest(), tuple(self._needs.filter_groups)
        self._pending = np.zeros((1, self._total.windows.size + 1), np.int64)

    def _reslice(self) -> None:
        known, groups = self._by_group, self._needs.filter_groups
        windows = {group: group.list_uniform_windows() for group in groups}
        self._by_group = {
            group: known[group].reslice(windows[group]) if group in known else SliceCounts(windows[group])
            for group in groups
        }
        self._total = self._total.reslice({window for each in windows.values() for window in each})
        self._slices_current = True
