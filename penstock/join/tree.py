"""The tree inside a join operator: join nodes over leaf windows, stepped batch by batch, children first.

Law: after `step`, the rows returned are exactly the combinations that contain a tuple of this batch, satisfy every
class and residual predicate, and live at some instant; each once. A node's new rows are new driver rows with all rows
of the lazy child, and new lazy rows with the old rows of the driver ("old": no tuple of this batch), so that a pair of
two new rows is built once.

The tree may change its shape between two batches (`change_plan`): leaves and the states of nodes over the same leaves
are kept, everything else is completed when it is needed, or a few rows per batch (`complete_some`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from penstock.join.completion.completion import CompletionTracker
from penstock.join.demand.gate_control import GateControl
from penstock.join.early_node import EarlyNode
from penstock.join.eddy import EddyNode
from penstock.join.join_rows import JoinRows
from penstock.join.leaf_node import LeafNode
from penstock.join.leaf_store import LeafStore
from penstock.join.node import JoinNode, TreeNode, walk_nodes
from penstock.join.row_table import RowTable
from penstock.join.sharing.interest import Interest
from penstock.join.sharing.leaf_interest import LeafInterest
from penstock.join.sharing.row_interest import RowInterest
from penstock.join.shedding.load_shedding import LoadShedding
from penstock.join.state_control import StateControl
from penstock.join.state_policy import POLICIES, StatePolicy
from penstock.join.tree_context import TreeContext
from penstock.plan import Branch, EddyPlan, JoinPlan, Key, LeafPlan, NodePlan, SubPlan, classify_states, require_tree
from penstock.state import ALWAYS, FOREVER, I32, SHIPPED, KeySpace, Maintenance, ProbeBuffer, Renumbering


class JoinTree:
    """The nodes of a join in one shape. The leaves are kept when the shape changes."""

    def __init__(
        self,
        plan: JoinPlan,
        policy: StatePolicy,
        maintenance: Maintenance = SHIPPED,
        *,
        beside: JoinTree | None = None,
    ) -> None:
        """`beside`: a tree whose leaves it shares; it reads the rows that arrive from now on, and those of tables."""
        self.policy = policy
        self.maintenance = maintenance
        self.node_policies: dict[frozenset[str], StatePolicy] = {}
        """The policies set for single nodes, by their aliases."""
        self.drivers: dict[frozenset[str], frozenset[str]] = {}
        """By the aliases of a join of two joins, those of the child that was chosen to drive."""
        self.stateless: set[frozenset[str]] = set()
        """The nodes that were found to be cheaper without a state, by their aliases."""
        self.early_aliases: frozenset[str] | None = None
        """The aliases of a node that queries over these streams alone read; while there is one, all rows are built."""
        self._purged_until = int(ALWAYS)
        self._rows_at_refresh = 0
        self._batches = 0
        self._discarded: list[RowTable] = []
        if beside is None:
            keys = KeySpace([class_.type for class_ in plan.classes], maintenance)
            stores = {leaf.alias: LeafStore(leaf, keys, maintenance) for leaf in plan.leaves}
            self.context = TreeContext(stores, keys, maintenance, ProbeBuffer(maintenance.block))
        else:
            self.context = _share_leaves(beside.context)
            self.node_policies, self.drivers = dict(beside.node_policies), dict(beside.drivers)
            self.stateless = set(beside.stateless)
            self._purged_until = beside._purged_until
        self.stores, self.keys = self.context.stores, self.context.keys
        self._set_plan(plan)
        if beside is not None:
            for node in self.walk_joins():
                if all(self.stores[alias].table is not None for alias in node.plan.aliases):
                    self.completion.mark_incomplete(node)
        self.refresh_gates()

    # ── shape ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _set_plan(self, plan: JoinPlan) -> None:
        """Take a shape with empty states that count as complete, and open gates."""
        self.plan = plan
        if self.shedding is not None:
            self.shedding.reshape(require_tree(plan.tree))
        self.completion = CompletionTracker(self.context)
        self._gate_control = GateControl(self.context, self.find_policy, self.completion, self.drivers)
        self._state_control = StateControl(
            self.context, self.find_policy, self.completion, self.stateless, self._discarded
        )
        self.early_node: EarlyNode | None = None
        self.root: TreeNode | EddyNode
        if isinstance(plan.root, EddyPlan):
            self.root = EddyNode(plan.root, self.context, self.policy)
            self._nodes: list[TreeNode] = list(self.root.stems.values())
            self._joins: list[JoinNode] = []
            return
        self.root = self._build_node(plan.root, None)
        self._nodes = list(walk_nodes(self.root))
        self._joins = [part for part in self._nodes if isinstance(part, JoinNode)]
        if self.shedding is None:
            self._gate_control.add_gates(self.root)
        for node in self.walk_joins():
            if frozenset(node.plan.aliases) == self.early_aliases:
                self.early_node = EarlyNode(node)

    def _build_node(self, part: Branch, state_key: Key | None) -> TreeNode:
        if isinstance(part, LeafPlan):
            return LeafNode(part, self.stores[part.alias], self.context, state_key)
        children = self._build_node(part.left, part.key), self._build_node(part.right, part.key)
        return JoinNode(part, *children, self.context, state_key, keeps=self._keeps_state(part))

    def _keeps_state(self, part: NodePlan) -> bool:
        """Whether a node of a new shape has a state."""
        states = self.find_policy(part).states
        return states == "always" or (states == "measured" and frozenset(part.aliases) not in self.stateless)

    def find_policy(self, part: SubPlan) -> StatePolicy:
        """The policy of a node: the one set for this node, or the tree's."""
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
        shedding, self.context.shedding = self.shedding, None
        self._set_plan(plan)
        for store in self.stores.values():
            store.fresh_from = store.rows.base
        if self.early_node is not None:
            self.early_node.step(self.context.interest)
        rows = self._compute_delta(int(FOREVER))
        self.root.end_batch()
        if shedding is not None:
            self.set_shedding(shedding)
        self.refresh_gates()
        return rows

    def change_plan(self, plan: JoinPlan) -> None:
        """Take another shape; states over the same leaves are kept, and missing rows are completed when needed."""
        former = {frozenset(node.plan.aliases): node for node in self.walk_joins() if node.state is not None}
        before = self.completion
        kept_whole = classify_states(
            plan.tree, [leaves for leaves, node in former.items() if node.complete and node.ungated]
        )
        self._set_plan(plan)
        for node in self.walk_joins():
            leaves = frozenset(node.plan.aliases)
            self.completion.inherit(node, former.get(leaves), before, complete=leaves in kept_whole)
        kept = {id(node.state.table) for node in self.walk_joins() if node.state is not None}
        tables = (node.state.table for node in former.values() if node.state is not None)
        self._discarded += [table for table in tables if id(table) not in kept]
        if self.early_aliases is not None and self.completion:
            self.rebuild(plan)
        self.refresh_gates()

    def change_plan_at_once(self, plan: JoinPlan) -> None:
        """Take another shape and complete it now (Moving State): the missing rows, or all states if none is kept."""
        if self.shedding is not None:
            self.rebuild(plan)
            return
        self.change_plan(plan)
        if any(node.complete for node in self.walk_joins() if node.state is not None):
            self.completion.complete_all()
        else:
            self.rebuild(plan)

    @property
    def shedding(self) -> LoadShedding | None:
        """The budget that the tree works under."""
        return self.context.shedding

    def set_shedding(self, shedding: LoadShedding | None) -> None:
        """Set or remove a budget. Rows that are not built under the budget are completed when they are needed.

        A budget is divided over the probes of states, so that all joins keep theirs, and no gates are closed.
        """
        self.context.shedding = shedding
        if shedding is not None:
            self.stateless.clear()
            shedding.reshape(require_tree(self.plan.tree))
        if any(self.find_policy(node.plan).gated != "never" for node in self.walk_joins()):
            self.change_plan(self.plan)

    def restart(self) -> None:
        """Empty all states and mark them incomplete: only the leaves hold rows. For an early node they are filled."""
        if self.early_aliases is not None:
            self.rebuild(self.plan)
            return
        self._set_plan(self.plan)
        for node in self.walk_joins():
            self.completion.mark_incomplete(node)
        self.refresh_gates()

    def update_sharing(
        self,
        plan: JoinPlan,
        interest: Interest | None,
        codes: Mapping[str, I32],
        reader_codes: tuple[int, int],
        early_aliases: frozenset[str] | None,
    ) -> None:
        """Continue for other queries, between two batches. `codes` are the new codes of interest of the stored rows.

        `reader_codes` are the codes of the groups that read the root and of those that read the early node.
        """
        self.early_aliases = early_aliases
        leaves = {} if interest is None else self._make_leaf_interests(plan, interest, codes, reader_codes[1])
        for leaf in plan.leaves:
            self.stores[leaf.alias].update_sharing(leaf, leaves.get(leaf.alias), codes[leaf.alias])
        shared_rows = None if interest is None else RowInterest(interest, leaves, reader_codes[0], early_aliases)
        self.context.interest = shared_rows
        self.change_plan(plan)
        for node in self.walk_joins():
            node.drop_unwanted(self._purged_until)

    def _make_leaf_interests(
        self, plan: JoinPlan, interest: Interest, codes: Mapping[str, I32], early_code: int
    ) -> dict[str, LeafInterest]:
        found = {}
        for alias, store in ((leaf.alias, self.stores[leaf.alias]) for leaf in plan.leaves):
            null_codes = dict.fromkeys(_list_upper_classes(plan, alias, self.early_aliases), early_code)
            found[alias] = LeafInterest(alias, interest, store.rows, codes[alias], null_codes)
        return found

    def renew_codes(self, interest: Interest, codes: Mapping[str, I32], reader_codes: tuple[int, int]) -> None:
        """Continue for the same queries with other codes, see `update_sharing`."""
        leaves = self._make_leaf_interests(self.plan, interest, codes, reader_codes[1])
        for alias, leaf in leaves.items():
            self.stores[alias].interest = leaf
        self.context.interest = RowInterest(interest, leaves, reader_codes[0], self.early_aliases)

    def add_sharing(self, plan: JoinPlan) -> None:
        """Continue for more queries, which need none of the stored rows."""
        if plan == self.plan:
            return
        tested = self.plan.residuals
        for leaf in plan.leaves:
            self.stores[leaf.alias].update_plan(leaf)
        self.change_plan(plan)
        if not plan.residuals <= tested:  # a query left, and those left have one more predicate in common
            for node in self.walk_joins():
                node.drop_unwanted(self._purged_until)

    # ── a batch ──────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, until: int = int(FOREVER)) -> JoinRows:
        """The root's new rows after the leaves stored a batch, up to the time `until`."""
        self._batches += 1
        shedding = self.context.shedding
        if shedding is None:
            if self.completion:
                self.completion.defer_losses()
            self._gate_control.choose_sides_freely(self._purged_until, self._batches)
            self.complete_batch_keys()
            return self._compute_delta(until)
        rows = self.root.compute_delta()
        self.completion.record_losses(self.walk_joins(), shedding.lossy_joins)
        return rows

    def _compute_delta(self, until: int) -> JoinRows:
        if self.early_node is not None:
            self.early_node.pending.until = until
        return self.root.compute_delta()

    def complete_batch_keys(self) -> None:
        """Complete states for the keys that this batch will probe."""
        if self.completion:
            self.completion.complete_batch_keys(list(self.walk_joins()))

    def complete_some(self, rows: int) -> None:
        """Push about `rows` older rows up the incomplete nodes; under a budget they are completed by probes alone."""
        if self.context.shedding is None and self.completion:
            self.completion.defer_losses()
            self.completion.complete_some(rows)

    def end_batch(self, bound: int, beside: Sequence[JoinTree] = ()) -> Mapping[str, Renumbering]:
        """End the batch: no row is new any more, and rows that die by `bound` may be dropped.

        `beside` are the trees that share the leaves: changes of leaf rows and codes apply to all of them.
        """
        bound = max(bound, self._purged_until)  # rows of a later bound are gone
        trees = (self, *beside)
        for tree in trees:
            tree._purged_until = bound
            tree.root.end_batch()
            if tree._discarded:  # releasing the memory of a large state takes time: one per batch
                tree._discarded.pop()
        renumbered: dict[str, Renumbering] = {}
        for alias, store in self.stores.items():
            change = store.purge(bound)
            if change is not None:
                renumbered[alias] = change
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
        """Leaf rows have died or have new ids."""
        first_rows = self.context.first_rows
        if renumbered:
            for alias in first_rows.keys() & renumbered.keys():
                first_rows[alias] = renumbered[alias].map_mark(first_rows[alias])
        for node in self._nodes:
            node.purge(bound, renumbered)
        if self.completion:
            self.completion.apply_renumbering(renumbered)

    def _list_used_codes(self, key: Key) -> Iterator[I32]:
        for store in self.stores.values():
            yield from store.indexes.list_used_codes(key)
        for leaf in self.walk_leaves():
            if leaf.demanded is not None and leaf.demanded.key == key:
                yield leaf.demanded.table.codes()
        for node in self.walk_joins():
            if node.state is not None and node.state.key == key:
                yield node.state.table.codes()
            if node.gate is not None:
                yield from node.gate.list_used_codes(key)
        if isinstance(self.root, EddyNode):
            for gate in self.root.gates.values():
                yield from gate.list_used_codes(key)

    # ── demand ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _is_demand_stale(self) -> bool:
        """Whether a quarter of the tuples arrived since demand was last computed."""
        new, stored = -self._rows_at_refresh, 0
        for store in self.stores.values():
            rows = store.rows
            new, stored = new + rows.end, stored + rows.end - rows.base
        return 4 * new > stored and 4 * new > self.maintenance.demand_rows

    def refresh_gates(self) -> None:
        """Remove demand that no living driver row has any more, from the root down; only between two batches."""
        self._rows_at_refresh = sum(store.rows.end for store in self.stores.values())
        for store in self.stores.values():
            store.indexes.begin_review()
        if isinstance(self.root, JoinNode):
            if self.shedding is None:
                self._state_control.review(self.root, self._batches)
            self._gate_control.refresh_demand(self.root, self._purged_until, self._batches)
            for leaf in self.walk_leaves():
                leaf.review_suspended()
        if isinstance(self.root, EddyNode):
            self.root.review_demand(self._purged_until, self._batches)
        for store in self.stores.values():
            store.indexes.end_review()

    def swap_sides(self, aliases: frozenset[str]) -> None:
        """Exchange driver and lazy child of the join of two joins over some aliases, between two batches."""
        for node in self.walk_joins():
            if frozenset(node.plan.aliases) == aliases and node.joins_two_joins:
                self._gate_control.swap_sides(node)
                self.refresh_gates()

    def keep_rows(self, aliases: frozenset[str], *, keeps: bool) -> None:
        """Let the join over some aliases keep its rows from now on, or none, between two batches."""
        for node in self.walk_joins():
            if frozenset(node.plan.aliases) == aliases and keeps != (node.state is not None):
                change = self._state_control.add_state if keeps else self._state_control.drop_state
                change(node)
        self.refresh_gates()

    # ── nodes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def walk_nodes(self) -> Iterator[TreeNode]:
        """Leaves and joins, children first."""
        return iter(self._nodes)

    def walk_leaves(self) -> Iterator[LeafNode]:
        """The leaves."""
        return (node for node in self.walk_nodes() if isinstance(node, LeafNode))

    def walk_joins(self) -> Iterator[JoinNode]:
        """The joins, children first."""
        return iter(self._joins)


def _share_leaves(other: TreeContext) -> TreeContext:
    """The context of a tree that reads the same leaves from now on."""
    streams = {alias: store for alias, store in other.stores.items() if store.table is None}
    first_rows = {alias: store.rows.end for alias, store in streams.items()}
    buffer = ProbeBuffer(other.maintenance.block)
    return TreeContext(other.stores, other.keys, other.maintenance, buffer, first_rows, other.interest)


def _list_upper_classes(plan: JoinPlan, alias: str, early_aliases: frozenset[str] | None) -> list[int]:
    """The classes of a stream of the early node that only the join above that node uses.

    Queries that read the early node need tuples with a NULL in these classes, too.
    """
    if early_aliases is None or alias not in early_aliases:
        return []
    return [class_.id for class_ in plan.classes if set(class_.aliases) & early_aliases == {alias}]
