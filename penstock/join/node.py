"""The nodes of a join tree: how rows arise, how probes are answered, and what is put off until somebody needs it.

Two independent sets say which rows of a node its state holds. Demand (JIT): rows that a gate above does not admit
are not built. Completeness (JISC): for a key that is not complete, rows made of older tuples may be missing; they are
looked up when the key is first probed, and inserted if absent. Rows with a tuple of the batch in progress are always
built and inserted if they are demanded, whether or not their key is complete.

With all gates open and all states complete this is a plain symmetric hash join tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from penstock.expr.evaluate import mask
from penstock.join.demand.gate import CodesOf, Gate
from penstock.join.early_reader import Ahead
from penstock.join.join_rows import Rows, concat
from penstock.join.leaf_node import Found, LeafNode, Probes, codes_of, demanded, whole_time
from penstock.join.leaf_store import Given, Renumbering
from penstock.join.node_state import JoinState
from penstock.join.shedding.load_shedding import Shedding
from penstock.plan.physical import Key, NodePlan
from penstock.plan.ranges import RangeCondition, range_condition
from penstock.state.alloc import joined, taken
from penstock.state.code_set import CodeSet, Mask
from penstock.state.kernels import I32, I64
from penstock.state.probe_blocks import equal_pairs
from penstock.state.sorted_index import F64, numbers, span

if TYPE_CHECKING:
    from penstock.join.tree import JoinTree


class JoinNode:
    """A join of two children on the classes they share.

    `driver` and `lazy` are its children in another order: a gate over the lazy one is opened by the driver's rows.
    """

    def __init__(self, plan: NodePlan, left: TreeNode, right: TreeNode, tree: JoinTree, state_key: Key | None) -> None:
        self.plan = plan
        self.left = left
        self.right = right
        self.state_key = state_key
        self.state = None if state_key is None else JoinState(len(plan.aliases), tree.maintenance)
        self.gate: Gate | None = None
        self.gates: tuple[Gate, ...] = ()
        self.complete_keys: CodeSet | None = None
        """The keys for which nothing is missing; None if that is all of them."""
        self.built = 0
        self.completed = self.resumed = self.probes = 0
        self.held: Counter[str] = Counter()
        self.ahead: Ahead | None = None
        """Where queries read the node: its rows that the tree has not taken yet."""
        self._tree = tree
        self._homes = {
            id_: next(place for place, alias in enumerate(plan.aliases) if id_ in tree.stores[alias].plan.classes)
            for id_ in plan.classes
        }
        self._marks, self._marked = dict.fromkeys(plan.aliases, 0), 0
        """Where the leaves ended when the state was last marked, and how many rows it had then."""
        self._mortal = [place for place, alias in enumerate(plan.aliases) if tree.stores[alias].rows_window]
        self._range = None if plan.key else range_condition(plan)
        for child in (left, right):
            child.ordered_by = self._range
        self.ordered_by: RangeCondition | None = None
        lazy_left = isinstance(left, JoinNode) and not isinstance(right, JoinNode)
        self.driver, self.lazy = (right, left) if lazy_left else (left, right)

    # ── rows arise ───────────────────────────────────────────────────────────────────────────────────────────────

    def delta(self) -> Rows:
        """This batch's rows that are demanded; they are in the state afterwards."""
        if self.ahead is not None:
            return self._kept(self.ahead.take())
        return self.joined(self.lazy.delta(), self.driver.delta())

    def joined(self, lazy: Rows, driver: Rows) -> Rows:
        """The rows that this batch's rows of the two children bring."""
        return self._kept(self.found(lazy, driver))

    def _kept(self, rows: Rows) -> Rows:
        if self.state is not None and len(rows):
            self._insert(self.state, rows, fresh=True)
        return rows

    def found(self, lazy: Rows, driver: Rows) -> Rows:
        """As `joined`, but the state is left as it is."""
        self.demand_of_lazy(driver)
        parts = (
            chain(self.extend(self.driver, driver, old_only=False), self.extend(self.lazy, lazy, old_only=True))
            if self._tree.shedding is None
            else self._within_allowance(self._tree.shedding, lazy, driver)
        )
        rows = concat([demanded(self, part, self.held) for part in parts], len(self.plan.aliases))
        self.built += len(rows)
        return rows

    def _within_allowance(self, shedding: Shedding, lazy: Rows, driver: Rows) -> Iterator[Rows]:
        """The same as far as a budget goes. Pairs of two new rows arise from the side that sheds the smaller part."""
        here = self.plan.tree
        halves = [
            (side, len(rows), shedding.cut(side.plan.tree, here, rows))
            for side, rows in ((self.driver, driver), (self.lazy, lazy))
        ]
        halves.sort(key=lambda half: -len(half[2]) / max(1, half[1]))
        for (side, _, rows), old_only in zip(halves, (False, True), strict=True):
            for turn in shedding.turns(side.plan.tree, here, rows):
                found = list(self.extend(side, turn, old_only=old_only))
                shedding.found(side.plan.tree, len(turn), sum(len(part) for part in found))
                yield from found

    def extend(self, side: TreeNode, rows: Rows, *, old_only: bool) -> Iterator[Rows]:
        """Rows of one child with their partners in the other."""
        if len(rows):
            other = self.right if side is self.left else self.left
            given = {id_: side.codes(id_, rows) for id_ in self.plan.key}
            spans = None if self._range is None else self._spans(side, rows)
            asks = self._tree.asks(self.plan)
            tuples = self._tree.tuples_wanted(side.plan, rows, other.plan) if asks and spans is None else None
            oldest = self._tree.oldest_wanted(side.plan, rows, other.plan) if asks and tuples is None else None
            for found in other.match(Probes(given, rows.born, rows.dies, old_only, spans, oldest, tuples)):
                wanted = None if tuples is None else found.rows.wanted  # where both sides were asked who wants them
                combined = self._combine(side, taken(rows.ids, found.probe), found.rows, wanted)
                yield self._fitting(found.probe, combined).rows

    def meet(self, one: TreeNode, rows: Rows, other: TreeNode, partners: Rows) -> Iterator[Rows]:
        """Rows of one child with their partners among some rows of the other."""
        sides = ((one, rows), (other, partners))
        codes = [
            self._tree.keys.codes(self.plan.key, [side.codes(i, some) for i in self.plan.key], len(some), insert=True)
            for side, some in sides
        ]
        for at, to in equal_pairs(codes[0], codes[1], self._tree.scratch.block):
            born, dies = np.maximum(rows.born[at], partners.born[to]), np.minimum(rows.dies[at], partners.dies[to])
            met = self._combine(one, taken(rows.ids, at), Rows(taken(partners.ids, to), born, dies)).take(born < dies)
            yield self._fitting(at[born < dies], met).rows

    def _spans(self, side: TreeNode, rows: Rows) -> tuple[F64, F64]:
        """Where the partners' numbers must lie: low <= left - right <= high."""
        assert self._range is not None
        condition = self._range
        if side is self.left:
            return span(numbers(self._tree.reader(side.plan, rows)(condition.left)), -condition.high, -condition.low)
        return span(numbers(self._tree.reader(side.plan, rows)(condition.right)), condition.low, condition.high)

    def _combine(self, side: TreeNode, ids: NDArray[np.int64], partner: Rows, wanted: I32 | None = None) -> Rows:
        halves = (ids, partner.ids) if side is self.left else (partner.ids, ids)
        return Rows(joined(halves, axis=0), partner.born, partner.dies, wanted)

    def _fitting(self, probe: I64, rows: Rows) -> Found:
        """The rows that somebody wants and that satisfy the predicates of this node."""
        if rows.wanted is None and self._tree.asks(self.plan):
            rows = self._tree.wanted(self.plan, rows)
            alive = rows.born < rows.dies
            if not alive.all():
                probe, rows = probe[alive], rows.take(alive)
        if self.plan.residuals:
            keep = mask(self.plan.residuals, self._tree.reader(self.plan, rows), len(rows))
            probe, rows = probe[keep], rows.take(keep)
        return Found(probe, rows)

    def demanded(self, rows: Rows) -> Rows:
        return demanded(self, rows)

    def codes(self, class_id: int, rows: Rows) -> I32:
        place = self._homes[class_id]
        return self._tree.stores[self.plan.aliases[place]].codes(class_id, rows.ids[place])

    def _state_codes(self, rows: Rows) -> I32:
        key = self.state_key or ()
        parts = [self.codes(id_, rows) for id_ in key]
        return self._tree.keys.codes(key, parts, len(rows), insert=True)

    def _insert(self, state: JoinState, rows: Rows, fresh: Mask | bool) -> None:
        state.insert(rows, self._state_codes(rows), self._tree.keys.bound(self.state_key or ()), fresh)

    def insert_absent(self, rows: Rows) -> None:
        """Add rows that somebody asked for, except those the state holds already."""
        if self.state is None or not len(rows):
            return
        rows = rows.take(self.state.absent(rows))
        fresh = np.zeros(len(rows), np.bool_)
        for place, alias in enumerate(self.plan.aliases):
            fresh |= rows.ids[place] >= self._tree.stores[alias].fresh_from
        self.completed += len(rows)
        self._insert(self.state, rows, fresh)
        self.state.postpone(len(rows))

    # ── probes are answered ──────────────────────────────────────────────────────────────────────────────────────

    def match(self, probes: Probes) -> Iterator[Found]:
        key = tuple(sorted(probes.given))
        if self.state is None or key != self.state_key:
            yield from self._lookup(probes)
            return
        self.probes += len(probes)
        parts = [probes.given[id_] for id_ in key]
        if self.complete_keys is not None and self._tree.shedding is None:  # under a budget a state is what it is
            self.complete_for(parts, len(probes), old_only=probes.old_only)
        state, scratch = self.state, self._tree.scratch
        if probes.spans is not None and self.ordered_by is not None:
            blocks = state.probe_range(*probes.spans, probes.born, probes.dies, probes.old_only, self._numbers, scratch)
        else:
            codes = self._tree.keys.codes(key, parts, len(probes), insert=False)
            blocks = state.probe(codes, probes.born, probes.dies, probes.old_only, scratch)
        for block in blocks:
            rows = Rows(state.ids(block.row), block.born, block.dies)
            if self._mortal:
                rows = self.refreshed(rows)
                alive = rows.born < rows.dies
                yield Found(block.probe[alive], rows.take(alive))
            else:
                yield Found(block.probe, rows)

    def _numbers(self, rows: Rows) -> F64:
        """The numbers by which this node's sibling looks it up."""
        assert self.ordered_by is not None
        ours = self.ordered_by.left.alias in self.plan.aliases
        return numbers(self._tree.reader(self.plan, rows)(self.ordered_by.left if ours else self.ordered_by.right))

    def _lookup(self, probes: Probes) -> Iterator[Found]:
        """The node's rows computed from its children: first the child that is bound by more of what is given."""

        def bound(child: TreeNode) -> Given:
            return {id_: codes for id_, codes in probes.given.items() if id_ in child.plan.classes}

        first, second = (self.left, self.right)
        if len(bound(second)) > len(bound(first)):
            first, second = second, first
        rest = bound(second)
        for found in first.match(Probes(bound(first), probes.born, probes.dies, probes.old_only)):
            partial = found.rows
            known = {id_: codes[found.probe] for id_, codes in rest.items()}
            known |= {id_: first.codes(id_, partial) for id_ in self.plan.key}
            for partner in second.match(Probes(known, partial.born, partial.dies, probes.old_only)):
                rows = self._combine(first, taken(partial.ids, partner.probe), partner.rows)
                yield self._fitting(found.probe[partner.probe], rows)

    def expand(self, alias: str, ids: I64) -> Rows:
        """All rows of the node that hold one of some rows of a leaf, computed from the children."""
        side = self.left if alias in self.left.plan.aliases else self.right
        return concat(list(self.extend(side, side.expand(alias, ids), old_only=False)), len(self.plan.aliases))

    def refreshed(self, rows: Rows) -> Rows:
        """The rows with what is known by now of the deaths in ROWS windows."""
        dies = rows.dies
        for place in self._mortal:
            dies = np.minimum(dies, self._tree.stores[self.plan.aliases[place]].dies_now(rows.ids[place]))
        return Rows(rows.ids, rows.born, dies)

    # ── completeness (JISC) ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def complete(self) -> bool:
        """Whether the state lacks nothing that is demanded."""
        return self.state is not None and self.complete_keys is None

    @property
    def whole(self) -> bool:
        """Whether no gate above holds rows of this node back."""
        return not any(gate.shut for gate in self.gates)

    def complete_for(self, parts: list[I32], rows: int, *, old_only: bool) -> None:
        """Make the state complete for the keys of some probes.

        Before the node's delta of a batch only old rows may be looked up: the delta brings the others.
        """
        assert self.complete_keys is not None
        assert self.state_key is not None
        codes = self._tree.keys.codes(self.state_key, parts, rows, insert=True)
        missing, places = np.unique(codes, return_index=True)
        lacking = ~self.complete_keys.has(missing) & (missing >= 0)
        missing, places = missing[lacking], places[lacking]
        if missing.size:
            given = {id_: part[places] for id_, part in zip(self.state_key, parts, strict=True)}
            always = Probes(given, *whole_time(missing.size), old_only)
            for found in self._lookup(always):
                self.insert_absent(self.demanded(found.rows))
            self.complete_keys.add(missing)

    # ── demand (JIT) ─────────────────────────────────────────────────────────────────────────────────────────────

    def demand_of_lazy(self, driver_rows: Rows) -> None:
        """Open the lazy child's gate for the keys of driver rows."""
        lazy = self.lazy
        if isinstance(lazy, JoinNode) and lazy.gate is not None and lazy.gate.shut and len(driver_rows):
            lazy.demand(partial(codes_of, self.driver, driver_rows), len(driver_rows))

    def demand(self, codes: CodesOf, rows: int) -> None:
        """Build what was put off for the keys of some driver rows, and go on building it."""
        assert self.gate is not None
        self.gate.asked += rows
        thaw = self.gate.empty
        new = self.gate.add(codes, rows)
        if thaw or any(column.size for column in new.values()):
            resume(self, self.gate, new, thaw=thaw)

    def alive(self, now: int) -> int:
        """How many rows of the state still live."""
        return 0 if self.state is None else int(np.count_nonzero(self.living().dies > now))

    def living(self) -> Rows:
        """All rows, dead ones that were not cleared away yet included."""
        assert self.state is not None
        return self.refreshed(self.state.rows())

    # ── rows die, rows move ──────────────────────────────────────────────────────────────────────────────────────

    def settle(self) -> None:
        self.left.settle()
        self.right.settle()
        if self.state is not None:
            self.state.settle()

    def purge(self, bound: int, renumbered: Mapping[str, Renumbering]) -> None:
        """Drop rows that are dead or demanded no more when enough have gathered, or when leaf rows got new ids."""
        changed = [place for place, alias in enumerate(self.plan.aliases) if alias in renumbered]
        if self.ahead is not None:
            self.ahead.renumber(renumbered)
        if self.state is None or not (self.state.due or changed or self._outlived(self.state)):
            return
        self._marked = 0
        rows = self.state.rows()
        if changed:  # before anything is looked up in the leaves, which know the new ids only
            rows = _renumbered(rows.take(rows.dies > bound), {p: renumbered[self.plan.aliases[p]] for p in changed})
        rows = self.refreshed(rows)
        rows = self.demanded(rows.take(rows.dies > bound))
        self.state.rebuild(rows, self._state_codes(rows))

    def _outlived(self, state: JoinState) -> bool:
        """Whether most rows are sure to be dead: a leaf has turned over since they were there.

        After a burst it would take as many new rows until the state is due, and all of them in chains with dead ones.
        """
        stores = self._tree.stores
        if not any(stores[alias].base >= mark for alias, mark in self._marks.items()):
            return False
        dead, self._marked = self._marked, len(state)
        self._marks = {alias: stores[alias].end for alias in self.plan.aliases}
        return dead > max(len(state) - dead, self._tree.maintenance.rebuild_rows)

    def retreat(self, marks: Mapping[str, int]) -> None:
        """Drop the rows that are made of leaf rows from `marks` on."""
        if self.state is not None:
            rows = self.state.rows()
            limits = np.array([[marks[alias]] for alias in self.plan.aliases])
            kept = np.flatnonzero(np.logical_and.reduce(rows.ids < limits))
            if kept.size < len(rows):
                rows = rows.take(kept)
                self.state.rebuild(rows, self._state_codes(rows))

    def tighten(self, bound: int) -> None:
        """Drop rows that nobody wants any more: their parts die earlier, or all who are left have a predicate more."""
        if self.state is not None and len(self.state):
            rows = self.living()
            rows = self._tree.still_wanted(self, rows.take(rows.dies > bound))
            rows = rows.take((rows.dies > bound) & (rows.born < rows.dies))
            rows = rows.take(mask(self.plan.residuals, self._tree.reader(self.plan, rows), len(rows)))
            self.state.rebuild(rows, self._state_codes(rows))

    def adopt(self, former: JoinNode) -> None:
        """Take over the rows of a node over the same leaves in an earlier tree."""
        assert self.state is not None
        assert former.state is not None
        if former.plan.aliases == self.plan.aliases and former.state_key == self.state_key:
            self.state = former.state
            self.state.reorder()
        else:
            rows = former.living()
            order = [former.plan.aliases.index(alias) for alias in self.plan.aliases]
            rows = Rows(rows.ids[order], rows.born, rows.dies)
            self.state.rebuild(rows, self._state_codes(rows))


TreeNode = LeafNode | JoinNode


def _renumbered(rows: Rows, changes: Mapping[int, Renumbering]) -> Rows:
    """The rows with the new ids of leaf rows, by place; without those that hold a leaf row which is dead."""
    for place, change in changes.items():
        rows.ids[place], alive = change.apply(rows.ids[place])
        rows = rows.take(alive)
    return rows


def parts(node: TreeNode) -> Iterator[TreeNode]:
    """Leaves and joins of a subtree, children first."""
    if isinstance(node, JoinNode):
        yield from parts(node.left)
        yield from parts(node.right)
    yield node


def joins(node: TreeNode) -> Iterator[JoinNode]:
    """The joins of a subtree, children first."""
    return (part for part in parts(node) if isinstance(part, JoinNode))


def resume(node: TreeNode, gate: Gate, new: Given, *, thaw: bool) -> Rows:
    """All demanded rows of a node below the gate whose projection is among the new keys; they are stored afterwards.

    Every child with a class of the gate's key is resumed first, because its own rows were held back by the same gate;
    all children if nothing was demanded before (thaw).
    """
    if isinstance(node, LeafNode):
        return node.demanded(_bound_rows(node, gate, new))
    resumed = {
        child: resume(child, gate, new, thaw=thaw)
        for child in (node.left, node.right)
        if thaw or gate.projection(child.plan.classes)
    }
    if node.driver in resumed:  # its new rows open the gate of its sibling, so the join must start from them
        node.demand_of_lazy(resumed[node.driver])
    start, other = (node.driver, node.lazy) if node.driver in resumed else (node.lazy, node.driver)
    if isinstance(other, LeafNode) and other in resumed and node.plan.key and not thaw:
        found = node.meet(start, resumed[start], other, resumed[other])
    else:
        found = node.extend(start, resumed[start], old_only=False)
    rows = concat([node.demanded(some) for some in found], len(node.plan.aliases))
    before = node.completed
    node.insert_absent(rows)
    node.resumed += node.completed - before
    return rows


def sought_by(node: JoinNode, gate: Gate) -> list[LeafNode]:
    """The leaves whose rows must match a new key of the gate for a row of the node to be looked at in `resume`."""
    bound = [child for child in (node.driver, node.lazy) if gate.projection(child.plan.classes)]
    if len(bound) > 1 and isinstance(bound[1], JoinNode):
        bound.pop()
    leaves = (part for child in bound for part in parts(child) if isinstance(part, LeafNode))
    return [leaf for leaf in leaves if gate.projection(leaf.plan.classes)]


def _bound_rows(leaf: LeafNode, gate: Gate, new: Given) -> Rows:
    """The rows of a leaf whose projection on the gate's key is among the new keys."""
    part = gate.projection(leaf.plan.classes)
    if not part:
        return leaf.living()
    distinct = np.unique(np.stack([new[id_] for id_ in part]), axis=1)
    given = dict(zip(part, distinct, strict=True))
    leaf.sought += distinct.shape[1]
    rows = [found.rows for found in leaf.match(Probes(given, *whole_time(distinct.shape[1])))]
    return concat(rows, 1)
