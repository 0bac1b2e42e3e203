"""The nodes of a join tree: how new rows are built, how probes are answered, and what is deferred until it is needed.

Two independent sets determine which rows a node's state holds. Demand (JIT): rows that a gate above does not admit are
not built. Completeness (JISC): for a key that is not complete, rows made of older tuples may be missing; they are
looked up at the first probe with the key, and inserted if absent. Without a key the same holds for the leaf rows that
a probe's range or predicate selects. Rows with a tuple of the current batch are always
built and inserted if they are demanded, whether or not their key is complete.

With all gates open and all states complete this is a plain symmetric hash join tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace

import numpy as np

from penstock.expr import compute_mask
from penstock.join.demand.gate import Gate
from penstock.join.demand.resume import demand_from_lazy
from penstock.join.demand.suppression import filter_demanded
from penstock.join.early_reader import PendingRows
from penstock.join.join_rows import JoinRows, concat_rows, empty_rows
from penstock.join.leaf_node import LeafNode
from penstock.join.lookup_meter import LookupMeter
from penstock.join.node_reader import NodeReader
from penstock.join.node_state import NodeState
from penstock.join.pair_join import PairJoin
from penstock.join.partner_filter import PartnerFilter
from penstock.join.probes import ProbeResult, Probes, make_full_intervals
from penstock.join.row_kernels import ChainTarget, KeyColumn
from penstock.join.shedding.load_shedding import LoadShedding
from penstock.join.tree_context import TreeContext
from penstock.plan import Key, NodePlan, StoredRange
from penstock.state import I32, I64, Renumbering


class JoinNode:
    """A join of two children on the classes they share.

    `driver` and `lazy` are its children in another order: a gate over the lazy child is opened by the driver's rows.
    """

    def __init__(
        self,
        plan: NodePlan,
        left: TreeNode,
        right: TreeNode,
        context: TreeContext,
        state_key: Key | None,
        *,
        keeps: bool = True,
    ) -> None:
        """`state_key`: the key of the node's state; None if the node can keep no rows. `keeps`: whether it does."""
        self.plan = plan
        self.left = left
        self.right = right
        self.pair = PairJoin(plan, left, right, context)
        self.reader = NodeReader(plan, context)
        self.state_key = state_key
        self.state: NodeState | None = None
        self.meter = LookupMeter()
        """What it costs that the node keeps no rows."""
        self.gate: Gate | None = None
        self.gates: tuple[Gate, ...] = ()
        self.pending: PendingRows | None = None
        """If queries read the node early: its rows that the tree above has not taken yet."""
        self.ordered_by: StoredRange | None = None
        self.built = self.completed = self.resumed = self.probes = self.checked = 0
        self.suppressed: Counter[str] = Counter()
        self.changes = 0
        """How often measurements changed what the node keeps."""
        self._context = context
        if keeps:
            self.add_state()
        lazy_left = isinstance(left, JoinNode) and not isinstance(right, JoinNode)
        self.driver, self.lazy = (right, left) if lazy_left else (left, right)

    @property
    def joins_two_joins(self) -> bool:
        """Whether either child can be the lazy one."""
        return isinstance(self.left, JoinNode) and isinstance(self.right, JoinNode)

    def swap_sides(self) -> None:
        """Let the lazy child drive, and the driver be lazy."""
        self.driver, self.lazy = self.lazy, self.driver

    def add_state(self) -> None:
        """Keep rows from now on. The state is empty: it must be marked incomplete if the node has older rows."""
        if self.state_key is not None:
            self.state = NodeState(self.plan, self.state_key, self.reader, self._context)

    # ── new rows ─────────────────────────────────────────────────────────────────────────────────────────────────

    def compute_delta(self) -> JoinRows:
        """This batch's rows that are demanded; they are in the state afterwards."""
        if self.pending is not None:
            return self._store_rows(self.pending.take())
        return self.join_new_rows(self.lazy.compute_delta(), self.driver.compute_delta())

    def join_new_rows(self, lazy: JoinRows, driver: JoinRows) -> JoinRows:
        """The rows that follow from this batch's rows of the two children; they are in the state afterwards."""
        return self._store_rows(self.find_new_rows(lazy, driver))

    def _store_rows(self, rows: JoinRows) -> JoinRows:
        if self.state is not None and rows.born.size:
            self.state.append(rows)
        return rows

    def find_new_rows(self, lazy: JoinRows, driver: JoinRows) -> JoinRows:
        """As `join_new_rows`, but the state is not changed."""
        if self.lazy.gate is not None:
            demand_from_lazy(self, driver)
        shedding = self._context.shedding
        parts: Iterable[JoinRows] = (
            self.pair.extend_both(self.driver, driver, self.lazy, lazy)
            if shedding is None
            else self._extend_within_budget(shedding, lazy, driver)
        )
        if self.gates:
            parts = (filter_demanded(self, part, self.suppressed) for part in parts)
        rows = concat_rows(list(parts), len(self.plan.aliases))
        self.built += rows.born.size
        return rows

    def _extend_within_budget(self, shedding: LoadShedding, lazy: JoinRows, driver: JoinRows) -> Iterator[JoinRows]:
        """The same within a budget. Pairs of two new rows are built from the side that sheds the smaller part."""
        here = self.plan.tree
        halves = [
            (side, len(rows), shedding.limit_probes(side.plan.tree, here, rows))
            for side, rows in ((self.driver, driver), (self.lazy, lazy))
        ]
        halves.sort(key=lambda half: -len(half[2]) / max(1, half[1]))
        for (side, _, rows), old_only in zip(halves, (False, True), strict=True):
            for turn in shedding.iter_turns(side.plan.tree, here, rows):
                found = list(self.pair.extend(side, turn, old_only=old_only))
                shedding.record_probes(side.plan.tree, len(turn), sum(len(part) for part in found))
                yield from found

    def filter_demanded(self, rows: JoinRows) -> JoinRows:
        return filter_demanded(self, rows)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def codes(self, class_id: int, rows: JoinRows) -> I32:
        return self.reader.codes(class_id, rows)

    def find_codes(self, class_id: int) -> KeyColumn:
        return self.reader.find_codes(class_id)

    def find_chains(self, key: Key, *, old_only: bool) -> ChainTarget | None:
        """The chains of the node's rows by a key; None if it takes more than the chains to find a key's rows."""
        state = self.state
        if state is None or state.key != key or state.missing is not None or self.reader.late_ending:
            return None
        return state.table.find_chains(old_only=old_only)

    def match(self, probes: Probes) -> Iterator[ProbeResult]:
        """The node's rows that match probes: from the state if the probes have its key, else from the children."""
        state, key = self.state, tuple(sorted(probes.key_codes))
        if state is None and key == self.state_key and probes.meter is None:
            self.meter.probes += len(probes)
            probes = replace(probes, meter=self.meter)
        if state is None or key != state.key or probes.from_leaves:
            yield from self.pair.lookup(probes)
            return
        self.probes += len(probes)
        if state.missing is not None:
            shedding = self._context.shedding
            with nullcontext() if shedding is None else shedding.pay_lookups(self._count_lookups):
                self._complete_matches(key, probes)
        if probes.meter is not None:
            probes.meter.record_probes(len(probes), len(key))
        for found in state.probe(probes, self.ordered_by):
            if probes.meter is not None:
                probes.meter.record_rows(found.probe.size)
            yield found

    def expand(self, alias: str, ids: I64, *, old_only: bool = False) -> JoinRows:
        """All rows of the node that contain one of some rows of a leaf, computed from the children.

        `old_only`: only those without a tuple of the current batch.
        """
        side = self.left if alias in self.left.plan.aliases else self.right
        found = self.pair.extend(side, side.expand(alias, ids, old_only=old_only), old_only=old_only)
        return concat_rows(list(found), len(self.plan.aliases))

    def read_living(self) -> JoinRows:
        """All rows of the state, dead rows that are not purged yet included."""
        return empty_rows(len(self.plan.aliases)) if self.state is None else self.state.read_living()

    def count_living(self, now: int) -> int:
        """How many rows of the state are alive."""
        return int(np.count_nonzero(self.read_living().dies > now))

    # ── completeness (JISC) ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def complete(self) -> bool:
        """Whether the state lacks no demanded row."""
        return self.state is not None and self.state.missing is None and not self.state.lossy

    @property
    def ungated(self) -> bool:
        """Whether no gate above holds rows of this node back."""
        return not any(gate.closed for gate in self.gates)

    def _complete_matches(self, key: Key, probes: Probes) -> None:
        """Make the state complete for what some probes may match."""
        if probes.partners is None:
            self.complete_for([probes.key_codes[id_] for id_ in key], len(probes), old_only=probes.old_only)
        else:
            self.complete_partners(probes.partners)

    def _count_lookups(self) -> int:
        """The probes of everything below, so far."""
        return sum(part.probes for part in walk_nodes(self) if part is not self)

    def complete_for(self, parts: list[I32], rows: int, *, old_only: bool) -> None:
        """Make the state complete for the keys of some probes.

        Before the node's delta of a batch only old rows may be looked up: the delta adds the others.
        """
        state = self.state
        if state is None or state.missing is None:
            return
        complete = state.missing.complete_keys
        codes = self._context.keys.encode(state.key, parts, rows, insert=True)
        missing, places = np.unique(codes, return_index=True)
        lacking = ~complete.has(missing) & (missing >= 0)
        missing, places = missing[lacking], places[lacking]
        if missing.size:
            key_codes = {id_: part[places] for id_, part in zip(state.key, parts, strict=True)}
            for found in self.pair.lookup(Probes(key_codes, *make_full_intervals(missing.size), old_only)):
                self.insert_absent(self.filter_demanded(found.rows))
            complete.add(missing)

    def complete_partners(self, partners: PartnerFilter) -> None:
        """Make the state complete for the leaf rows that may be part of a match of some probes.

        All rows that it may lack are older than the current batch.
        """
        missing, alias = None if self.state is None else self.state.missing, partners.alias
        if missing is None:
            return
        first = self._context.first_row(alias)
        ids = partners.select(missing.list_lacking(alias, first))
        if ids.size:
            self.insert_absent(self.filter_demanded(self.expand(alias, ids, old_only=True)))
            missing.add_complete_rows(alias, first, ids)

    def insert_absent(self, rows: JoinRows) -> None:
        """Add rows that were looked up, except those the state holds already."""
        if self.state is not None and len(rows):
            self.checked += len(rows)
            self.completed += self.state.insert_absent(rows)

    # ── maintenance ──────────────────────────────────────────────────────────────────────────────────────────────

    def end_batch(self) -> None:
        self.left.end_batch()
        self.right.end_batch()
        if self.state is not None:
            self.state.table.end_batch()

    def purge(self, bound: int, renumbered: Mapping[str, Renumbering]) -> None:
        """Follow the leaves: drop dead rows from time to time, and renumber rows whose leaf rows have new ids."""
        if self.pending is not None:
            self.pending.renumber(renumbered)
        if self.state is not None:
            self.state.purge(bound, renumbered, self.filter_demanded)

    def drop_unwanted(self, bound: int) -> None:
        """Drop rows that no query needs any more: a part dies earlier, or all queries left have one more predicate."""
        if self.state is None or not len(self.state):
            return
        rows = self.state.read_living()
        rows, interest = rows.take(rows.dies > bound), self._context.interest
        if interest is None:
            rows = self.reader.clip_expirations(rows)
        else:
            if self.pending is not None:  # the state of an early node is for the queries that read the root
                rows, _ = interest.restrict(self.plan, rows, interest.root_code)
            rows = interest.clip(self.plan, rows)
        rows = rows.take((rows.dies > bound) & (rows.born < rows.dies))
        rows = rows.take(compute_mask(self.plan.residuals, self._context.make_reader(self.plan, rows), len(rows)))
        self.state.rebuild(rows)


TreeNode = LeafNode | JoinNode


def walk_nodes(node: TreeNode) -> Iterator[TreeNode]:
    """Leaves and joins of a subtree, children first."""
    if isinstance(node, JoinNode):
        yield from walk_nodes(node.left)
        yield from walk_nodes(node.right)
    yield node


def walk_joins(node: TreeNode) -> Iterator[JoinNode]:
    """The joins of a subtree, children first."""
    return (part for part in walk_nodes(node) if isinstance(part, JoinNode))
