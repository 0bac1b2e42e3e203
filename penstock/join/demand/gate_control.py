"""The gates of a join tree: where they are, and when they close (JIT).

Law: a gate holds back only rows that no living row of its driver demands. It is closed only while the driver is
complete, because the rows that an incomplete driver lacks may demand any key. When a gate opens, the states below it
may lack rows, and drivers among them may demand more: the gates below it are reviewed afterwards.

The sides of a join of two joins may change: its gate opens and is removed, and the new lazy child gets an open gate,
which closes once the new driver is complete.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.join.completion.completion import CompletionTracker
from penstock.join.demand.gate import Gate
from penstock.join.demand.gate_cost import GateReview, may_pay_off, measure_work, pays_off, sample_gate
from penstock.join.demand.range_gate import RangeGate
from penstock.join.demand.sides import (
    SideReview,
    estimate_size,
    has_no_older_rows,
    list_new_leaves,
    restart_review,
    review_sides,
)
from penstock.join.node import JoinNode, TreeNode, walk_joins, walk_nodes
from penstock.join.state_policy import StatePolicy
from penstock.join.tree_context import TreeContext
from penstock.plan import SubPlan


class GateControl:
    """The gates of one shape of a tree. `find_policy` determines which nodes have one."""

    def __init__(
        self,
        context: TreeContext,
        find_policy: Callable[[SubPlan], StatePolicy],
        completion: CompletionTracker,
        drivers: dict[frozenset[str], frozenset[str]],
    ) -> None:
        """`drivers`: by the aliases of a join of two joins, those of the child that was chosen to drive."""
        self._context = context
        self._find_policy = find_policy
        self._completion = completion
        self._drivers = drivers
        self._reviews: dict[Gate, GateReview] = {}
        self._side_reviews: dict[JoinNode, SideReview] = {}
        """By join whose sides may change, from the root down."""

    def add_gates(self, root: TreeNode) -> None:
        """Put an open gate over every lazy child that is a join, and register it with all nodes below."""
        for node in reversed(list(walk_joins(root))):
            if node.joins_two_joins:
                self._choose_first_sides(node)
        self._register_gates(root, ())

    def _choose_first_sides(self, node: JoinNode) -> None:
        """The sides of an earlier shape; else the left child drives, or the child that can have no gate."""
        gated = [child for child in (node.left, node.right) if self._may_have_gate(child)]
        driver = self._drivers.get(frozenset(node.plan.aliases))
        if gated == [node.left] or (len(gated) > 1 and frozenset(node.right.plan.aliases) == driver):
            node.swap_sides()
        if len(gated) > 1:
            self._side_reviews[node] = SideReview()

    def _register_gates(self, node: TreeNode, above: tuple[Gate, ...]) -> None:
        """Give every node the gates above it. A gate that is there already stays."""
        if not isinstance(node, JoinNode):
            if node.gates != above:
                node.demanded = None  # rows that other gates suspended
            node.gates = above
            return
        node.gates = above
        lazy = node.lazy
        self._register_gates(node.driver, above)
        if isinstance(lazy, JoinNode) and self._may_have_gate(lazy):
            if lazy.gate is None:
                lazy.gate = self._make_gate(node, lazy)
            above = (*above, lazy.gate)
        self._register_gates(lazy, above)

    def _make_gate(self, node: JoinNode, lazy: JoinNode) -> Gate:
        """A gate by the key of a join, or by its range if it has no key but a range."""
        if node.pair.range is not None:
            return RangeGate(node.pair.range, lazy.plan.aliases, self._context)
        below = (part.plan.classes for part in walk_nodes(lazy))
        demand, maintenance = self._find_policy(lazy.plan).demand, self._context.maintenance
        return Gate(node.plan.key, below, self._context.keys, maintenance, demand)

    def _may_have_gate(self, child: TreeNode) -> bool:
        if not isinstance(child, JoinNode) or child.state_key is None:
            return False
        return self._find_policy(child.plan).gated != "never"

    # ── sides ────────────────────────────────────────────────────────────────────────────────────────────────────

    def choose_sides_freely(self, bound: int, batches: int) -> None:
        """At the begin of a batch: change sides where that costs nothing, as the new driver can lack no row."""
        if not self._side_reviews:
            return
        new_leaves, keys = list_new_leaves(self._context.stores), self._context.keys
        if not new_leaves:
            return
        for node in self._side_reviews:
            if not has_no_older_rows(node.lazy, new_leaves):
                continue
            if estimate_size(node.driver, keys) > estimate_size(node.lazy, keys):
                self.swap_sides(node, lacks_rows=False)
                self._review_gate(node, bound, batches)
                self.refresh_demand(node.driver, bound, batches)  # no join of it has older rows

    def swap_sides(self, node: JoinNode, *, lacks_rows: bool = True) -> None:
        """Let the lazy child drive. `lacks_rows`: whether rows of it may have been held back.

        Afterwards the gates of the new driver must be reviewed: its rows are not held back any more.
        """
        lazy = node.lazy
        if isinstance(lazy, JoinNode) and lazy.gate is not None:
            if lazy.gate.closed and lacks_rows:
                self._mark_held_back(lazy)
            self._reviews.pop(lazy.gate, None)
            lazy.gate = None
        node.swap_sides()
        self._drivers[frozenset(node.plan.aliases)] = frozenset(node.driver.plan.aliases)
        self._side_reviews[node] = SideReview()
        self._register_gates(node, node.gates)

    def _mark_held_back(self, lazy: JoinNode) -> None:
        """The states below a gate may lack rows; incomplete ones too, of newer tuples than they are marked for."""
        for part in walk_nodes(lazy):
            if isinstance(part, JoinNode):
                self._completion.mark_incomplete(part)
            else:
                part.demanded = None

    def _review_sides(self, node: JoinNode) -> None:
        """Change sides if the lazy child has fewer rows than the driver and that has cost enough."""
        review = review_sides(self._side_reviews[node], node, self._context.stores)
        if review.due:
            self.swap_sides(node)
            review = restart_review(node, self._context.stores)
        self._side_reviews[node] = review

    # ── demand ───────────────────────────────────────────────────────────────────────────────────────────────────

    def refresh_demand(self, node: TreeNode, bound: int, batches: int) -> None:
        """Remove demand of driver rows that are dead at `bound`, from a node down; only between two batches."""
        if not isinstance(node, JoinNode):
            return
        if node in self._side_reviews:
            self._review_sides(node)
        self._review_gate(node, bound, batches)
        for child in (node.driver, node.lazy):
            self.refresh_demand(child, bound, batches)

    def _review_gate(self, node: JoinNode, bound: int, batches: int) -> None:
        """Compute demand again from the driver's living rows, and decide whether the gate holds rows back."""
        driver, lazy = node.driver, node.lazy
        if not isinstance(lazy, JoinNode) or lazy.gate is None:
            return
        gate = lazy.gate
        was_closed = gate.closed
        always = self._find_policy(lazy.plan).gated == "always"
        work = measure_work(gate, lazy, driver, self._context.stores, batches)
        last = self._reviews.get(gate, GateReview())
        since = work.subtract(last.work)
        if not was_closed and not always and (last.skips or not may_pay_off(since)):
            self._reviews[gate] = last.skip(work)
            return
        gate.clear()
        closed = driver.complete
        if closed:
            rows = driver.read_living()
            rows = driver.filter_demanded(rows.take(rows.dies > bound))
            gate.add(driver, rows)
            if not always:
                newest = rows.take(np.arange(len(rows))[-since.driver_rows_per_batch :])
                sample = sample_gate(lazy, gate, driver, newest, self._context.stores)
                closed = pays_off(sample, since, closed=was_closed)
        gate.closed = closed
        lazy.changes += closed != was_closed
        self._reviews[gate] = last.record(work, was_closed=was_closed, closed=closed)
        if was_closed and not closed:
            self._mark_held_back(lazy)
