"""The output of a join: rows that members write at once, and matches that are kept until members read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.join.match_batch import MatchBatch
from penstock.join.sharing.member import Member, WritingMember
from penstock.join.sharing.shared_join import SharedJoin
from penstock.ops import Batch, concat


@dataclass(frozen=True)
class _RestoredMatches:
    """The rows that lived in a snapshot, and the times up to which members had written theirs."""

    matches: Sequence[MatchBatch]
    done: int
    complete: int


class JoinOutput:
    """What a join gives to its members."""

    def __init__(self, shared: SharedJoin) -> None:
        self._shared = shared
        self._matches: list[MatchBatch] = []
        self._pending_rows = 0
        self._restored: _RestoredMatches | None = None
        self.deliver: Callable[[], object] | None = None
        """If all members that read matches have subscribers: called during a push when a block of matches waits."""

    def write(self, matches: MatchBatch | None, until: int, complete: int, done: int) -> None:
        """Give the members that read the root their new rows, and the ends of rows that die by `until`.

        Those that wait for whole instants get what is up to `complete`; aggregations have seen the rows up to `done`.
        """
        shared = self._shared
        shared.write_aggregates(matches, until, done)
        for member in shared.writers:
            if member.need.scope is None:
                bound = complete if member.waits else until
                member.write(matches, bound, shared.matches.list_late_ending_places())
        if matches is not None and shared.has_pull_members():
            self._keep(matches)

    def write_early(self, matches: MatchBatch, until: int) -> None:
        """Give the members that read the early node their new rows."""
        for member in self._shared.writers:
            if member.need.scope is not None:
                member.write(matches, until, ())
        if len(matches) and self._shared.has_pull_members(matches.origin.scope):
            self._keep(matches)

    def _keep(self, matches: MatchBatch) -> None:
        self._matches.append(matches)
        self._shared.counts.add(matches)
        self._pending_rows += matches.rows.born.size
        if self.deliver is not None and self._pending_rows >= matches.origin.maintenance.block:
            self.deliver()

    @property
    def pending(self) -> Sequence[MatchBatch]:
        """The matches that members have not read yet."""
        return self._matches

    def take_matches(self) -> list[MatchBatch]:
        """The matches since the last call, for the members that build their rows when these are read."""
        matches, self._matches, self._pending_rows = self._matches, [], 0
        return matches

    def advance(self, scope: frozenset[str] | None, frontier: int, whole_frontier: int) -> None:
        """No row before `frontier` will be written for the members of a scope.

        `whole_frontier` is that of members that wait for whole instants.
        """
        for member in self._shared.writers:
            if member.need.scope == scope:
                member.advance(whole_frontier if member.waits else frontier)

    def find_next_timer(self, *, strict: bool) -> int | None:
        """What time must reach before the next row that is known now is written; None if there is none.

        `strict`: the join writes no row of an instant that is not complete.
        """
        writers = [member for member in self._shared.writers if member.emits_ends or member.waits]
        due = ((member.find_next_change(), strict or member.waits) for member in writers)
        return min((time + later for time, later in due if time is not None), default=None)

    # ── snapshots ────────────────────────────────────────────────────────────────────────────────────────────────

    def keep_restored(self, matches: Sequence[MatchBatch], done: int, complete: int) -> None:
        """Keep the rows that lived in a snapshot until the next turn.

        Members got their rows up to `done`, those that wait for whole instants up to `complete`.
        """
        self._restored = _RestoredMatches(matches, done, complete)

    def drop_restored(self) -> None:
        self._restored = None

    def build_live_rows(self, member: Member) -> Batch | None:
        """The rows of a member that lived in a snapshot; None if the member does not emit ends.

        Rows that it had not written then are held back again.
        """
        known = self._restored
        if known is None or not isinstance(member, WritingMember):
            return None
        bound, places = known.complete if member.waits else known.done, self._shared.matches.list_late_ending_places()
        if not member.emits_ends and bound == known.done:
            return None
        found = member.hold_back(concat([member.build_live_rows(each, bound, places) for each in known.matches]), bound)
        return found if member.emits_ends else None
