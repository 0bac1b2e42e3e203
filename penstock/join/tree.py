"""The tree inside a join operator: join nodes over leaf windows, stepped batch by batch, children first.

Law: after `step`, the rows returned are exactly the combinations that have a tuple of this batch, satisfy every class
and residual, and live at some instant; each once. A node's new rows are new-driver with all of the lazy child, and
new-lazy with the old of the driver ("old": no tuple of this batch), so that a pair of two new rows arises once.

The tree may take another shape between two batches (`rearrange`): leaves stay, states of nodes over the same leaves
stay, everything else is completed when it is needed, or a few rows per batch (`pace`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain

import numpy as np
import pyarrow as pa

from penstock.expr.nodes import Column
from penstock.join.completion.completion import CompletionTracker
from penstock.join.demand.gate_control import GateControl
from penstock.join.early_reader import PendingRows
from penstock.join.eddy import EddyNode
from penstock.join.join_rows import JoinRows
from penstock.join.leaf_node import LeafNode
from penstock.join.leaf_store import LeafStore, Renumbering
from penstock.join.node import JoinNode, TreeNode, walk_joins, walk_nodes
from penstock.join.node_state import JoinState
from penstock.join.sharing.interest import NO_INTEREST, Interest
from penstock.join.shedding.load_shedding import LoadShedding
from penstock.join.state_policy import POLICIES, StatePolicy
from penstock.plan.migration import classify_states
from penstock.plan.physical import Branch, EddyPlan, JoinPlan, Key, LeafPlan, SubPlan
from penstock.plan.tree import require_tree
from penstock.state.interning import KeySpace
from penstock.state.kernels import ALWAYS, FOREVER, I32, I64
from penstock.state.maintenance import SHIPPED, Maintenance
from penstock.state.probe_blocks import ProbeBuffer


class JoinTree:
    """Leaves, nodes and the codes they share. The leaves outlive a change of the tree."""

    def __init__(
        self,
        plan: JoinPlan,
        policy: StatePolicy,
        maintenance: Maintenance = SHIPPED,
        *,
        beside: JoinTree | None = None,
    ) -> None:
        """`beside`: a tree whose leaves it shares; it sees the rows that come from now on, and those of tables."""
        self.policy = policy
        self.maintenance = maintenance
        self.node_policies: dict[frozenset[str], StatePolicy] = {}
        """The policies asked for single nodes, by their aliases."""
        self._first_rows: dict[str, int] = {}
        """By alias, the first row that it sees, where it does not see all."""
        self.interest: Interest | None = None
        """Who wants which tuples, where queries with different filters share the tree."""
        self.early_aliases: frozenset[str] | None = None
        """The aliases of a node that queries over these streams alone read; while there is one, all rows are built."""
        self._root_interest = NO_INTEREST
        """The code of those who read the root."""
        if beside is None:
            self.keys = KeySpace([class_.type for class_ in plan.classes], maintenance)
            self.stores = {leaf.alias: LeafStore(leaf, self.keys, maintenance) for leaf in plan.leaves}
        else:
            self._share_leaves(beside)
        self.probe_buffer = ProbeBuffer(maintenance.block)
        self._purged_until = int(ALWAYS)
        self._rows_at_refresh = 0
        self._batches = 0
        self._discarded: list[JoinState] = []
        self.shedding: LoadShedding | None = None
        """Under a budget: which rows may probe. Gates stay open and incomplete states are not completed then."""
        self._set_plan(plan)
        self.refresh_gates()

    def _share_leaves(self, other: JoinTree) -> None:
        self.keys, self.stores = other.keys, other.stores
        streams = {alias: store for alias, store in other.stores.items() if store.table is None}
        self._first_rows = {alias: store.end for alias, store in streams.items()}
        self.node_policies = dict(other.node_policies)
        self.interest, self._root_interest, self._purged_until = (
            other.interest,
            other._root_interest,
            other._purged_until,
        )

    def first_row(self, alias: str) -> int:
        """The first row of a leaf that the tree sees."""
        base = self.stores[alias].base
        return max(self._first_rows.get(alias, base), base) if self._first_rows else base

    # ── shape ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _set_plan(self, plan: JoinPlan) -> None:
        """Take a shape with empty states that count as complete, and open gates."""
        self.plan = plan
        if self.shedding is not None:
            self.shedding.reshape(require_tree(plan.tree))
        self.completion = CompletionTracker(self.stores, self.first_row)
        self._gate_control = GateControl(
            self.stores, self.keys, self.find_policy, self.completion, maintenance=self.maintenance
        )
        self.early_node: JoinNode | None = None
        self.root: TreeNode | EddyNode
        if isinstance(plan.root, EddyPlan):
            self.root = EddyNode(plan.root, self)
            if self.policy.gated == "always":
                self.root.add_gates(self.policy.demand)
            return
        self.root = self._build_node(plan.root, None)
        if self.shedding is None:
            self._gate_control.add_gates(self.root)
        self.early_node = next(
            (node for node in self.walk_joins() if frozenset(node.plan.aliases) == self.early_aliases), None
        )
        if self.early_node is not None:
            self.early_node.pending = PendingRows(self.early_node.plan.aliases)

    def _build_node(self, part: Branch, state_key: Key | None) -> TreeNode:
        if isinstance(part, LeafPlan):
            return LeafNode(part, self.stores[part.alias], self)
        keeps = state_key is not None and self.find_policy(part).states
        children = self._build_node(part.left, part.key), self._build_node(part.right, part.key)
        return JoinNode(part, *children, self, state_key if keeps else None)

    def find_policy(self, part: SubPlan) -> StatePolicy:
        """What a node keeps: the tree's policy, or the one asked for this node."""
        if self.early_aliases is not None:
            return POLICIES["eager"]
        return self.node_policies.get(frozenset(part.aliases), self.policy)

    def set_policy(self, policy: StatePolicy, node: frozenset[str] | None = None) -> None:
        """Change the policy of the tree, or of the node over some aliases, between two batches."""
        if node is None:
            self.policy = policy
            self.node_policies.clear()
        else:
            self.node_policies[node] = policy
        self.change_plan(self.plan)

    def rebuild(self, plan: JoinPlan) -> JoinRows:
        """Take a shape, the old one or another, and fill its states from the leaves; returns the root's living rows."""
        shedding, self.shedding = self.shedding, None
        self._set_plan(plan)
        for store in self.stores.values():
            store.fresh_from = store.base
        if self.early_node is not None:
            self.step_early()
        rows = self._compute_delta(int(FOREVER))
        self.root.end_batch()
        if shedding is not None:
            self.set_shedding(shedding)
        self.refresh_gates()
        return rows

    def change_plan(self, plan: JoinPlan) -> None:
        """Take another shape; states over the same leaves are kept, what they lack is completed when it is needed."""
        former = {frozenset(node.plan.aliases): node for node in self.walk_joins() if node.state is not None}
        before = self.completion
        kept_whole = classify_states(
            plan.tree, [leaves for leaves, node in former.items() if node.complete and node.ungated]
        )
        self._set_plan(plan)
        for node in self.walk_joins():
            if node.state is not None:
                leaves = frozenset(node.plan.aliases)
                self.completion.inherit(node, former.get(leaves), before, complete=leaves in kept_whole)
        kept = {id(node.state) for node in self.walk_joins()}
        self._discarded += [
            node.state for node in former.values() if node.state is not None and id(node.state) not in kept
        ]
        if self.early_aliases is not None and self.completion:
            self.rebuild(plan)
        self.refresh_gates()

    def set_shedding(self, shedding: LoadShedding | None) -> None:
        """Keep to allowances from now on, or no longer. What was not built meanwhile is completed when it is needed."""
        self.shedding = shedding
        if shedding is not None:
            shedding.reshape(require_tree(self.plan.tree))
        if any(self.find_policy(node.plan).gated != "never" for node in self.walk_joins()):
            self.change_plan(self.plan)

    def restart(self) -> None:
        """Only the leaves have survived: all states are empty and incomplete."""
        if self.early_aliases is not None:
            self.rebuild(self.plan)
            return
        self._set_plan(self.plan)
        for node in self.walk_joins():
            if node.state is not None:
                self.completion.mark_incomplete(node)
        self.refresh_gates()

    # ── a batch ──────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, until: int = int(FOREVER)) -> JoinRows:
        """The root's new rows after the leaves took in a batch, up to the time `until`."""
        self._batches += 1
        if self.shedding is None:
            self.complete_batch_keys()
            return self._compute_delta(until)
        rows = self.root.compute_delta()
        self.completion.record_losses(self.walk_joins(), self.shedding.lossy_joins)
        return rows

    def _compute_delta(self, until: int) -> JoinRows:
        if self.early_node is not None and self.early_node.pending is not None:
            self.early_node.pending.until = until
        return self.root.compute_delta()

    def step_early(self) -> JoinRows:
        """The new rows of the tapped node after its leaves took in a batch; the tree takes them when it is time."""
        node = self.early_node
        assert node is not None
        assert node.pending is not None
        rows = node.find_new_rows(node.lazy.compute_delta(), node.driver.compute_delta())
        node.left.end_batch()
        node.right.end_batch()
        if self.interest is not None and len(rows):
            upwards = self.intersect_interest(node.plan, rows, self._root_interest)
            upwards = self.clip_to_interest(node.plan, upwards)
            node.pending.add(upwards.take(upwards.born < upwards.dies))
        return rows

    def roll_back(self, marks: Mapping[str, int]) -> None:
        """Forget what the tapped node and those below it made of leaf rows from `marks` on."""
        assert self.early_node is not None
        assert self.early_node.pending is not None
        self.early_node.pending.clear()
        for node in walk_joins(self.early_node):
            if node is not self.early_node:
                node.roll_back(marks)

    def has_pending(self, until: int) -> bool:
        """Whether the tapped node has rows that the tree has not taken and may take now."""
        return (
            self.early_node is not None
            and self.early_node.pending is not None
            and self.early_node.pending.has_due(until)
        )

    def complete_batch_keys(self) -> None:
        """Complete states for the keys this batch will ask for."""
        if self.completion:
            self.completion.complete_batch_keys(list(self.walk_joins()))

    def end_batch(self, bound: int, beside: Sequence[JoinTree] = ()) -> Mapping[str, Renumbering]:
        """End the batch: nothing is new any more, and what dies by `bound` may be forgotten.

        `beside` are the trees that share the leaves: what happens to rows and codes happens to all of them.
        """
        trees = (self, *beside)
        for tree in trees:
            tree._purged_until = bound
            tree.root.end_batch()
            if tree._discarded:  # to give back the memory of a large state takes its time: one a batch
                tree._discarded.pop()
        changes = {alias: store.purge(bound) for alias, store in self.stores.items()}
        renumbered = {alias: change for alias, change in changes.items() if change is not None}
        for tree in trees:
            tree._apply_leaf_changes(bound, renumbered)
        if self.keys.recycle(lambda key: chain.from_iterable(tree._list_used_codes(key) for tree in trees)):
            for tree in trees:
                tree.completion.forget_keys()
        for tree in trees:
            if tree._is_demand_stale():
                tree.refresh_gates()
        return renumbered

    def _apply_leaf_changes(self, bound: int, renumbered: Mapping[str, Renumbering]) -> None:
        """Leaf rows have died or got new ids."""
        for alias in self._first_rows.keys() & renumbered.keys():
            self._first_rows[alias] = renumbered[alias].map_mark(self._first_rows[alias])
        for node in self.walk_joins():
            node.purge(bound, renumbered)
        self.completion.apply_renumbering(renumbered)

    def _is_demand_stale(self) -> bool:
        """Whether a quarter of the tuples came since demand was last looked at."""
        new = sum(store.end for store in self.stores.values()) - self._rows_at_refresh
        return 4 * new > max(self.maintenance.demand_rows, sum(len(store) for store in self.stores.values()))

    def complete_some(self, rows: int) -> None:
        """Complete what is missing a little."""
        if self.shedding is None:
            self.completion.complete_some(rows)

    def _list_used_codes(self, key: Key) -> Iterator[I32]:
        for store in self.stores.values():
            yield from store.list_used_codes(key)
        for node in self.walk_joins():
            if node.state is not None and node.state_key == key:
                yield node.state.codes()
            if node.gate is not None:
                yield from node.gate.list_used_codes(key)
        if isinstance(self.root, EddyNode):
            for gate in self.root.gates.values():
                yield from gate.list_used_codes(key)

    # ── sharing (State-Slice) ────────────────────────────────────────────────────────────────────────────────────

    def update_sharing(
        self, plan: JoinPlan, interest: Interest | None, wanted: Mapping[str, I32], reader_codes: tuple[int, int]
    ) -> None:
        """Go on for other queries, between two batches: `wanted` are the codes of the rows that the leaves hold.

        `sides` are the codes of those who read the root and of those who read the tapped node.
        """
        for leaf in plan.leaves:
            self.stores[leaf.alias].update_sharing(leaf, interest, wanted.get(leaf.alias))
        for alias in (
            self.early_aliases or ()
        ):  # a term that binds no other of these streams matters to those above only
            alone = (
                class_.id for class_ in plan.classes if set(class_.aliases) & (self.early_aliases or set()) == {alias}
            )
            self.stores[alias].null_interest = dict.fromkeys(alone, reader_codes[1])
        if self.early_aliases is None:
            for store in self.stores.values():
                store.null_interest = {}
        self._root_interest = reader_codes[0]
        self.interest = interest
        self.change_plan(plan)
        for node in self.walk_joins():
            node.drop_unwanted(self._purged_until)

    def clip_to_interest(self, part: SubPlan, rows: JoinRows) -> JoinRows:
        """The rows with the ends of those who want them: nobody wants a row that dies before it is born."""
        if self.interest is None:
            lives = [
                self.stores[alias].read_expirations(ids) for alias, ids in zip(part.aliases, rows.ids, strict=True)
            ]
            return JoinRows(rows.ids, rows.born, np.minimum.reduce([rows.dies, *lives]))
        codes, dies = self.compute_interest(part, rows), rows.dies.copy()
        for alias, ids in zip(part.aliases, rows.ids, strict=True):
            self.stores[alias].clip_expirations(ids, codes, dies)
        return JoinRows(rows.ids, rows.born, np.where(codes == NO_INTEREST, ALWAYS, dies), codes)

    def needs_interest(self, part: SubPlan) -> bool:
        """Whether rows of a node must be asked who wants them: not those above a tap that are all for one party."""
        if self.interest is None or self.early_aliases is None or self.early_aliases.issuperset(part.aliases):
            return self.interest is not None
        return self.interest.sets[self._root_interest].bit_count() != 1

    def compute_interest(self, part: SubPlan, rows: JoinRows) -> I32:
        """The codes of those who want all parts of a row."""
        assert self.interest is not None
        if rows.interest is not None:
            return rows.interest
        first, *others = ((self.stores[alias], ids) for alias, ids in zip(part.aliases, rows.ids, strict=True))
        codes = first[0].read_interest(first[1])
        if not self.interest.has_few_sets:
            return reduce(self.interest.intersect, (store.read_interest(ids) for store, ids in others), codes)
        meets = self.interest.intersection_table()
        for store, ids in others:
            store.intersect_interest(ids, meets, codes)
        return codes

    def compute_new_interest(self, part: SubPlan, rows: JoinRows) -> I32:
        """As `interested`, of rows that were just made."""
        return (
            self.compute_interest(part, rows)
            if self.needs_interest(part)
            else np.full(len(rows), self._root_interest, np.int32)
        )

    def clip_state_rows(self, node: JoinNode, rows: JoinRows) -> JoinRows:
        """As `wanted`, of rows in the state of a node: that of the tapped one is for those above it."""
        return self.clip_to_interest(
            node.plan,
            rows if node is not self.early_node else self.intersect_interest(node.plan, rows, self._root_interest),
        )

    def intersect_interest(self, part: SubPlan, rows: JoinRows, to: int) -> JoinRows:
        """The rows with the codes of those among some, a code of theirs, who want them."""
        assert self.interest is not None
        codes = self.interest.intersect(self.compute_interest(part, rows), np.full(len(rows), to, np.int32))
        return JoinRows(rows.ids, rows.born, rows.dies, codes)

    def read_probe_interest(self, part: SubPlan, rows: JoinRows, partner: SubPlan) -> tuple[str, I32] | None:
        """For tuples of one stream that probe another stream: the alias, and who wants them; None for others."""
        if self.interest is None or not self.interest.has_few_sets:
            return None
        if not isinstance(part, LeafPlan) or not isinstance(partner, LeafPlan):
            return None
        return part.alias, self.stores[part.alias].read_interest(rows.ids[0])

    def compute_born_after(self, part: SubPlan, rows: JoinRows, partner: SubPlan) -> I64 | None:
        """For each row, the time after which a tuple of a leaf must be born to be wanted together with it."""
        if self.interest is None or not isinstance(partner, LeafPlan) or partner.source.is_table:
            return None
        reach = self.interest.longest_window(partner.alias, self.compute_interest(part, rows))
        oldest: I64 = rows.born - reach
        return np.where((reach == FOREVER) | (oldest > rows.born), ALWAYS, oldest)

    # ── demand ───────────────────────────────────────────────────────────────────────────────────────────────────

    def refresh_gates(self) -> None:
        """Forget demand that no living driver row has any more, from the root down; only between two batches."""
        self._rows_at_refresh = sum(store.end for store in self.stores.values())
        if isinstance(self.root, JoinNode):
            self._gate_control.refresh_demand(self.root, self._purged_until, self._batches)
        if isinstance(self.root, EddyNode):
            self.root.rebuild_demand(self._purged_until)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def walk_nodes(self) -> Iterator[TreeNode]:
        """Leaves and joins, children first."""
        return iter(self.root.stems.values()) if isinstance(self.root, EddyNode) else walk_nodes(self.root)

    def walk_joins(self) -> Iterator[JoinNode]:
        """The joins, children first."""
        return (part for part in self.walk_nodes() if isinstance(part, JoinNode))

    def make_reader(self, part: SubPlan, rows: JoinRows) -> Callable[[Column], pa.Array]:
        """Read payload columns of rows of a node."""
        places = {alias: place for place, alias in enumerate(part.aliases)}
        return lambda column: self.stores[column.alias].take(column.name, rows.ids[places[column.alias]])
