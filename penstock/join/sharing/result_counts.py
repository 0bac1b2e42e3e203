"""Results counted by slice and filter group, for members whose rows are built only when they are read.

Law: `count_emitted` is the number of results found for a member since it was added. Results are added up by code of
interest and slice; they are distributed to the filter groups only when the codes get another meaning.

Cost: one compiled pass over the ages of a batch, for any number of members.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.join.match_batch import MatchBatch
from penstock.join.sharing.group_tally import GroupTally
from penstock.join.sharing.interest import NO_CODES, Interest
from penstock.join.sharing.member import Member
from penstock.join.sharing.shared_needs import FilterGroup, SharedNeeds
from penstock.join.sharing.slice_counts import SliceCounts
from penstock.join.sharing.slice_tally import SliceTally
from penstock.state import I64


@dataclass(frozen=True)
class _GroupCounts:
    """The results of a filter group: those that were distributed to it, and the others added up by slice."""

    ends: list[int]
    """The windows of its members, sorted."""
    distributed: SliceCounts | None
    windows: list[int]
    sums: list[int] | None
    """How many of the others are in each slice or a younger one; None before the group has codes of interest."""

    def count_within(self, lifetime: int) -> int:
        place = bisect_left(self.ends, lifetime)
        counted = 0 if self.distributed is None else self.distributed.count_within(self.ends[place] if self.ends else 0)
        if self.sums is None:
            return counted
        last = bisect_left(self.windows, self.ends[place]) if place < len(self.ends) else len(self.windows)
        return counted + self.sums[last]


class ResultCounts:
    """The results of one join by slice."""

    def __init__(self, needs: SharedNeeds) -> None:
        self._needs = needs
        self._interest: Interest | None = None
        self._places: dict[FilterGroup, int] = {}
        """The filter groups in the sets of interest."""
        self._tally = SliceTally(np.empty(0, np.int64))
        self._by_group: dict[FilterGroup, SliceCounts] = {}
        """Results that were distributed to the groups."""
        self._distributed = SliceCounts(())
        self._slices_current = False
        self._by_bit: GroupTally | None = None
        """Results whose sets have no codes."""

    def add(self, matches: MatchBatch) -> None:
        """Count results that are built when they are read."""
        codes, interest, tally = matches.rows.interest, self._interest, self._update_slices()
        if matches.group_bits is not None:
            if self._by_bit is None:
                self._by_bit = GroupTally(self._places)
            self._by_bit.add(matches.age, matches.group_bits)
            tally.add(matches.age, NO_CODES, 1)  # of no group, because code 0 is the empty set
            return
        if codes is None and matches.origin.longest_window <= tally.youngest_end:
            tally.add_youngest(len(matches))
            return
        limit = 1 if codes is None or interest is None else len(interest.sets)
        tally.add(matches.age, NO_CODES if codes is None else codes, limit)

    def start_member(self, member: Member) -> None:
        """Results counted so far do not belong to a new member, or to one that has changed its filter group."""
        member.counted_before = self._count_before(member)

    def count_emitted(self, member: Member) -> int:
        """How many changes a member was given."""
        return self.count_members((member,))[0]

    def count_members(self, members: Iterable[Member]) -> list[int]:
        """How many changes each member was given. The results of a filter group are added up once for all of them."""
        groups: dict[FilterGroup, _GroupCounts] = {}
        return [member.emitted + (self._count_pulled(member, groups) if member.pulls else 0) for member in members]

    def _count_pulled(self, member: Member, groups: dict[FilterGroup, _GroupCounts]) -> int:
        found = groups.get(member.filter_group)
        if found is None:
            found = groups[member.filter_group] = self._add_up(member.filter_group)
        return found.count_within(member.need.common_lifetime or 0) - member.counted_before

    def _count_before(self, member: Member) -> int:
        """The results so far that are younger than a new member's window. The windows of the others are not listed.

        The slices may lack this window: results of the slice that it splits count as older, as after `reslice`.
        """
        lifetime, group = member.need.common_lifetime, member.filter_group
        if lifetime is None:  # it does not pull
            return 0
        self._distribute_bits()
        known = self._by_group.get(group)
        counted = 0 if known is None else known.count_within(lifetime)
        if group in self._places:
            slices, counts = self._list_wanted(group, *self._tally.list_entries())
            counted += int(counts[slices < np.searchsorted(self._tally.windows, lifetime, "right")].sum())
        return counted

    def _add_up(self, group: FilterGroup) -> _GroupCounts:
        self._distribute_bits()
        ends, tally = sorted(group.list_uniform_windows()), self._update_slices()
        sums: list[int] | None = None
        if group in self._places:
            slices, counts = self._list_wanted(group, *tally.list_entries())
            sums = np.bincount(slices, counts, tally.windows.size + 1).astype(np.int64).cumsum().tolist()
        return _GroupCounts(ends, self._by_group.get(group), tally.windows.tolist(), sums)

    def _list_wanted(self, group: FilterGroup, codes: I64, slices: I64, counts: I64) -> tuple[I64, I64]:
        """Of results by code and slice those that a group needs: slices and counts."""
        if self._interest is None:
            return slices, counts
        wanted = self._interest.membership(self._places[group])[codes]
        return slices[wanted], counts[wanted]

    def list_totals(self) -> Iterator[tuple[int, int]]:
        """For each slice, youngest first, the age at which it ends and the results found in it."""
        tally = self._update_slices()
        total = self._distributed.reslice(tally.windows.tolist())
        _, slices, counts = tally.list_entries()
        np.add.at(total.counts, slices, counts)
        return zip(total.windows.tolist(), total.counts.tolist(), strict=False)

    def mark_slices_changed(self) -> None:
        """Filter groups or their windows have changed."""
        self._end_tally_of_bits()
        self._slices_current = False

    def clear_groups(self) -> None:
        """The members were divided into other filter groups: their counts start again."""
        self._by_bit, self._by_group, self._places = None, {}, {}
        self.mark_slices_changed()

    def set_codes(self, interest: Interest | None, groups: Sequence[FilterGroup]) -> None:
        """Codes of interest have another meaning from now on: results so far are distributed to their groups."""
        self.distribute()
        self._interest, self._places = interest, {group: place for place, group in enumerate(groups)}

    def add_groups(self, groups: Sequence[FilterGroup]) -> None:
        """There are more groups; the codes of interest keep their meaning."""
        self._end_tally_of_bits()
        for place in range(len(self._places), len(groups)):
            self._places[groups[place]] = place

    def _distribute_bits(self) -> None:
        """Distribute the results whose sets have no codes."""
        if self._by_bit is not None:
            for group, windows, counts in self._by_bit.take_counts():
                self._add_counts(group, windows, counts)

    def _end_tally_of_bits(self) -> None:
        self._distribute_bits()
        self._by_bit = None

    def _add_counts(self, group: FilterGroup, windows: I64, counts: I64) -> None:
        known = self._by_group.get(group, SliceCounts(()))
        self._by_group[group] = known.reslice(group.list_uniform_windows())
        self._by_group[group].add_counts(windows, counts)

    def distribute(self) -> None:
        """Distribute results to the groups that need them."""
        self._end_tally_of_bits()
        tally = self._update_slices()
        codes, slices, counts = tally.list_entries()
        if not counts.size:
            return
        for group in self._needs.filter_groups:
            if group in self._places:
                found, part = self._list_wanted(group, codes, slices, counts)
                sums = np.bincount(found, part, tally.windows.size + 1).astype(np.int64)
                self._add_counts(group, tally.windows, sums)
        living = set(self._needs.filter_groups)
        self._by_group = {group: counted for group, counted in self._by_group.items() if group in living}
        self._distributed = self._distributed.reslice(tally.windows.tolist())
        np.add.at(self._distributed.counts, slices, counts)
        self._tally = SliceTally(tally.windows)

    def _update_slices(self) -> SliceTally:
        """The current slices, with the results that are not distributed yet."""
        if not self._slices_current:
            windows = {window for group in self._needs.filter_groups for window in group.list_uniform_windows()}
            self._tally = self._tally.reslice(np.array(sorted(windows), np.int64))
            self._slices_current = True
        return self._tally
