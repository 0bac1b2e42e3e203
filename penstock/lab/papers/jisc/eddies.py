"""Rivals that route tuples through an eddy: CACQ without states, STAIRs with states (eager, and completed by JISC).

The lineage of a tuple is a word with a bit for every stream it has been joined with. When a tuple returns to the eddy,
its lineage decides the next operator. The tuples of a batch that go to the same operator are probed together, which is
much cheaper for an eddy than one call per tuple.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.join import POLICIES, JoinRows, JoinTree, LeafNode, TreeNode, concat_rows
from penstock.lab.papers.jisc.rivals import Jisc, ingest_ticks
from penstock.lab.papers.jisc.streams import RoundRobinStreams, TickBatch
from penstock.lab.workloads import Integers

Lineage = Integers


@dataclass(frozen=True)
class RoutedTuples:
    """Tuples in the eddy: ids for all streams (undefined where the lineage has no bit) and the stream of origin."""

    rows: JoinRows
    codes: NDArray[np.int32]
    origin: Integers
    lineage: Lineage

    def take(self, chosen: NDArray[np.bool_] | Integers) -> RoutedTuples:
        return RoutedTuples(self.rows.take(chosen), self.codes[chosen], self.origin[chosen], self.lineage[chosen])


def _concat_routed(parts: Sequence[RoutedTuples], width: int) -> RoutedTuples:
    return RoutedTuples(
        concat_rows([part.rows for part in parts], width),
        np.concatenate([part.codes for part in parts]),
        np.concatenate([part.origin for part in parts]),
        np.concatenate([part.lineage for part in parts]),
    )


class Cacq:
    """CACQ: one SteM per stream. A tuple probes all other SteMs in the order of the plan.

    Of several tuples of one batch, the tuple of the last stream finds the others: it probes all rows of the SteMs of
    earlier streams, and only the rows of former batches in the SteMs of later streams.
    """

    migrating = False

    def __init__(self, streams: RoundRobinStreams, order: Sequence[str]) -> None:
        self._names = streams.names
        self._route = [streams.names.index(name) for name in order]
        self._tree = JoinTree(streams.plan_order(order), POLICIES["none"])
        self._stores = [self._tree.stores[name] for name in streams.names]

    def feed(self, ticks: TickBatch) -> int:
        ingest_ticks(self._tree, ticks)
        routed = _concat_routed([self._read_arrivals(place) for place in range(len(self._stores))], len(self._stores))
        for stem in self._route:
            joined = (routed.lineage >> stem & 1).astype(np.bool_)
            earlier = ~joined & (routed.origin < stem)
            later = ~joined & (routed.origin > stem)
            parts = [
                routed.take(joined),
                *self._probe(stem, routed.take(earlier), old_only=True),
                *self._probe(stem, routed.take(later), old_only=False),
            ]
            routed = _concat_routed(parts, len(self._stores))
        self._tree.end_batch(int(ticks.times[-1]))
        return len(routed.rows)

    def _read_arrivals(self, place: int) -> RoutedTuples:
        store = self._stores[place]
        fresh = store.fresh_ids()
        ids = np.empty((len(self._stores), fresh.size), np.int64)
        ids[place] = fresh
        rows = JoinRows(ids, *store.rows.read_lifetimes(fresh))
        return RoutedTuples(
            rows, store.rows.codes(0, fresh), np.full(fresh.size, place), np.full(fresh.size, 1 << place)
        )

    def _probe(self, stem: int, routed: RoutedTuples, *, old_only: bool) -> Iterator[RoutedTuples]:
        rows = routed.rows
        store, scratch = self._stores[stem], self._tree.context.probe_buffer
        span = store.id_range(store.rows.base, old_only=old_only)
        for block in store.indexes.probe({0: routed.codes}, rows.born, rows.dies, span, scratch):
            ids = rows.ids[:, block.probe]
            ids[stem] = block.row
            yield RoutedTuples(
                JoinRows(ids, block.born, block.dies),
                routed.codes[block.probe],
                routed.origin[block.probe],
                routed.lineage[block.probe] | 1 << stem,
            )

    def migrate(self, order: Sequence[str]) -> None:
        self._route = [self._names.index(name) for name in order]


class Stairs(Jisc):
    """STAIRs as states of a tree: every join is a pair of STAIRs, the states of its inputs.

    This is the state and the work of STAIRs for one order of joins at a time: batches of tuples are routed by their
    lineage, and a change of the plan demotes the states that the new plan does not have and promotes all entries of the
    new states at once. It is not an eddy that routes each tuple on its own.
    """

    def __init__(self, streams: RoundRobinStreams, order: Sequence[str]) -> None:
        super().__init__(streams, order)
        self._bits = {name: 1 << place for place, name in enumerate(streams.names)}

    def feed(self, ticks: TickBatch) -> int:
        self.tree.complete_some(int(len(ticks) * self.tree.policy.pace))
        ingest_ticks(self.tree, ticks)
        results = self._run_eddy()
        self.tree.end_batch(int(ticks.times[-1]))
        return results

    def _run_eddy(self) -> int:
        """Run the operators in the order of the plan, each on the tuples that the eddy holds for it."""
        queues: dict[int, tuple[JoinRows, Lineage]] = {}
        self.tree.complete_batch_keys()
        for node in self.tree.walk_joins():
            for child in (node.left, node.right):
                if isinstance(child, LeafNode):
                    self._enqueue(queues, child, child.compute_delta())
            self._enqueue(
                queues, node, node.join_new_rows(self._dequeue(queues, node.lazy), self._dequeue(queues, node.driver))
            )
            last: TreeNode = node
        return len(self._dequeue(queues, last))

    def _compute_lineage(self, node: TreeNode) -> int:
        return sum(self._bits[alias] for alias in node.plan.aliases)

    def _enqueue(self, queues: dict[int, tuple[JoinRows, Lineage]], node: TreeNode, rows: JoinRows) -> None:
        lineage = self._compute_lineage(node)
        queues[lineage] = rows, np.full(len(rows), lineage)

    def _dequeue(self, queues: dict[int, tuple[JoinRows, Lineage]], node: TreeNode) -> JoinRows:
        """The tuples for the dual of a node's STAIR, selected by the lineage of each tuple."""
        lineage = self._compute_lineage(node)
        rows, lineages = queues.pop(lineage)
        return rows.take(lineages == lineage)

    def migrate(self, order: Sequence[str]) -> None:
        self.tree.change_plan_at_once(self.streams.plan_order(order))


class JiscOnStairs(Stairs):
    """JISC on STAIRs: entries are promoted when a tuple first probes them, and some with every batch."""

    def migrate(self, order: Sequence[str]) -> None:
        self.tree.change_plan(self.streams.plan_order(order))
