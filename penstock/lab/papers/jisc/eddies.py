"""Rivals that route tuples through an eddy: CACQ, without states, and STAIRs, with them (eager, and by JISC).

Lineage is kept for each tuple: a word with a bit for every stream it has been joined with. Each time a tuple comes
back to the eddy, its lineage is read to find the operator it goes to next. The tuples of a batch that go to the same
operator are probed together, which is far kinder to an eddy than one call per tuple; `visits` counts how often a
tuple passed it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.join.join_rows import JoinRows, concat_rows
from penstock.join.leaf_node import LeafNode
from penstock.join.node import TreeNode
from penstock.join.state_policy import POLICIES
from penstock.join.tree import JoinTree
from penstock.lab.papers.jisc.rivals import Jisc, complete_at_once, ingest_ticks
from penstock.lab.papers.jisc.streams import RoundRobinStreams, TickBatch
from penstock.state.code_set import Mask
from penstock.state.kernels import I32, I64

Lineage = NDArray[np.int64]


@dataclass(frozen=True)
class RoutedTuples:
    """Tuples in the eddy: ids for all streams (meaningless where the lineage has no bit), and where each came in."""

    rows: JoinRows
    codes: I32
    origin: I64
    lineage: Lineage

    def take(self, chosen: Mask | I64) -> RoutedTuples:
        return RoutedTuples(self.rows.take(chosen), self.codes[chosen], self.origin[chosen], self.lineage[chosen])


def _concat_routed(parts: Sequence[RoutedTuples], width: int) -> RoutedTuples:
    return RoutedTuples(
        concat_rows([part.rows for part in parts], width),
        np.concatenate([part.codes for part in parts]),
        np.concatenate([part.origin for part in parts]),
        np.concatenate([part.lineage for part in parts]),
    )


class Cacq:
    """One SteM per stream: a tuple visits all others, in the order of the plan, and leaves when its lineage is full.

    Of the tuples of one batch the one of the last stream finds the others: it meets all rows of a SteM before its own
    and only the older ones of a SteM behind it.
    """

    migrating = False

    def __init__(self, streams: RoundRobinStreams, order: Sequence[str]) -> None:
        self.visits = 0
        self._names = streams.names
        self._route = [streams.names.index(name) for name in order]
        self._tree = JoinTree(streams.plan_order(order), POLICIES["none"])
        self._stores = [self._tree.stores[name] for name in streams.names]

    def feed(self, ticks: TickBatch) -> int:
        ingest_ticks(self._tree, ticks)
        routed = _concat_routed([self._read_arrivals(place) for place in range(len(self._stores))], len(self._stores))
        for stem in self._route:
            self.visits += len(routed.rows)
            there = (routed.lineage >> stem & 1).astype(np.bool_)
            ahead = ~there & (routed.origin < stem)
            behind = ~there & (routed.origin > stem)
            parts = [
                routed.take(there),
                *self._probe(stem, routed.take(ahead), old_only=True),
                *self._probe(stem, routed.take(behind), old_only=False),
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
    """Every join is a pair of STAIRs, the states of its inputs, reached through an eddy.

    A change of the plan demotes the states it has no use for and promotes all entries of the new ones at once.
    """

    def __init__(self, streams: RoundRobinStreams, order: Sequence[str]) -> None:
        super().__init__(streams, order)
        self.visits = 0
        self._bits = {name: 1 << place for place, name in enumerate(streams.names)}

    def feed(self, ticks: TickBatch) -> int:
        self.tree.complete_some(int(len(ticks) * self.tree.policy.pace))
        ingest_ticks(self.tree, ticks)
        results = self._run_eddy()
        self.tree.end_batch(int(ticks.times[-1]))
        return results

    def _run_eddy(self) -> int:
        """Operators in the order of the plan, each with what the eddy holds for it by lineage."""
        held: dict[int, tuple[JoinRows, Lineage]] = {}
        self.tree.complete_batch_keys()
        for node in self.tree.walk_joins():
            for child in (node.left, node.right):
                if isinstance(child, LeafNode):
                    self._enqueue(held, child, child.compute_delta())
            self._enqueue(
                held, node, node.join_new_rows(self._dequeue(held, node.lazy), self._dequeue(held, node.driver))
            )
            last: TreeNode = node
        return len(self._dequeue(held, last))

    def _compute_lineage(self, node: TreeNode) -> int:
        return sum(self._bits[alias] for alias in node.plan.aliases)

    def _enqueue(self, held: dict[int, tuple[JoinRows, Lineage]], node: TreeNode, rows: JoinRows) -> None:
        self.visits += len(rows)
        lineage = self._compute_lineage(node)
        held[lineage] = rows, np.full(len(rows), lineage)

    def _dequeue(self, held: dict[int, tuple[JoinRows, Lineage]], node: TreeNode) -> JoinRows:
        """What goes to the dual of a node's STAIR: chosen by lineage, tuple by tuple."""
        lineage = self._compute_lineage(node)
        rows, lineages = held.pop(lineage)
        return rows.take(lineages == lineage)

    def migrate(self, order: Sequence[str]) -> None:
        complete_at_once(self.tree, self.streams, order)


class JiscOnStairs(Stairs):
    """Entries are promoted when a tuple first asks for them, and at a pace."""

    def migrate(self, order: Sequence[str]) -> None:
        self.tree.change_plan(self.streams.plan_order(order))
