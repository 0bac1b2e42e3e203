"""The tree inside a join operator: join nodes over leaf windows, stepped batch by batch, children first.

Law: after `step`, the rows returned are exactly the combinations that have a tuple of this batch, satisfy every class
and residual, and live at some instant; each once. A node's new rows are new-left with all of the right, and new-right
with the old of the left ("old": no tuple of this batch), so that a pair of two new rows arises once.

A node that keeps a state answers probes from it; one that keeps none looks its rows up through its children.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.expr.evaluate import mask
from penstock.expr.nodes import Column
from penstock.plan.physical import JoinPlan, Key, LeafPlan, NodePlan, Part
from penstock.state.intern import KeySpace
from penstock.state.join_state import JoinState
from penstock.state.kernels import I32, I64
from penstock.state.leaf import Given, LeafStore, Renumbering
from penstock.state.matches import Scratch
from penstock.state.rows import Rows, concat


@dataclass(frozen=True)
class Found:
    """Rows that answer probes: rows[i] answers probe[i], with the interval they share."""

    probe: I64
    rows: Rows


class LeafNode:
    """A leaf of the tree: probes go to the indexes of its store."""

    def __init__(self, plan: LeafPlan, store: LeafStore, scratch: Scratch) -> None:
        self.plan = plan
        self.store = store
        self._scratch = scratch

    def delta(self) -> Rows:
        ids = self.store.fresh()
        born, dies = self.store.lives(ids)
        rows = Rows(ids[np.newaxis, :], born, dies)
        return rows.take(born < dies) if self.store.rows_window else rows

    def codes(self, class_id: int, rows: Rows) -> I32:
        return self.store.codes(class_id, rows.ids[0])

    def match(self, given: Given, born: I64, dies: I64, old_only: bool) -> Iterator[Found]:
        for block in self.store.probe(given, born, dies, old_only, self._scratch):
            yield Found(block.probe, Rows(block.row[np.newaxis, :], block.born, block.dies))

    def settle(self) -> None:
        self.store.settle()


class JoinNode:
    """A join of two children on the classes they share."""

    def __init__(self, plan: NodePlan, left: TreeNode, right: TreeNode, tree: JoinTree, state_key: Key | None) -> None:
        self.plan = plan
        self.left = left
        self.right = right
        self._tree = tree
        self.state_key = state_key
        self.state = None if state_key is None else JoinState(len(plan.aliases))
        self._key = plan.key
        self._homes = {
            id_: next(place for place, alias in enumerate(plan.aliases) if id_ in tree.stores[alias].plan.classes)
            for id_ in plan.classes
        }
        self._mortal = [place for place, alias in enumerate(plan.aliases) if tree.stores[alias].rows_window]
        self.built = 0

    def delta(self) -> Rows:
        """This batch's rows; they are in the state afterwards."""
        left, right = self.left.delta(), self.right.delta()
        parts = [
            *self._extend(self.left, left, self.right, old_only=False),
            *self._extend(self.right, right, self.left, old_only=True),
        ]
        rows = concat(parts, len(self.plan.aliases))
        self.built += len(rows)
        if self.state is not None and len(rows):
            self._insert(self.state, rows)
        return rows

    def _extend(self, side: TreeNode, rows: Rows, other: TreeNode, *, old_only: bool) -> Iterator[Rows]:
        """New rows of one child with their partners in the other."""
        if len(rows):
            given = {id_: side.codes(id_, rows) for id_ in self._key}
            for found in other.match(given, rows.born, rows.dies, old_only):
                combined = self._combine(side, rows.ids[:, found.probe], found.rows)
                yield combined.take(keep) if (keep := self._residual(combined)) is not None else combined

    def _combine(self, side: TreeNode, ids: np.ndarray[tuple[int, int], np.dtype[np.int64]], partner: Rows) -> Rows:
        halves = (ids, partner.ids) if side is self.left else (partner.ids, ids)
        return Rows(np.concatenate(halves), partner.born, partner.dies)

    def _residual(self, rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
        """Which rows satisfy the predicates of this node; None if all do because there are none."""
        if not self.plan.residuals:
            return None
        return mask(self.plan.residuals, self._tree.reader(self.plan, rows), len(rows))

    def codes(self, class_id: int, rows: Rows) -> I32:
        place = self._homes[class_id]
        return self._tree.stores[self.plan.aliases[place]].codes(class_id, rows.ids[place])

    def match(self, given: Given, born: I64, dies: I64, old_only: bool) -> Iterator[Found]:
        key = tuple(sorted(given))
        if self.state is None or key != self.state_key:
            yield from self._lookup(given, born, dies, old_only)
            return
        codes = self._tree.keys.codes(key, [given[id_] for id_ in key], born.size, insert=False)
        for block in self.state.probe(codes, born, dies, old_only, self._tree.scratch):
            rows = Rows(self.state.ids(block.row), block.born, block.dies)
            if self._mortal:
                rows = self._refreshed(rows)
                alive = rows.born < rows.dies
                yield Found(block.probe[alive], rows.take(alive))
            else:
                yield Found(block.probe, rows)

    def _lookup(self, given: Given, born: I64, dies: I64, old_only: bool) -> Iterator[Found]:
        """The node's rows computed from its children: first the child that is bound by more of what is given."""

        def bound(child: TreeNode) -> Given:
            return {id_: codes for id_, codes in given.items() if id_ in child.plan.classes}

        first, second = (self.left, self.right)
        if len(bound(second)) > len(bound(first)):
            first, second = second, first
        rest = bound(second)
        for found in first.match(bound(first), born, dies, old_only):
            partial = found.rows
            known = {id_: codes[found.probe] for id_, codes in rest.items()}
            known |= {id_: first.codes(id_, partial) for id_ in self._key}
            for partner in second.match(known, partial.born, partial.dies, old_only):
                rows = self._combine(first, partial.ids[:, partner.probe], partner.rows)
                probe = found.probe[partner.probe]
                keep = self._residual(rows)
                yield Found(probe, rows) if keep is None else Found(probe[keep], rows.take(keep))

    def _refreshed(self, rows: Rows) -> Rows:
        """The rows with what is known by now of the deaths in ROWS windows."""
        dies = rows.dies
        for place in self._mortal:
            dies = np.minimum(dies, self._tree.stores[self.plan.aliases[place]].dies_now(rows.ids[place]))
        return Rows(rows.ids, rows.born, dies)

    def _insert(self, state: JoinState, rows: Rows) -> None:
        key = self.state_key or ()
        parts = [self.codes(id_, rows) for id_ in key]
        codes = self._tree.keys.codes(key, parts, len(rows), insert=True)
        state.insert(rows, codes, self._tree.keys.bound(key), fresh=True)

    def settle(self) -> None:
        self.left.settle()
        self.right.settle()
        if self.state is not None:
            self.state.settle()

    def purge(self, bound: int, renumbered: Mapping[str, Renumbering]) -> None:
        """Drop dead rows when enough have gathered, or when leaf rows got new ids."""
        for child in (self.left, self.right):
            if isinstance(child, JoinNode):
                child.purge(bound, renumbered)
        changed = [place for place, alias in enumerate(self.plan.aliases) if alias in renumbered]
        if self.state is None or not (self.state.due or changed):
            return
        rows, codes = self._refreshed(self.state.rows()), self.state.codes()
        keep = rows.dies > bound
        rows, codes = rows.take(keep), codes[keep]
        for place in changed:
            rows.ids[place], keep = renumbered[self.plan.aliases[place]].apply(rows.ids[place])
            rows, codes = rows.take(keep), codes[keep]
        self.state.rebuild(rows, codes)


TreeNode = LeafNode | JoinNode


class JoinTree:
    """Leaves, nodes and the codes they share. The leaves outlive a change of the tree."""

    def __init__(self, plan: JoinPlan, *, keep_states: bool) -> None:
        self.keys = KeySpace([class_.type for class_ in plan.classes])
        self.stores = {leaf.alias: LeafStore(leaf, self.keys) for leaf in plan.leaves}
        self.scratch = Scratch()
        self._keep_states = keep_states
        self._arrange(plan)

    def _arrange(self, plan: JoinPlan) -> None:
        self.plan = plan
        self.root = self._build(plan.root, None)

    def _build(self, part: Part, state_key: Key | None) -> TreeNode:
        if isinstance(part, LeafPlan):
            return LeafNode(part, self.stores[part.alias], self.scratch)
        key = part.key if self._keep_states else None
        return JoinNode(part, self._build(part.left, key), self._build(part.right, key), self, state_key)

    def step(self) -> Rows:
        """The root's new rows after the leaves took in a batch."""
        return self.root.delta()

    def rebuild(self, plan: JoinPlan) -> Rows:
        """Take a shape, the old one or another, and fill its states from the leaves; returns the root's living rows."""
        self._arrange(plan)
        for store in self.stores.values():
            store.fresh_from = store.base
        rows = self.root.delta()
        self.root.settle()
        return rows

    def settle(self, bound: int) -> Mapping[str, Renumbering]:
        """End the batch: nothing is new any more, and what dies by `bound` may be forgotten."""
        self.root.settle()
        changes = {alias: store.purge(bound) for alias, store in self.stores.items()}
        renumbered = {alias: change for alias, change in changes.items() if change is not None}
        if isinstance(self.root, JoinNode):
            self.root.purge(bound, renumbered)
        self.keys.recycle(self._used)
        return renumbered

    def _used(self, key: Key) -> Iterator[I32]:
        for store in self.stores.values():
            yield from store.used(key)
        for node in self.nodes():
            if node.state is not None and node.state_key == key:
                yield node.state.codes()

    def nodes(self) -> Iterator[JoinNode]:
        """The joins, children first."""
        yield from _nodes(self.root)

    def reader(self, part: Part, rows: Rows) -> Callable[[Column], pa.Array]:
        """Read payload columns of rows of a node."""
        places = {alias: place for place, alias in enumerate(part.aliases)}
        return lambda column: self.stores[column.alias].take(column.name, rows.ids[places[column.alias]])


def _nodes(node: TreeNode) -> Iterator[JoinNode]:
    if isinstance(node, JoinNode):
        yield from _nodes(node.left)
        yield from _nodes(node.right)
        yield node
