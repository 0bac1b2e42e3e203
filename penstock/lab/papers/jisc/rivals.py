"""Strategies to change the plan of a running join, on the same windows, states and kernels: JISC and its rivals.

Each strategy processes the same ticks and returns the number of new results. The work includes everything but reading
payloads: inserting tuples into windows, probing, maintaining states and ending the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.join import POLICIES, JoinTree, ParallelTrack, StatePolicy
from penstock.lab.papers.jisc.streams import RoundRobinStreams, TickBatch


class MigrationStrategy(Protocol):
    """A running join whose plan may change between two batches."""

    def feed(self, ticks: TickBatch) -> int:
        """Process the tuples of some ticks; returns the number of results."""

    def migrate(self, order: Sequence[str]) -> None:
        """Change to the left-deep plan of another order."""

    @property
    def migrating(self) -> bool:
        """Whether a change of the plan is not finished."""


def ingest_ticks(tree: JoinTree, ticks: TickBatch) -> None:
    """Insert the tuples of some ticks into the windows."""
    for name, keys in ticks.keys.items():
        tree.stores[name].ingest(ticks.times, {"k": keys})


class Jisc:
    """JISC: existing states are reused; missing entries are completed on demand, and some with every batch."""

    def __init__(
        self, streams: RoundRobinStreams, order: Sequence[str], policy: StatePolicy = POLICIES["lazy"]
    ) -> None:
        self.streams = streams
        self.tree = JoinTree(streams.plan_order(order), policy)

    def feed(self, ticks: TickBatch) -> int:
        self.tree.complete_some(int(len(ticks) * self.tree.policy.pace))
        ingest_ticks(self.tree, ticks)
        rows = self.tree.step()
        self.tree.end_batch(int(ticks.times[-1]))
        return len(rows)

    def migrate(self, order: Sequence[str]) -> None:
        self.tree.change_plan(self.streams.plan_order(order))

    @property
    def migrating(self) -> bool:
        return bool(self.tree.completion)


class MovingState(Jisc):
    """Moving State: the join stops until the states that the old plan did not have are complete."""

    def __init__(self, streams: RoundRobinStreams, order: Sequence[str]) -> None:
        super().__init__(streams, order, POLICIES["eager"])

    def migrate(self, order: Sequence[str]) -> None:
        self.tree.change_plan_at_once(self.streams.plan_order(order))


class ParallelTrackJoin:
    """Parallel Track: both plans run until the last tuple from before the change has expired.

    A further change restarts the migration from the old plan.
    """

    def __init__(self, streams: RoundRobinStreams, order: Sequence[str]) -> None:
        self.streams = streams
        self.tree = JoinTree(streams.plan_order(order), POLICIES["eager"])
        self._track: ParallelTrack | None = None

    def feed(self, ticks: TickBatch) -> int:
        ingest_ticks(self.tree, ticks)
        rows, until = self.tree.step(), int(ticks.times[-1])
        if self._track is not None:
            rows = self._track.step(rows, until)
        self.tree.end_batch(until, [] if self._track is None else [self._track.new_tree])
        if self._track is not None and self._track.finished:
            self.tree, self._track = self._track.new_tree, None
        return len(rows)

    def migrate(self, order: Sequence[str]) -> None:
        self._track = ParallelTrack(self.tree, self.streams.plan_order(order))

    @property
    def migrating(self) -> bool:
        return self._track is not None
