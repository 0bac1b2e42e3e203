"""Mutants of maintenance: each function disables one renumbering, one mark or one notification.

The tests must detect each of them (tests/law/test_maintenance_mutants.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.join import JoinNode, JoinTree, LeafStore
from penstock.join.completion.completion import CompletionTracker
from penstock.join.completion.missing_rows import LeafRowSet, MissingRows
from penstock.join.demand.gate import Gate
from penstock.join.early_reader import PendingRows
from penstock.join.leaf_indexes import LeafIndexes
from penstock.join.match_batch import PayloadView
from penstock.join.node_state import NodeState
from penstock.join.sharing.code_ring import CodeRing
from penstock.join.stored_rows import StoredRows
from penstock.join.table_leaves import TableLeaves
from penstock.ops import Expirations
from penstock.ops.aggregate.extremes import ExtremeAccumulator, LabelEncoder
from penstock.ops.row_groups import RowGroups
from penstock.ops.sequence.buffer import SequenceBuffer
from penstock.state import ALWAYS, FOREVER, KeySpace, Renumbering, RowsWindow, Segment, SpilledColumn, kernels


def _do_nothing(*_args: Any, **_options: Any) -> None:
    return None


# ── renumberings ─────────────────────────────────────────────────────────────────────────────────────────────────


def skip_state_renumbering(patch: pytest.MonkeyPatch) -> None:
    """Join states are not renumbered."""
    purge = JoinNode.purge
    patch.setattr(JoinNode, "purge", lambda self, bound, _renumbered: purge(self, bound, {}))


def look_up_ends_by_old_ids(patch: pytest.MonkeyPatch) -> None:
    """The ends of rows are read from the leaves before the rows have their new ids."""

    def purge(self: NodeState, bound: int, renumbered: Any, filter_demanded: Any) -> None:
        changed = [place for place, alias in enumerate(self._plan.aliases) if alias in renumbered]
        if not (self.table.needs_rebuild or changed):
            return
        rows = self.read_living()
        rows = rows.take(rows.dies > bound)
        for place in changed:
            rows.ids[place], alive = renumbered[self._plan.aliases[place]].apply(rows.ids[place])
            rows = rows.take(alive)
        self.rebuild(filter_demanded(rows))

    patch.setattr(NodeState, "purge", purge)


def skip_pending_rows_renumbering(patch: pytest.MonkeyPatch) -> None:
    """Pending rows of a node with early readers are not renumbered."""
    patch.setattr(PendingRows, "renumber", _do_nothing)


def skip_expirations_renumbering(patch: pytest.MonkeyPatch) -> None:
    """Results whose ends will be reported are not renumbered."""
    patch.setattr(Expirations, "renumber", _do_nothing)


def skip_missing_marks_renumbering(patch: pytest.MonkeyPatch) -> None:
    """The marks of an incomplete state keep old ids, so that the state counts as complete at once."""
    patch.setattr(MissingRows, "renumber", _do_nothing)


def skip_complete_rows_renumbering(patch: pytest.MonkeyPatch) -> None:
    """The complete leaf rows of an incomplete state keep old ids."""
    patch.setattr(LeafRowSet, "renumber", _do_nothing)


def skip_rows_window_renumbering(patch: pytest.MonkeyPatch) -> None:
    """The queues of a ROWS window keep old ids."""
    patch.setattr(RowsWindow, "renumber", _do_nothing)


def skip_interest_codes_move(patch: pytest.MonkeyPatch) -> None:
    """Moved rows get the interest codes of other rows."""
    patch.setattr(CodeRing, "move", _do_nothing)


def skip_reindexing(patch: pytest.MonkeyPatch) -> None:
    """Moved rows are not indexed again."""
    squeeze = LeafStore._compact

    def careless(self: LeafStore, kept: Any) -> Renumbering:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(LeafIndexes, "add_rows", _do_nothing)
            return squeeze(self, kept)

    patch.setattr(LeafStore, "_compact", careless)


def skip_parallel_track_marks(patch: pytest.MonkeyPatch) -> None:
    """The new tree of a parallel track confuses older rows with new ones."""
    follow = JoinTree._apply_leaf_changes

    def careless(self: JoinTree, bound: int, renumbered: Any) -> None:
        since, self.context.first_rows = self.context.first_rows, {}
        follow(self, bound, renumbered)
        self.context.first_rows = since

    patch.setattr(JoinTree, "_apply_leaf_changes", careless)


def skip_parallel_track_renumbering(patch: pytest.MonkeyPatch) -> None:
    """The new tree of a parallel track does not follow renumberings of the leaves."""
    settle = JoinTree.end_batch

    def alone(self: JoinTree, bound: int, beside: Any = ()) -> Any:
        for tree in beside:
            tree.root.end_batch()
        return settle(self, bound)

    patch.setattr(JoinTree, "end_batch", alone)


def skip_column_marks_renumbering(patch: pytest.MonkeyPatch) -> None:
    """The marks of rows without a column keep old ids."""
    squeeze = LeafStore._compact

    def careless(self: LeafStore, kept: Any) -> Renumbering:
        before = dict(self.gaps._first_rows)
        change = squeeze(self, kept)
        self.gaps._first_rows = before
        return change

    patch.setattr(LeafStore, "_compact", careless)


def skip_heap_relabeling(patch: pytest.MonkeyPatch) -> None:
    """The heaps of MIN and MAX keep the old labels of texts."""
    of = LabelEncoder.encode

    def silent(self: LabelEncoder, values: Any) -> Any:
        return replace(of(self, values), relabeling=None)

    patch.setattr(LabelEncoder, "encode", silent)


# ── marks ────────────────────────────────────────────────────────────────────────────────────────────────────────


def recycle_codes_of_leaves(patch: pytest.MonkeyPatch) -> None:
    """Codes that stored tuples use are recycled."""
    patch.setattr(LeafIndexes, "list_used_codes", lambda _self, _key: iter(()))


def recycle_codes_of_states(patch: pytest.MonkeyPatch) -> None:
    """Codes that only join states use are recycled."""
    used = JoinTree._list_used_codes

    def leaves_and_gates(self: JoinTree, key: Any) -> Any:
        states = {id(node): node.state for node in self.walk_joins()}
        for node in self.walk_joins():
            node.state = None
        found = list(used(self, key))
        for node in self.walk_joins():
            node.state = states[id(node)]
        return iter(found)

    patch.setattr(JoinTree, "_list_used_codes", leaves_and_gates)


def recycle_codes_of_gates(patch: pytest.MonkeyPatch) -> None:
    """Codes of demanded keys are recycled."""
    patch.setattr(Gate, "list_used_codes", lambda _self, _key: iter(()))


def recycle_codes_of_longer_keys(patch: pytest.MonkeyPatch) -> None:
    """Codes that are parts of longer keys are recycled."""
    patch.setattr(KeySpace, "_list_part_codes", lambda _self, _key: iter(()))


def recycle_codes_of_groups(patch: pytest.MonkeyPatch) -> None:
    """Codes of groups with rows are recycled."""
    recycle = RowGroups.recycle
    patch.setattr(RowGroups, "recycle", lambda self, counts: recycle(self, np.zeros_like(counts)))


def recycle_codes_of_sequences(patch: pytest.MonkeyPatch) -> None:
    """Codes that rows of a sequence use are recycled."""
    purge = SequenceBuffer.purge

    def careless(self: SequenceBuffer, now: int) -> None:
        recycle = self._key_space.recycle
        self._key_space.recycle = lambda _used: recycle(lambda _key: ())  # type: ignore[method-assign]
        purge(self, now)
        self._key_space.recycle = recycle  # type: ignore[method-assign]

    patch.setattr(SequenceBuffer, "purge", careless)


def keep_freed_tuples_in_queues(patch: pytest.MonkeyPatch) -> None:
    """A ROWS window also ends freed tuples, and so the tuples that are stored in their place."""
    share = LeafStore.update_sharing

    def careless(self: LeafStore, *args: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(RowsWindow, "keep_only", _do_nothing)
            share(self, *args)

    patch.setattr(LeafStore, "update_sharing", careless)


# ── notifications ────────────────────────────────────────────────────────────────────────────────────────────────


def keep_complete_keys_on_recycle(patch: pytest.MonkeyPatch) -> None:
    """Keys stay marked as complete after their codes are recycled for other values."""
    patch.setattr(CompletionTracker, "forget_keys", _do_nothing)


def skip_view_recall(patch: pytest.MonkeyPatch) -> None:
    """Results that view the rings of a window are not materialised before the rings are overwritten."""
    patch.setattr(StoredRows, "_materialize_viewers", _do_nothing)


def read_moved_rows_in_views(patch: pytest.MonkeyPatch) -> None:
    """Results that view the rings of a window read them under the old ids after a compaction."""
    patch.setattr(PayloadView, "keep_rows", _do_nothing)


def drop_rows_in_heap_compaction(patch: pytest.MonkeyPatch) -> None:
    """Compacted heaps are emptied and not rebuilt."""

    def compact(self: ExtremeAccumulator) -> None:
        self._roots.fill(kernels.NONE)
        self._clear(1)

    patch.setattr(ExtremeAccumulator, "_compact", compact)


def skip_sequence_queue_rebuild(patch: pytest.MonkeyPatch) -> None:
    """After a sequence is compacted, its queues lose their rows."""
    purge = SequenceBuffer.purge

    def careless(self: SequenceBuffer, now: int) -> None:
        size = self._size
        purge(self, now)
        if self._size != size:
            self._head.fill(kernels.NONE)
            self._tail.fill(kernels.NONE)

    patch.setattr(SequenceBuffer, "purge", careless)


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────


def skip_segment_renumbering(patch: pytest.MonkeyPatch) -> None:
    """Rows on disk are read by their place among the rows that are kept, not by their place in the file."""
    keep = Segment.keep
    patch.setattr(Segment, "keep", lambda self, kept, first: replace(keep(self, kept, first), places=None))


def read_rows_behind_segments(patch: pytest.MonkeyPatch) -> None:
    """The first row in memory is taken to be on disk."""
    prepare = SpilledColumn.prepare

    def careless(self: SpilledColumn, base: int, until: int, new_file: Any) -> Segment | None:
        segment = prepare(self, base, until, new_file)
        return segment if segment is None else replace(segment, first=segment.first + 1, end=segment.end + 1)

    patch.setattr(SpilledColumn, "prepare", careless)


def take_emptied_states_as_complete(patch: pytest.MonkeyPatch) -> None:
    """States that were emptied are not marked incomplete."""
    patch.setattr(JoinTree, "restart", lambda self: self._set_plan(self.plan))


def keep_states_of_replaced_tables(patch: pytest.MonkeyPatch) -> None:
    """States are not emptied when a static table is replaced."""
    patch.setattr(JoinTree, "restart", _do_nothing)


def restore_with_present_rows(patch: pytest.MonkeyPatch) -> None:
    """A restored join builds living rows with the present rows of tables, not with those of their births."""

    def replay(self: TableLeaves, until: int) -> Iterator[tuple[int, int]]:
        self.move(until)
        yield int(ALWAYS), int(FOREVER)

    patch.setattr(TableLeaves, "replay", replay)


MUTANTS = [
    skip_state_renumbering, look_up_ends_by_old_ids, skip_pending_rows_renumbering, skip_expirations_renumbering,
    skip_missing_marks_renumbering, skip_rows_window_renumbering, skip_interest_codes_move,
    skip_reindexing, skip_parallel_track_marks, skip_parallel_track_renumbering,
    skip_column_marks_renumbering, skip_heap_relabeling, recycle_codes_of_leaves,
    recycle_codes_of_states, recycle_codes_of_gates, recycle_codes_of_longer_keys,
    recycle_codes_of_groups, recycle_codes_of_sequences, keep_freed_tuples_in_queues,
    keep_complete_keys_on_recycle, skip_view_recall, read_moved_rows_in_views, drop_rows_in_heap_compaction,
    skip_sequence_queue_rebuild, skip_complete_rows_renumbering, skip_segment_renumbering, read_rows_behind_segments,
    take_emptied_states_as_complete, keep_states_of_replaced_tables, restore_with_present_rows,
]  # fmt: skip
