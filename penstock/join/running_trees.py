"""The tree that a join runs, and the tree that it changes to on a parallel track."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from penstock.join.completion.parallel_track import ParallelTrack
from penstock.join.join_rows import JoinRows
from penstock.join.shedding.load_shedding import LoadShedding
from penstock.join.state_policy import StatePolicy
from penstock.join.tree import JoinTree
from penstock.plan import JoinPlan, PlanShape
from penstock.state import Renumbering

Migration = Literal["jisc", "moving-state", "parallel-track"]


class RunningTrees:
    """One tree, or two during a parallel-track migration. Both read the same leaves."""

    def __init__(self, tree: JoinTree) -> None:
        self.tree = tree
        self._track: ParallelTrack | None = None

    @property
    def all(self) -> list[JoinTree]:
        """The tree, and the new tree of a parallel track."""
        return [self.tree] if self._track is None else [self.tree, self._track.new_tree]

    @property
    def plans(self) -> list[JoinPlan]:
        """The plan of every tree; the last is the one that will run."""
        return [tree.plan for tree in self.all]

    @property
    def on_parallel_track(self) -> bool:
        return self._track is not None

    # ── a batch ──────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, until: int) -> JoinRows:
        """The new rows after the leaves stored a batch, up to the time `until`."""
        rows = self.tree.step(until)
        return rows if self._track is None else self._track.step(rows, until)

    def complete_some(self, tuples: int) -> None:
        """Complete states in proportion to the tuples that arrive, before the batch: it has less to complete then."""
        for tree in self.all:
            tree.complete_some(int(tuples * tree.policy.pace))

    def end_batch(self, until: int) -> Mapping[str, Renumbering]:
        """End the batch in every tree; the new tree of a parallel track that has finished replaces the old one."""
        renumbered = self.tree.end_batch(until, () if self._track is None else self.all[1:])
        if self._track is not None and self._track.finished:
            self.tree, self._track = self._track.new_tree, None
        return renumbered

    # ── changes between two batches ──────────────────────────────────────────────────────────────────────────────

    def set_policy(self, policy: StatePolicy, node: frozenset[str] | None) -> None:
        for tree in self.all:
            tree.set_policy(policy, node)

    def migrate(self, plan: JoinPlan, how: Migration) -> None:
        """Change to another plan: missing rows are completed when needed, at once, or by running both trees.

        A parallel track that is still running is dropped: the old tree holds everything. Under a budget there is no
        parallel track, because it does all work twice: the new plan takes over at once.
        """
        if how == "parallel-track" and self.tree.shedding is None:
            self._track = ParallelTrack(self.tree, plan)
            return
        self._track = None
        if how != "moving-state":
            self.tree.change_plan(plan)
        else:
            self.tree.change_plan_at_once(plan)

    def drop_track(self) -> PlanShape:
        """End a parallel track; returns the shape to continue with, which is the new one."""
        shape = self.plans[-1].tree
        self._track = None
        return shape

    def set_shedding(self, shedding: LoadShedding | None) -> None:
        """Set or remove a budget. A parallel track ends as a change of the plan in place."""
        track, self._track = self._track, None
        self.tree.set_shedding(shedding)
        if track is not None:
            self.tree.change_plan(track.new_tree.plan)
