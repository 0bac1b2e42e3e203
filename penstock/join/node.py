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

from penstock.expr.evaluate import compute_mask
from penstock.join.demand.gate import CodeReader, Gate
from penstock.join.early_reader import PendingRows
from penstock.join.join_rows import JoinRows, concat_rows
from penstock.join.leaf_node import LeafNode, ProbeResult, Probes, filter_demanded, make_full_intervals, read_codes
from penstock.join.leaf_store import KeyCodes, Renumbering
from penstock.join.node_state import JoinState
from penstock.join.shedding.load_shedding import LoadShedding
from penstock.plan.physical import Key, NodePlan
from penstock.plan.ranges import RangeCondition, find_range_condition
from penstock.state.alloc import concat_arrays, gather
from penstock.state.code_set import CodeSet, Mask
from penstock.state.kernels import I32, I64
from penstock.state.probe_blocks import find_equal_pairs
from penstock.state.sorted_index import F64, compute_ranges, to_floats

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
        self.suppressed: Counter[str] = Counter()
        self.pending: PendingRows | None = None
        """Where queries read the node: its rows that the tree has not taken yet."""
        self._tree = tree
        self._class_places = {
            id_: next(place for place, alias in enumerate(plan.aliases) if id_ in tree.stores[alias].plan.classes)
            for id_ in plan.classes
        }
        self._leaf_marks, self._marked_rows = dict.fromkeys(plan.aliases, 0), 0
        """Where the leaves ended when the state was last marked, and how many rows it had then."""
        self._row_counted = [place for place, alias in enumerate(plan.aliases) if tree.stores[alias].rows_window]
        self._range = None if plan.key else find_range_condition(plan)
        for child in (left, right):
            child.ordered_by = self._range
        self.ordered_by: RangeCondition | None = None
        lazy_left = isinstance(left, JoinNode) and not isinstance(right, JoinNode)
        self.driver, self.lazy = (right, left) if lazy_left else (left, right)

    # ── rows arise ───────────────────────────────────────────────────────────────────────────────────────────────

    def compute_delta(self) -> JoinRows:
        """This batch's rows that are demanded; they are in the state afterwards."""
        if self.pending is not None:
            return self._store_rows(self.pending.take())
        return self.join_new_rows(self.lazy.compute_delta(), self.driver.compute_delta())

    def join_new_rows(self, lazy: JoinRows, driver: JoinRows) -> JoinRows:
        """The rows that this batch's rows of the two children bring."""
        return self._store_rows(self.find_new_rows(lazy, driver))

    def _store_rows(self, rows: JoinRows) -> JoinRows:
        if self.state is not None and len(rows):
            self._insert(self.state, rows, fresh=True)
        return rows

    def find_new_rows(self, lazy: JoinRows, driver: JoinRows) -> JoinRows:
        """As `joined`, but the state is left as it is."""
        self.demand_from_lazy(driver)
        parts = (
            chain(self.extend(self.driver, driver, old_only=False), self.extend(self.lazy, lazy, old_only=True))
            if self._tree.shedding is None
            else self._extend_within_budget(self._tree.shedding, lazy, driver)
        )
        rows = concat_rows([filter_demanded(self, part, self.suppressed) for part in parts], len(self.plan.aliases))
        self.built += len(rows)
        return rows

    def _extend_within_budget(self, shedding: LoadShedding, lazy: JoinRows, driver: JoinRows) -> Iterator[JoinRows]:
        """The same as far as a budget goes. Pairs of two new rows arise from the side that sheds the smaller part."""
        here = self.plan.tree
        halves = [
            (side, len(rows), shedding.limit_probes(side.plan.tree, here, rows))
            for side, rows in ((self.driver, driver), (self.lazy, lazy))
        ]
        halves.sort(key=lambda half: -len(half[2]) / max(1, half[1]))
        for (side, _, rows), old_only in zip(halves, (False, True), strict=True):
            for turn in shedding.iter_turns(side.plan.tree, here, rows):
                found = list(self.extend(side, turn, old_only=old_only))
                shedding.record_probes(side.plan.tree, len(turn), sum(len(part) for part in found))
                yield from found

    def extend(self, side: TreeNode, rows: JoinRows, *, old_only: bool) -> Iterator[JoinRows]:
        """Rows of one child with their partners in the other."""
        if len(rows):
            other = self.right if side is self.left else self.left
            given = {id_: side.codes(id_, rows) for id_ in self.plan.key}
            spans = None if self._range is None else self._compute_ranges(side, rows)
            asks = self._tree.needs_interest(self.plan)
            tuples = self._tree.read_probe_interest(side.plan, rows, other.plan) if asks and spans is None else None
            oldest = self._tree.compute_born_after(side.plan, rows, other.plan) if asks and tuples is None else None
            for found in other.match(Probes(given, rows.born, rows.dies, old_only, spans, oldest, tuples)):
                wanted = None if tuples is None else found.rows.interest  # where both sides were asked who wants them
                combined = self._combine(side, gather(rows.ids, found.probe), found.rows, wanted)
                yield self._filter_matches(found.probe, combined).rows

    def extend_among(self, one: TreeNode, rows: JoinRows, other: TreeNode, partners: JoinRows) -> Iterator[JoinRows]:
        """Rows of one child with their partners among some rows of the other."""
        sides = ((one, rows), (other, partners))
        codes = [
            self._tree.keys.encode(self.plan.key, [side.codes(i, some) for i in self.plan.key], len(some), insert=True)
            for side, some in sides
        ]
        for at, to in find_equal_pairs(codes[0], codes[1], self._tree.probe_buffer.block):
            born, dies = np.maximum(rows.born[at], partners.born[to]), np.minimum(rows.dies[at], partners.dies[to])
            met = self._combine(one, gather(rows.ids, at), JoinRows(gather(partners.ids, to), born, dies)).take(
                born < dies
            )
            yield self._filter_matches(at[born < dies], met).rows

    def _compute_ranges(self, side: TreeNode, rows: JoinRows) -> tuple[F64, F64]:
        """Where the partners' numbers must lie: low <= left - right <= high."""
        assert self._range is not None
        condition = self._range
        if side is self.left:
            return compute_ranges(
                to_floats(self._tree.make_reader(side.plan, rows)(condition.left)), -condition.high, -condition.low
            )
        return compute_ranges(
            to_floats(self._tree.make_reader(side.plan, rows)(condition.right)), condition.low, condition.high
        )

    def _combine(
        self, side: TreeNode, ids: NDArray[np.int64], partner: JoinRows, wanted: I32 | None = None
    ) -> JoinRows:
        halves = (ids, partner.ids) if side is self.left else (partner.ids, ids)
        return JoinRows(concat_arrays(halves, axis=0), partner.born, partner.dies, wanted)

    def _filter_matches(self, probe: I64, rows: JoinRows) -> ProbeResult:
        """The rows that somebody wants and that satisfy the predicates of this node."""
        if rows.interest is None and self._tree.needs_interest(self.plan):
            rows = self._tree.clip_to_interest(self.plan, rows)
            alive = rows.born < rows.dies
            if not alive.all():
                probe, rows = probe[alive], rows.take(alive)
        if self.plan.residuals:
            keep = compute_mask(self.plan.residuals, self._tree.make_reader(self.plan, rows), len(rows))
            probe, rows = probe[keep], rows.take(keep)
        return ProbeResult(probe, rows)

    def filter_demanded(self, rows: JoinRows) -> JoinRows:
        return filter_demanded(self, rows)

    def codes(self, class_id: int, rows: JoinRows) -> I32:
        place = self._class_places[class_id]
        return self._tree.stores[self.plan.aliases[place]].codes(class_id, rows.ids[place])

    def _encode_state_keys(self, rows: JoinRows) -> I32:
        key = self.state_key or ()
        parts = [self.codes(id_, rows) for id_ in key]
        return self._tree.keys.encode(key, parts, len(rows), insert=True)

    def _insert(self, state: JoinState, rows: JoinRows, fresh: Mask | bool) -> None:
        state.insert(rows, self._encode_state_keys(rows), self._tree.keys.code_limit(self.state_key or ()), fresh)

    def insert_absent(self, rows: JoinRows) -> None:
        """Add rows that somebody asked for, except those the state holds already."""
        if self.state is None or not len(rows):
            return
        rows = rows.take(self.state.find_absent(rows))
        fresh = np.zeros(len(rows), np.bool_)
        for place, alias in enumerate(self.plan.aliases):
            fresh |= rows.ids[place] >= self._tree.stores[alias].fresh_from
        self.completed += len(rows)
        self._insert(self.state, rows, fresh)
        self.state.postpone_rebuild(len(rows))

    # ── probes are answered ──────────────────────────────────────────────────────────────────────────────────────

    def match(self, probes: Probes) -> Iterator[ProbeResult]:
        key = tuple(sorted(probes.key_codes))
        if self.state is None or key != self.state_key:
            yield from self._lookup(probes)
            return
        self.probes += len(probes)
        parts = [probes.key_codes[id_] for id_ in key]
        if self.complete_keys is not None and self._tree.shedding is None:  # under a budget a state is what it is
            self.complete_for(parts, len(probes), old_only=probes.old_only)
        state, scratch = self.state, self._tree.probe_buffer
        if probes.ranges is not None and self.ordered_by is not None:
            blocks = state.probe_range(
                *probes.ranges, probes.born, probes.dies, probes.old_only, self._read_range_values, scratch
            )
        else:
            codes = self._tree.keys.encode(key, parts, len(probes), insert=False)
            blocks = state.probe(codes, probes.born, probes.dies, probes.old_only, scratch)
        for block in blocks:
            rows = JoinRows(state.read_ids(block.row), block.born, block.dies)
            if self._row_counted:
                rows = self.refresh_expirations(rows)
                alive = rows.born < rows.dies
                yield ProbeResult(block.probe[alive], rows.take(alive))
            else:
                yield ProbeResult(block.probe, rows)

    def _read_range_values(self, rows: JoinRows) -> F64:
        """The numbers by which this node's sibling looks it up."""
        assert self.ordered_by is not None
        ours = self.ordered_by.left.alias in self.plan.aliases
        return to_floats(
            self._tree.make_reader(self.plan, rows)(self.ordered_by.left if ours else self.ordered_by.right)
        )

    def _lookup(self, probes: Probes) -> Iterator[ProbeResult]:
        """The node's rows computed from its children: first the child that is bound by more of what is given."""

        def bound(child: TreeNode) -> KeyCodes:
            return {id_: codes for id_, codes in probes.key_codes.items() if id_ in child.plan.classes}

        first, second = (self.left, self.right)
        if len(bound(second)) > len(bound(first)):
            first, second = second, first
        rest = bound(second)
        for found in first.match(Probes(bound(first), probes.born, probes.dies, probes.old_only)):
            partial = found.rows
            known = {id_: codes[found.probe] for id_, codes in rest.items()}
            known |= {id_: first.codes(id_, partial) for id_ in self.plan.key}
            for partner in second.match(Probes(known, partial.born, partial.dies, probes.old_only)):
                rows = self._combine(first, gather(partial.ids, partner.probe), partner.rows)
                yield self._filter_matches(found.probe[partner.probe], rows)

    def expand(self, alias: str, ids: I64) -> JoinRows:
        """All rows of the node that hold one of some rows of a leaf, computed from the children."""
        side = self.left if alias in self.left.plan.aliases else self.right
        return concat_rows(list(self.extend(side, side.expand(alias, ids), old_only=False)), len(self.plan.aliases))

    def refresh_expirations(self, rows: JoinRows) -> JoinRows:
        """The rows with what is known by now of the deaths in ROWS windows."""
        dies = rows.dies
        for place in self._row_counted:
            dies = np.minimum(dies, self._tree.stores[self.plan.aliases[place]].read_expirations(rows.ids[place]))
        return JoinRows(rows.ids, rows.born, dies)

    # ── completeness (JISC) ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def complete(self) -> bool:
        """Whether the state lacks nothing that is demanded."""
        return self.state is not None and self.complete_keys is None

    @property
    def ungated(self) -> bool:
        """Whether no gate above holds rows of this node back."""
        return not any(gate.closed for gate in self.gates)

    def complete_for(self, parts: list[I32], rows: int, *, old_only: bool) -> None:
        """Make the state complete for the keys of some probes.

        Before the node's delta of a batch only old rows may be looked up: the delta brings the others.
        """
        assert self.complete_keys is not None
        assert self.state_key is not None
        codes = self._tree.keys.encode(self.state_key, parts, rows, insert=True)
        missing, places = np.unique(codes, return_index=True)
        lacking = ~self.complete_keys.has(missing) & (missing >= 0)
        missing, places = missing[lacking], places[lacking]
        if missing.size:
            given = {id_: part[places] for id_, part in zip(self.state_key, parts, strict=True)}
            always = Probes(given, *make_full_intervals(missing.size), old_only)
            for found in self._lookup(always):
                self.insert_absent(self.filter_demanded(found.rows))
            self.complete_keys.add(missing)

    # ── demand (JIT) ─────────────────────────────────────────────────────────────────────────────────────────────

    def demand_from_lazy(self, driver_rows: JoinRows) -> None:
        """Open the lazy child's gate for the keys of driver rows."""
        lazy = self.lazy
        if isinstance(lazy, JoinNode) and lazy.gate is not None and lazy.gate.closed and len(driver_rows):
            lazy.build_demanded(partial(read_codes, self.driver, driver_rows), len(driver_rows))

    def build_demanded(self, codes: CodeReader, rows: int) -> None:
        """Build what was put off for the keys of some driver rows, and go on building it."""
        assert self.gate is not None
        self.gate.demand_requests += rows
        thaw = self.gate.empty
        new = self.gate.add(codes, rows)
        if thaw or any(column.size for column in new.values()):
            resume_rows(self, self.gate, new, resume_all=thaw)

    def count_living(self, now: int) -> int:
        """How many rows of the state still live."""
        return 0 if self.state is None else int(np.count_nonzero(self.read_living().dies > now))

    def read_living(self) -> JoinRows:
        """All rows, dead ones that were not cleared away yet included."""
        assert self.state is not None
        return self.refresh_expirations(self.state.rows())

    # ── rows die, rows move ──────────────────────────────────────────────────────────────────────────────────────

    def end_batch(self) -> None:
        self.left.end_batch()
        self.right.end_batch()
        if self.state is not None:
            self.state.end_batch()

    def purge(self, bound: int, renumbered: Mapping[str, Renumbering]) -> None:
        """Drop rows that are dead or demanded no more when enough have gathered, or when leaf rows got new ids."""
        changed = [place for place, alias in enumerate(self.plan.aliases) if alias in renumbered]
        if self.pending is not None:
            self.pending.renumber(renumbered)
        if self.state is None or not (self.state.needs_rebuild or changed or self._is_mostly_dead(self.state)):
            return
        self._marked_rows = 0
        rows = self.state.rows()
        if changed:  # before anything is looked up in the leaves, which know the new ids only
            rows = _renumber_rows(rows.take(rows.dies > bound), {p: renumbered[self.plan.aliases[p]] for p in changed})
        rows = self.refresh_expirations(rows)
        rows = self.filter_demanded(rows.take(rows.dies > bound))
        self.state.rebuild(rows, self._encode_state_keys(rows))

    def _is_mostly_dead(self, state: JoinState) -> bool:
        """Whether most rows are sure to be dead: a leaf has turned over since they were there.

        After a burst it would take as many new rows until the state is due, and all of them in chains with dead ones.
        """
        stores = self._tree.stores
        if not any(stores[alias].base >= mark for alias, mark in self._leaf_marks.items()):
            return False
        dead, self._marked_rows = self._marked_rows, len(state)
        self._leaf_marks = {alias: stores[alias].end for alias in self.plan.aliases}
        return dead > max(len(state) - dead, self._tree.maintenance.rebuild_rows)

    def roll_back(self, marks: Mapping[str, int]) -> None:
        """Drop the rows that are made of leaf rows from `marks` on."""
        if self.state is not None:
            rows = self.state.rows()
            limits = np.array([[marks[alias]] for alias in self.plan.aliases])
            kept = np.flatnonzero(np.logical_and.reduce(rows.ids < limits))
            if kept.size < len(rows):
                rows = rows.take(kept)
                self.state.rebuild(rows, self._encode_state_keys(rows))

    def drop_unwanted(self, bound: int) -> None:
        """Drop rows that nobody wants any more: their parts die earlier, or all who are left have a predicate more."""
        if self.state is not None and len(self.state):
            rows = self.read_living()
            rows = self._tree.clip_state_rows(self, rows.take(rows.dies > bound))
            rows = rows.take((rows.dies > bound) & (rows.born < rows.dies))
            rows = rows.take(compute_mask(self.plan.residuals, self._tree.make_reader(self.plan, rows), len(rows)))
            self.state.rebuild(rows, self._encode_state_keys(rows))

    def take_over_state(self, former: JoinNode) -> None:
        """Take over the rows of a node over the same leaves in an earlier tree."""
        assert self.state is not None
        assert former.state is not None
        if former.plan.aliases == self.plan.aliases and former.state_key == self.state_key:
            self.state = former.state
            self.state.drop_sorted_index()
        else:
            rows = former.read_living()
            order = [former.plan.aliases.index(alias) for alias in self.plan.aliases]
            rows = JoinRows(rows.ids[order], rows.born, rows.dies)
            self.state.rebuild(rows, self._encode_state_keys(rows))


TreeNode = LeafNode | JoinNode


def _renumber_rows(rows: JoinRows, changes: Mapping[int, Renumbering]) -> JoinRows:
    """The rows with the new ids of leaf rows, by place; without those that hold a leaf row which is dead."""
    for place, change in changes.items():
        rows.ids[place], alive = change.apply(rows.ids[place])
        rows = rows.take(alive)
    return rows


def walk_nodes(node: TreeNode) -> Iterator[TreeNode]:
    """Leaves and joins of a subtree, children first."""
    if isinstance(node, JoinNode):
        yield from walk_nodes(node.left)
        yield from walk_nodes(node.right)
    yield node


def walk_joins(node: TreeNode) -> Iterator[JoinNode]:
    """The joins of a subtree, children first."""
    return (part for part in walk_nodes(node) if isinstance(part, JoinNode))


def resume_rows(node: TreeNode, gate: Gate, new: KeyCodes, *, resume_all: bool) -> JoinRows:
    """All demanded rows of a node below the gate whose projection is among the new keys; they are stored afterwards.

    Every child with a class of the gate's key is resumed first, because its own rows were held back by the same gate;
    all children if nothing was demanded before (thaw).
    """
    if isinstance(node, LeafNode):
        return node.filter_demanded(_find_bound_rows(node, gate, new))
    resumed = {
        child: resume_rows(child, gate, new, resume_all=resume_all)
        for child in (node.left, node.right)
        if resume_all or gate.project_key(child.plan.classes)
    }
    if node.driver in resumed:  # its new rows open the gate of its sibling, so the join must start from them
        node.demand_from_lazy(resumed[node.driver])
    start, other = (node.driver, node.lazy) if node.driver in resumed else (node.lazy, node.driver)
    if isinstance(other, LeafNode) and other in resumed and node.plan.key and not resume_all:
        found = node.extend_among(start, resumed[start], other, resumed[other])
    else:
        found = node.extend(start, resumed[start], old_only=False)
    rows = concat_rows([node.filter_demanded(some) for some in found], len(node.plan.aliases))
    before = node.completed
    node.insert_absent(rows)
    node.resumed += node.completed - before
    return rows


def find_sought_leaves(node: JoinNode, gate: Gate) -> list[LeafNode]:
    """The leaves whose rows must match a new key of the gate for a row of the node to be looked at in `resume`."""
    bound = [child for child in (node.driver, node.lazy) if gate.project_key(child.plan.classes)]
    if len(bound) > 1 and isinstance(bound[1], JoinNode):
        bound.pop()
    leaves = (part for child in bound for part in walk_nodes(child) if isinstance(part, LeafNode))
    return [leaf for leaf in leaves if gate.project_key(leaf.plan.classes)]


def _find_bound_rows(leaf: LeafNode, gate: Gate, new: KeyCodes) -> JoinRows:
    """The rows of a leaf whose projection on the gate's key is among the new keys."""
    part = gate.project_key(leaf.plan.classes)
    if not part:
        return leaf.read_living()
    distinct = np.unique(np.stack([new[id_] for id_ in part]), axis=1)
    given = dict(zip(part, distinct, strict=True))
    leaf.sought += distinct.shape[1]
    rows = [found.rows for found in leaf.match(Probes(given, *make_full_intervals(distinct.shape[1])))]
    return concat_rows(rows, 1)
