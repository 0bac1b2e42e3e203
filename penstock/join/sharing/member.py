"""A member: one query's part of a join that it may share. It selects its combinations and builds its rows of them.

Law: of a batch's combinations, which are in temporal order, a member takes those whose parts all pass its filters (the
interest of its filter group), lie within its windows and satisfy its own predicates, in the same order. A member that
emits ends writes each again, with sign -1, when the first of its parts leaves the member's window.

State: the living rows, if the member emits ends.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa

from penstock.errors import InternalError, QueryError
from penstock.expr import Column, compute_mask, evaluate
from penstock.join.match_batch import MatchBatch, filter_positions
from penstock.join.sharing.interest import compute_ages, compute_ends
from penstock.join.sharing.shared_needs import FilterGroup
from penstock.ops import (
    END_TIME,
    EVALUATION_ERRORS,
    Batch,
    Changes,
    Expirations,
    OperatorId,
    Outlet,
    OutputMode,
    concat,
    make_evaluation_error,
    merge_changes,
)
from penstock.plan import JoinRequirement
from penstock.state import ALWAYS, I64, Mask, Renumbering, gather


class Member:
    """One query's part of a join. Its rows are built when they are read."""

    def __init__(self, id_: OperatorId, need: JoinRequirement, renaming: Mapping[str, str], mode: OutputMode) -> None:
        self.id = id_
        self.name = str(id_)
        self.need = need
        self.renaming = renaming
        """The join's alias for each alias of the query."""
        self.emits_ends = mode.ends
        self.waits = mode.whole
        """Whether it gets the rows of an instant when all of them are known, and not before."""
        self.reads_ends = mode.reads_ends
        """Whether it needs to know when its rows leave."""
        self._writes_end_times = mode.end_times
        self.filter_group: FilterGroup
        self.expirations: Expirations
        self.failure: QueryError | None = None
        self.emitted = self.stale = 0
        self.complete_since = int(ALWAYS)
        """From this time on no result is missing because the query was added late."""
        self.counted_before = 0
        """How many results its slices had when it was added."""
        self._next_number = 0
        self._former_groups: list[tuple[int, FilterGroup]] = []

    @property
    def pulls(self) -> bool:
        """Whether its rows are built when they are read, not at once."""
        return True

    def _read_clock(self) -> int:
        """The clock, for bounds of freshness that compare with it."""
        raise InternalError("NO_CLOCK", f"{self.name} has no clock")

    def find_next_change(self) -> int | None:
        """When it writes the next row or end of a row, as far as is known."""
        return self.expirations.next_due()

    def count_living(self) -> int:
        """How many of its rows wait for their end."""
        return len(self.expirations)

    def count_held(self) -> int:
        """How many of its rows wait until their instant is complete."""
        return 0

    def find_failure(self) -> QueryError | None:
        """Why the member stopped; None if it did not."""
        return self.failure or self.filter_group.failure

    # ── choosing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def select_matches(self, matches: MatchBatch) -> I64 | None:
        """The positions of the member's combinations; None for all."""
        group = self._find_group_at(matches)
        if self._has_widest_windows(matches):
            places = matches.select_younger(group, None)
        elif self.need.common_lifetime is not None:
            places = matches.select_younger(group, self.need.common_lifetime)
        else:
            places = matches.select_wanted(
                group, filter_positions(None, matches.rows.born < self._compute_expirations(matches))
            )
        for alias, count in set(self.need.row_counts) - set(matches.origin.largest_counts):
            places = filter_positions(places, matches.row_ages[alias] < count)
        own = self._test_residuals(matches, places)
        return places if own is None else filter_positions(places, own, narrowed=True)

    def _drop_stale(self, matches: MatchBatch, places: I64 | None) -> I64 | None:
        """The combinations without a stale part, tested at the instant they are born, and by the clock."""
        young = []
        if matches.origin.under_budget:
            born, checks = matches.rows.born, self.need.freshness_checks
            young += [compute_ages(born, matches.read_births(alias)) <= bound for alias, bound in checks]
        if self.need.clock_checks:
            now = self._read_clock()
            young += [matches.read_births(alias) >= now - bound for alias, bound in self.need.clock_checks]
        if not young:
            return places
        fresh = filter_positions(places, np.logical_and.reduce(young))
        before = len(matches) if places is None else places.size
        self.stale += before - (len(matches) if fresh is None else fresh.size)
        return fresh

    def identify_rows(self, matches: MatchBatch) -> Hashable:
        """A value that is equal only for members that pull the same combinations, in the same order."""
        life = None if self._has_widest_windows(matches) else self.need.common_lifetime
        return matches.identify_selection(self._find_group_at(matches), life)

    def change_filter_group(self, filter_group: FilterGroup, merge_count: int) -> None:
        """Its filter group was merged into another one; `merge_count` numbers the merges of the join."""
        self._former_groups.append((merge_count, self.filter_group))
        self.filter_group = filter_group

    def _find_group_at(self, matches: MatchBatch) -> FilterGroup:
        """Its filter group when a match batch was found, which may be long before the batch is read."""
        former = (group for merge, group in self._former_groups if matches.origin.merge_count < merge)
        return next(former, self.filter_group)

    def _has_widest_windows(self, matches: MatchBatch) -> bool:
        """Whether the join has no wider windows than this query."""
        return self.need.lifetimes == matches.origin.widest_windows

    def _test_residuals(self, matches: MatchBatch, places: I64 | None) -> Mask | None:
        """Which of its rows satisfy the predicates that not all members have; None for all."""
        own = self.need.residuals - matches.origin.satisfied
        if not own:
            return None
        return compute_mask(tuple(own), matches.make_reader(places), len(matches) if places is None else places.size)

    def _compute_expirations(self, matches: MatchBatch) -> I64:
        """When combinations leave the member's windows."""
        life = self.need.common_lifetime
        if self._has_widest_windows(matches):
            return matches.rows.dies
        if life is not None:
            dies = compute_ends(matches.oldest_birth, np.full(len(matches), life))
        else:
            rows = len(matches)
            full = [
                compute_ends(matches.read_births(alias), np.full(rows, life)) for alias, life in self.need.lifetimes
            ]
            dies = reduce(np.minimum, full)
        return dies if matches.late_expirations is None else np.minimum(dies, matches.late_expirations)

    # ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def build_output(self, matches: MatchBatch) -> Batch | None:
        """The member's rows, without ends; None if the member has stopped, or stops now."""
        return self._try_build_inserts(matches, ())

    def _try_build_inserts(self, matches: MatchBatch, late_ending: Sequence[int]) -> Batch | None:
        if self.failure is not None:
            return None
        try:
            return self.build_inserts(matches, late_ending)
        except MemoryError:
            raise
        except EVALUATION_ERRORS as error:
            self.failure = make_evaluation_error(self.name, error)
            return None

    def build_inserts(self, matches: MatchBatch, late_ending: Sequence[int]) -> Batch:
        """The member's rows; `late_ending` are the places of aliases with ROWS windows in a row."""
        places = self._drop_stale(matches, self.select_matches(matches))
        count = len(matches) if places is None else places.size
        read = matches.make_reader(places)
        columns = {
            name: read(expr) if isinstance(expr, Column) else evaluate(expr, read, count)
            for name, expr in self.need.outputs
        }
        born = matches.rows.born if places is None else gather(matches.rows.born, places)
        if self._writes_end_times:
            dies = self._compute_expirations(matches)
            columns[END_TIME] = pa.array(dies if places is None else gather(dies, places))
        if not self.emits_ends:
            return Batch(born, columns)
        numbers = np.arange(self._next_number, self._next_number + count)
        self._next_number += count
        at = slice(None) if places is None else places
        self.expirations.add(
            self._compute_expirations(matches)[at], numbers, matches.rows.ids[list(late_ending)][:, at], columns
        )
        return Changes(born, columns, np.ones(count, np.int8), numbers)

    def build_live_rows(self, matches: MatchBatch, bound: int, late_ending: Sequence[int]) -> Batch:
        """As `build_inserts`, of the combinations that die after `bound` in the member's windows."""
        return self.build_inserts(matches.take(np.flatnonzero(self._compute_expirations(matches) > bound)), late_ending)


class WritingMember(Member):
    """A member that writes its rows to an outlet as soon as they are found."""

    def __init__(
        self,
        id_: OperatorId,
        need: JoinRequirement,
        outlet: Outlet,
        renaming: Mapping[str, str],
        mode: OutputMode,
        clock: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(id_, need, renaming, mode)
        self._outlet = outlet
        self._clock = clock
        self._held: Batch | None = None
        """Rows of an instant that is not complete yet."""

    def _read_clock(self) -> int:
        return super()._read_clock() if self._clock is None else self._clock()

    @property
    def pulls(self) -> bool:
        return False

    def write(self, matches: MatchBatch | None, until: int, late_ending: Sequence[int]) -> None:
        """Write the rows that are born by `until`, of this batch or held back, and the ends of rows by then."""
        born = None if matches is None else self._try_build_inserts(matches, late_ending)
        born, self._held = self._join_held(born), None
        dead = self.expirations.pop_due(until) if self.emits_ends else None  # after the births: some die at once
        batch = merge_changes(dead, None if born is None else self.hold_back(born, until))
        if batch is not None:
            self.emitted += len(batch)
            self._outlet.write(batch)

    def _join_held(self, born: Batch | None) -> Batch | None:
        """New rows behind those that were held back."""
        if self._held is None or born is None:
            return born if self._held is None else self._held
        return concat([self._held, born])

    def hold_back(self, born: Batch, until: int) -> Batch:
        """The rows that are written now, of new rows: those that are born by `until`."""
        if not len(born) or born.times[-1] <= until:
            return born
        end = int(np.searchsorted(born.times, until, side="right"))
        self._held = born.slice(end, len(born))
        return born.slice(0, end)

    def count_held(self) -> int:
        return 0 if self._held is None else len(self._held)

    def find_next_change(self) -> int | None:
        due = super().find_next_change()
        born = None if self._held is None else int(self._held.times[0])
        return min((time for time in (due, born) if time is not None), default=None)

    def advance(self, frontier: int) -> None:
        """No row before `frontier` will be written any more."""
        self._outlet.advance(frontier)

    def renumber(self, renumbered: Mapping[str, Renumbering], late_ending: Sequence[str]) -> None:
        """Leaf rows of ROWS windows, given by alias, have new ids."""
        for place, alias in enumerate(late_ending):
            if alias in renumbered:
                self.expirations.renumber(place, renumbered[alias])
