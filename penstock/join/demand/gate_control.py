"""The gates of a join tree: where they are, and when they close (JIT).

Law: a gate holds back only rows that no living row of its driver demands. It is closed only while the driver is
complete, because the rows that an incomplete driver lacks may demand any key. When a gate opens, the states below it
may lack rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from penstock.join.completion.completion import CompletionTracker
from penstock.join.demand.gate import Gate
from penstock.join.demand.gate_cost import GateReview, may_pay_off, measure_work, pays_off, sample_gate
from penstock.join.demand.suppression import read_codes
from penstock.join.node import JoinNode, TreeNode, walk_joins, walk_nodes
from penstock.join.state_policy import StatePolicy
from penstock.join.tree_context import TreeContext
from penstock.plan import SubPlan


class GateControl:
    """The gates of one shape of a tree. `find_policy` determines which nodes have one."""

    def __init__(
        self, context: TreeContext, find_policy: Callable[[SubPlan], StatePolicy], completion: CompletionTracker
    ) -> None:
        self._context = context
        self._find_policy = find_policy
        self._completion = completion
        self._reviews: dict[Gate, GateReview] = {}

    def add_gates(self, node: TreeNode, above: tuple[Gate, ...] = ()) -> None:
        """Put an open gate over every lazy child that is a join, and register it with all nodes below."""
        node.gates = above
        if not isinstance(node, JoinNode):
            return
        lazy = node.lazy
        self.add_gates(node.driver, above)
        policy = self._find_policy(lazy.plan)
        if policy.gated != "never" and isinstance(lazy, JoinNode) and lazy.state is not None:
            below = (part.plan.classes for part in walk_nodes(lazy))
            lazy.gate = Gate(node.plan.key, below, self._context.keys, self._context.maintenance, policy.demand)
            above = (*above, lazy.gate)
        self.add_gates(lazy, above)

    def refresh_demand(self, node: JoinNode, bound: int, batches: int) -> None:
        """Remove demand of driver rows that are dead at `bound`, from a node down; only between two batches."""
        lazy = node.lazy
        if isinstance(lazy, JoinNode) and lazy.gate is not None:
            self._review_gate(lazy, lazy.gate, node.driver, bound, batches)
        for child in (node.driver, lazy):
            if isinstance(child, JoinNode):
                self.refresh_demand(child, bound, batches)

    def _review_gate(self, lazy: JoinNode, gate: Gate, driver: TreeNode, bound: int, batches: int) -> None:
        """Compute demand again from the driver's living rows, and decide whether the gate holds rows back."""
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
            gate.add(partial(read_codes, driver, rows), len(rows))
            if not always:
                newest = rows.take(np.arange(len(rows))[-since.driver_rows_per_batch :])
                sample = sample_gate(lazy, gate, partial(read_codes, driver, newest), len(newest), self._context.stores)
                closed = pays_off(sample, since, closed=was_closed)
        gate.closed = closed
        self._reviews[gate] = last.record(work, was_closed=was_closed, closed=closed)
        if was_closed and not closed:  # incomplete nodes too: rows of newer tuples were held back
            for part in walk_joins(lazy):
                self._completion.mark_incomplete(part)
