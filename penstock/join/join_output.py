"""The output of a join: rows that members write at once, and matches that are kept until members read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.join.match_batch import MatchBatch
from penstock.join.sharing.member import Member
from penstock.join.sharing.shared_join import SharedJoin
from penstock.ops import Batch, concat


class JoinOutput:
    """What a join gives to its members."""

    def __init__(self, shared: SharedJoin) -> None:
        self._shared = shared
        self._matches: list[MatchBatch] = []
        self._pending_rows = 0
        self._restored: tuple[Sequence[MatchBatch], int] | None = None
        self.deliver: Callable[[], object] | None = None
        """If all members that read matches have subscribers: called during a push when a block of matches waits."""

    def write(self, matches: MatchBatch | None, until: int, done: int) -> None:
        """Give the members that read the root their new rows, and the ends of rows that die by `until`.

        `done` is the time up to which they had them before.
        """
        shared = self._shared
        shared.write_aggregates(matches, until, done)
        for member in shared.writers:
            if member.need.scope is None:
                member.write(matches, until, shared.matches.list_late_ending_places())
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

    def advance(self, scope: frozenset[str] | None, frontier: int) -> None:
        """No row before `frontier` will be written for the members of a scope."""
        for member in self._shared.writers:
            if member.need.scope == scope:
                member.advance(frontier)

    def find_next_end(self) -> int | None:
        """When the next end of a row is due; None if there is none."""
        ending = (member for member in self._shared.writers if member.emits_ends)
        return min((due for member in ending if (due := member.find_next_end()) is not None), default=None)

    # ── snapshots ────────────────────────────────────────────────────────────────────────────────────────────────

    def keep_restored(self, matches: Sequence[MatchBatch], done: int) -> None:
        """Keep the rows that lived in a snapshot until the next turn."""
        self._restored = matches, done

    def drop_restored(self) -> None:
        self._restored = None

    def build_live_rows(self, member: Member) -> Batch | None:
        """The rows of a member that lived in a snapshot; None if the member does not emit ends."""
        if not member.emits_ends or self._restored is None:
            return None
        (matches, bound), places = self._restored, self._shared.matches.list_late_ending_places()
        return concat([member.build_live_rows(each, bound, places) for each in matches])
