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
from penstock.join.completion.completion import Completion
from penstock.join.demand.gate_control import Gates
from penstock.join.early_reader import Ahead
from penstock.join.eddy import EddyNode
from penstock.join.join_rows import Rows
from penstock.join.leaf_node import LeafNode
from penstock.join.leaf_store import LeafStore, Renumbering
from penstock.join.node import JoinNode, TreeNode, joins, parts
from penstock.join.node_state import JoinState
from penstock.join.sharing.interest import NOBODY, Interest
from penstock.join.shedding.load_shedding import Shedding
from penstock.join.state_policy import POLICIES, Policy
from penstock.plan.migration import takeover
from penstock.plan.physical import Branch, EddyPlan, JoinPlan, Key, LeafPlan, Part
from penstock.plan.tree import fixed
from penstock.state.interning import KeySpace
from penstock.state.kernels import ALWAYS, FOREVER, I32, I64
from penstock.state.maintenance import SHIPPED, Maintenance
from penstock.state.probe_blocks import Scratch


class JoinTree:
    """Leaves, nodes and the codes they share. The leaves outlive a change of the tree."""

    def __init__(
        self, plan: JoinPlan, policy: Policy, maintenance: Maintenance = SHIPPED, *, beside: JoinTree | None = None
    ) -> None:
        """`beside`: a tree whose leaves it shares; it sees the rows that come from now on, and those of tables."""
        self.policy = policy
        self.maintenance = maintenance
        self.exceptions: dict[frozenset[str], Policy] = {}
        """The policies asked for single nodes, by their aliases."""
        self._since: dict[str, int] = {}
        """By alias, the first row that it sees, where it does not see all."""
        self.interest: Interest | None = None
        """Who wants which tuples, where queries with different filters share the tree."""
        self.tap: frozenset[str] | None = None
        """The aliases of a node that queries over these streams alone read; while there is one, all rows are built."""
        self._whole = NOBODY
        """The code of those who read the root."""
        if beside is None:
            self.keys = KeySpace([class_.type for class_ in plan.classes], maintenance)
            self.stores = {leaf.alias: LeafStore(leaf, self.keys, maintenance) for leaf in plan.leaves}
        else:
            self._share_leaves(beside)
        self.scratch = Scratch(maintenance.block)
        self._bound = int(ALWAYS)
        self._since_forgetting = 0
        self._batches = 0
        self._discarded: list[JoinState] = []
        self.shedding: Shedding | None = None
        """Under a budget: which rows may probe. Gates stay open and incomplete states are not completed then."""
        self._arrange(plan)
        self.shut_gates()

    def _share_leaves(self, other: JoinTree) -> None:
        self.keys, self.stores = other.keys, other.stores
        streams = {alias: store for alias, store in other.stores.items() if store.table is None}
        self._since = {alias: store.end for alias, store in streams.items()}
        self.exceptions = dict(other.exceptions)
        self.interest, self._whole, self._bound = other.interest, other._whole, other._bound

    def first_row(self, alias: str) -> int:
        """The first row of a leaf that the tree sees."""
        base = self.stores[alias].base
        return max(self._since.get(alias, base), base) if self._since else base

    # ── shape ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _arrange(self, plan: JoinPlan) -> None:
        """Take a shape with empty states that count as complete, and open gates."""
        self.plan = plan
        if self.shedding is not None:
            self.shedding.reshape(fixed(plan.tree))
        self.completion = Completion(self.stores, self.first_row)
        self._gates = Gates(self.stores, self.keys, self.policy_of, self.completion, maintenance=self.maintenance)
        self.tapped: JoinNode | None = None
        self.root: TreeNode | EddyNode
        if isinstance(plan.root, EddyPlan):
            self.root = EddyNode(plan.root, self)
            if self.policy.gated == "always":
                self.root.hang_gates(self.policy.demand)
            return
        self.root = self._build(plan.root, None)
        if self.shedding is None:
            self._gates.hang(self.root)
        self.tapped = next((node for node in self.nodes() if frozenset(node.plan.aliases) == self.tap), None)
        if self.tapped is not None:
            self.tapped.ahead = Ahead(self.tapped.plan.aliases)

    def _build(self, part: Branch, state_key: Key | None) -> TreeNode:
        if isinstance(part, LeafPlan):
            return LeafNode(part, self.stores[part.alias], self)
        keeps = state_key is not None and self.policy_of(part).states
        children = self._build(part.left, part.key), self._build(part.right, part.key)
        return JoinNode(part, *children, self, state_key if keeps else None)

    def policy_of(self, part: Part) -> Policy:
        """What a node keeps: the tree's policy, or the one asked for this node."""
        if self.tap is not None:
            return POLICIES["eager"]
        return self.exceptions.get(frozenset(part.aliases), self.policy)

    def adopt(self, policy: Policy, node: frozenset[str] | None = None) -> None:
        """Change the policy of the tree, or of the node over some aliases, between two batches."""
        if node is None:
            self.policy = policy
            self.exceptions.clear()
        else:
            self.exceptions[node] = policy
        self.rearrange(self.plan)

    def rebuild(self, plan: JoinPlan) -> Rows:
        """Take a shape, the old one or another, and fill its states from the leaves; returns the root's living rows."""
        shedding, self.shedding = self.shedding, None
        self._arrange(plan)
        for store in self.stores.values():
            store.fresh_from = store.base
        if self.tapped is not None:
            self.step_ahead()
        rows = self._delta(int(FOREVER))
        self.root.settle()
        if shedding is not None:
            self.shed(shedding)
        self.shut_gates()
        return rows

    def rearrange(self, plan: JoinPlan) -> None:
        """Take another shape; states over the same leaves are kept, what they lack is completed when it is needed."""
        former = {frozenset(node.plan.aliases): node for node in self.nodes() if node.state is not None}
        before = self.completion
        kept_whole = takeover(plan.tree, [leaves for leaves, node in former.items() if node.complete and node.whole])
        self._arrange(plan)
        for node in self.nodes():
            if node.state is not None:
                leaves = frozenset(node.plan.aliases)
                self.completion.inherit(node, former.get(leaves), before, complete=leaves in kept_whole)
        kept = {id(node.state) for node in self.nodes()}
        self._discarded += [
            node.state for node in former.values() if node.state is not None and id(node.state) not in kept
        ]
        if self.tap is not None and self.completion:
            self.rebuild(plan)
        self.shut_gates()

    def shed(self, shedding: Shedding | None) -> None:
        """Keep to allowances from now on, or no longer. What was not built meanwhile is completed when it is needed."""
        self.shedding = shedding
        if shedding is not None:
            shedding.reshape(fixed(self.plan.tree))
        if any(self.policy_of(node.plan).gated != "never" for node in self.nodes()):
            self.rearrange(self.plan)

    def restart(self) -> None:
        """Only the leaves have survived: all states are empty and incomplete."""
        if self.tap is not None:
            self.rebuild(self.plan)
            return
        self._arrange(self.plan)
        for node in self.nodes():
            if node.state is not None:
                self.completion.mark(node)
        self.shut_gates()

    # ── a batch ──────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, until: int = int(FOREVER)) -> Rows:
        """The root's new rows after the leaves took in a batch, up to the time `until`."""
        self._batches += 1
        if self.shedding is None:
            self.complete_ahead()
            return self._delta(until)
        rows = self.root.delta()
        self.completion.lose(self.nodes(), self.shedding.lost_at)
        return rows

    def _delta(self, until: int) -> Rows:
        if self.tapped is not None and self.tapped.ahead is not None:
            self.tapped.ahead.until = until
        return self.root.delta()

    def step_ahead(self) -> Rows:
        """The new rows of the tapped node after its leaves took in a batch; the tree takes them when it is time."""
        node = self.tapped
        assert node is not None
        assert node.ahead is not None
        rows = node.found(node.lazy.delta(), node.driver.delta())
        node.left.settle()
        node.right.settle()
        if self.interest is not None and len(rows):
            upwards = self.narrowed(node.plan, rows, self._whole)
            upwards = self.wanted(node.plan, upwards)
            node.ahead.add(upwards.take(upwards.born < upwards.dies))
        return rows

    def retreat(self, marks: Mapping[str, int]) -> None:
        """Forget what the tapped node and those below it made of leaf rows from `marks` on."""
        assert self.tapped is not None
        assert self.tapped.ahead is not None
        self.tapped.ahead.clear()
        for node in joins(self.tapped):
            if node is not self.tapped:
                node.retreat(marks)

    def awaited(self, until: int) -> bool:
        """Whether the tapped node has rows that the tree has not taken and may take now."""
        return self.tapped is not None and self.tapped.ahead is not None and self.tapped.ahead.due(until)

    def complete_ahead(self) -> None:
        """Complete states for the keys this batch will ask for."""
        if self.completion:
            self.completion.complete_ahead(list(self.nodes()))

    def settle(self, bound: int, beside: Sequence[JoinTree] = ()) -> Mapping[str, Renumbering]:
        """End the batch: nothing is new any more, and what dies by `bound` may be forgotten.

        `beside` are the trees that share the leaves: what happens to rows and codes happens to all of them.
        """
        trees = (self, *beside)
        for tree in trees:
            tree._bound = bound
            tree.root.settle()
            if tree._discarded:  # to give back the memory of a large state takes its time: one a batch
                tree._discarded.pop()
        changes = {alias: store.purge(bound) for alias, store in self.stores.items()}
        renumbered = {alias: change for alias, change in changes.items() if change is not None}
        for tree in trees:
            tree._follow(bound, renumbered)
        if self.keys.recycle(lambda key: chain.from_iterable(tree._used(key) for tree in trees)):
            for tree in trees:
                tree.completion.forget_keys()
        for tree in trees:
            if tree._demand_is_stale():
                tree.shut_gates()
        return renumbered

    def _follow(self, bound: int, renumbered: Mapping[str, Renumbering]) -> None:
        """Leaf rows have died or got new ids."""
        for alias in self._since.keys() & renumbered.keys():
            self._since[alias] = renumbered[alias].place(self._since[alias])
        for node in self.nodes():
            node.purge(bound, renumbered)
        self.completion.follow(renumbered)

    def _demand_is_stale(self) -> bool:
        """Whether a quarter of the tuples came since demand was last looked at."""
        new = sum(store.end for store in self.stores.values()) - self._since_forgetting
        return 4 * new > max(self.maintenance.demand_rows, sum(len(store) for store in self.stores.values()))

    def pace(self, rows: int) -> None:
        """Complete what is missing a little."""
        if self.shedding is None:
            self.completion.pace(rows)

    def _used(self, key: Key) -> Iterator[I32]:
        for store in self.stores.values():
            yield from store.used(key)
        for node in self.nodes():
            if node.state is not None and node.state_key == key:
                yield node.state.codes()
            if node.gate is not None:
                yield from node.gate.used(key)
        if isinstance(self.root, EddyNode):
            for gate in self.root.gates.values():
                yield from gate.used(key)

    # ── sharing (State-Slice) ────────────────────────────────────────────────────────────────────────────────────

    def share(
        self, plan: JoinPlan, interest: Interest | None, wanted: Mapping[str, I32], sides: tuple[int, int]
    ) -> None:
        """Go on for other queries, between two batches: `wanted` are the codes of the rows that the leaves hold.

        `sides` are the codes of those who read the root and of those who read the tapped node.
        """
        for leaf in plan.leaves:
            self.stores[leaf.alias].share(leaf, interest, wanted.get(leaf.alias))
        for alias in self.tap or ():  # a term that binds no other of these streams matters to those above only
            alone = (class_.id for class_ in plan.classes if set(class_.aliases) & (self.tap or set()) == {alias})
            self.stores[alias].excused = dict.fromkeys(alone, sides[1])
        if self.tap is None:
            for store in self.stores.values():
                store.excused = {}
        self._whole = sides[0]
        self.interest = interest
        self.rearrange(plan)
        for node in self.nodes():
            node.tighten(self._bound)

    def wanted(self, part: Part, rows: Rows) -> Rows:
        """The rows with the ends of those who want them: nobody wants a row that dies before it is born."""
        if self.interest is None:
            lives = [self.stores[alias].dies_now(ids) for alias, ids in zip(part.aliases, rows.ids, strict=True)]
            return Rows(rows.ids, rows.born, np.minimum.reduce([rows.dies, *lives]))
        codes, dies = self.interested(part, rows), rows.dies.copy()
        for alias, ids in zip(part.aliases, rows.ids, strict=True):
            self.stores[alias].cut(ids, codes, dies)
        return Rows(rows.ids, rows.born, np.where(codes == NOBODY, ALWAYS, dies), codes)

    def asks(self, part: Part) -> bool:
        """Whether rows of a node must be asked who wants them: not those above a tap that are all for one party."""
        if self.interest is None or self.tap is None or self.tap.issuperset(part.aliases):
            return self.interest is not None
        return self.interest.sets[self._whole].bit_count() != 1

    def interested(self, part: Part, rows: Rows) -> I32:
        """The codes of those who want all parts of a row."""
        assert self.interest is not None
        if rows.wanted is not None:
            return rows.wanted
        first, *others = ((self.stores[alias], ids) for alias, ids in zip(part.aliases, rows.ids, strict=True))
        codes = first[0].wanted(first[1])
        if not self.interest.few:
            return reduce(self.interest.meet, (store.wanted(ids) for store, ids in others), codes)
        meets = self.interest.meets()
        for store, ids in others:
            store.meet(ids, meets, codes)
        return codes

    def asked(self, part: Part, rows: Rows) -> I32:
        """As `interested`, of rows that were just made."""
        return self.interested(part, rows) if self.asks(part) else np.full(len(rows), self._whole, np.int32)

    def still_wanted(self, node: JoinNode, rows: Rows) -> Rows:
        """As `wanted`, of rows in the state of a node: that of the tapped one is for those above it."""
        return self.wanted(node.plan, rows if node is not self.tapped else self.narrowed(node.plan, rows, self._whole))

    def narrowed(self, part: Part, rows: Rows, to: int) -> Rows:
        """The rows with the codes of those among some, a code of theirs, who want them."""
        assert self.interest is not None
        codes = self.interest.meet(self.interested(part, rows), np.full(len(rows), to, np.int32))
        return Rows(rows.ids, rows.born, rows.dies, codes)

    def tuples_wanted(self, part: Part, rows: Rows, partner: Part) -> tuple[str, I32] | None:
        """For tuples of one stream that probe another stream: the alias, and who wants them; None for others."""
        if self.interest is None or not self.interest.few:
            return None
        if not isinstance(part, LeafPlan) or not isinstance(partner, LeafPlan):
            return None
        return part.alias, self.stores[part.alias].wanted(rows.ids[0])

    def oldest_wanted(self, part: Part, rows: Rows, partner: Part) -> I64 | None:
        """For each row, the time after which a tuple of a leaf must be born to be wanted together with it."""
        if self.interest is None or not isinstance(partner, LeafPlan) or partner.source.is_table:
            return None
        reach = self.interest.reach(partner.alias, self.interested(part, rows))
        oldest: I64 = rows.born - reach
        return np.where((reach == FOREVER) | (oldest > rows.born), ALWAYS, oldest)

    # ── demand ───────────────────────────────────────────────────────────────────────────────────────────────────

    def shut_gates(self) -> None:
        """Forget demand that no living driver row has any more, from the root down; only between two batches."""
        self._since_forgetting = sum(store.end for store in self.stores.values())
        if isinstance(self.root, JoinNode):
            self._gates.shut(self.root, self._bound, self._batches)
        if isinstance(self.root, EddyNode):
            self.root.renew(self._bound)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def parts(self) -> Iterator[TreeNode]:
        """Leaves and joins, children first."""
        return iter(self.root.stems.values()) if isinstance(self.root, EddyNode) else parts(self.root)

    def nodes(self) -> Iterator[JoinNode]:
        """The joins, children first."""
        return (part for part in self.parts() if isinstance(part, JoinNode))

    def reader(self, part: Part, rows: Rows) -> Callable[[Column], pa.Array]:
        """Read payload columns of rows of a node."""
        places = {alias: place for place, alias in enumerate(part.aliases)}
        return lambda column: self.stores[column.alias].take(column.name, rows.ids[places[column.alias]])
