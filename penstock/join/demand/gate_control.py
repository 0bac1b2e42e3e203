"""The gates of a join tree: where they hang, and when they shut (JIT).

Law: a gate holds back only rows that no living row of its driver demands. It is shut only while the driver is complete,
for what an incomplete one lacks may demand anything; one that opens leaves behind states that may lack rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from penstock.join.completion.completion import Completion
from penstock.join.demand.gate import Gate
from penstock.join.demand.gate_cost import Look, may_pay, pays, sampled, work_around
from penstock.join.leaf_node import codes_of
from penstock.join.leaf_store import LeafStore
from penstock.join.node import JoinNode, TreeNode, joins, parts
from penstock.join.state_policy import Policy
from penstock.plan.physical import Part
from penstock.state.interning import KeySpace
from penstock.state.maintenance import Maintenance


class Gates:
    """The gates of one shape of a tree. `policy_of` says which nodes may have one."""

    def __init__(
        self,
        stores: Mapping[str, LeafStore],
        keys: KeySpace,
        policy_of: Callable[[Part], Policy],
        completion: Completion,
        *,
        maintenance: Maintenance,
    ) -> None:
        self._stores = stores
        self._keys = keys
        self._policy_of = policy_of
        self._completion = completion
        self._maintenance = maintenance
        self._looks: dict[Gate, Look] = {}

    def hang(self, node: TreeNode, above: tuple[Gate, ...] = ()) -> None:
        """Put a gate, open, over every lazy child that is a join, and tell everything below it."""
        node.gates = above
        if not isinstance(node, JoinNode):
            return
        lazy = node.lazy
        self.hang(node.driver, above)
        policy = self._policy_of(lazy.plan)
        if policy.gated != "never" and isinstance(lazy, JoinNode) and lazy.state is not None:
            below = (part.plan.classes for part in parts(lazy))
            lazy.gate = Gate(node.plan.key, below, self._keys, self._maintenance, policy.demand)
            above = (*above, lazy.gate)
        self.hang(lazy, above)

    def shut(self, node: JoinNode, bound: int, batches: int) -> None:
        """Forget demand that no driver row has that lives at `bound`, from a node down; only between two batches."""
        lazy = node.lazy
        if isinstance(lazy, JoinNode) and lazy.gate is not None:
            self._look_at(lazy, lazy.gate, node.driver, bound, batches)
        for child in (node.driver, lazy):
            if isinstance(child, JoinNode):
                self.shut(child, bound, batches)

    def _look_at(self, lazy: JoinNode, gate: Gate, driver: TreeNode, bound: int, batches: int) -> None:
        """Take demand anew from the driver's living rows, and decide whether the gate holds rows back."""
        was_shut = gate.shut
        always = self._policy_of(lazy.plan).gated == "always"
        work = work_around(gate, lazy, driver, self._stores, batches)
        last = self._looks.get(gate, Look())
        since = work.since(last.work)
        if not was_shut and not always and (last.rests or not may_pay(since)):
            self._looks[gate] = last.rested(work)
            return
        gate.clear()
        shut = driver.complete
        if shut:
            rows = driver.living()
            rows = driver.demanded(rows.take(rows.dies > bound))
            gate.add(partial(codes_of, driver, rows), len(rows))
            if not always:
                newest = rows.take(np.arange(len(rows))[-since.driven_per_batch :])
                sample = sampled(lazy, gate, partial(codes_of, driver, newest), len(newest), self._stores)
                shut = pays(sample, since, shut=was_shut)
        gate.shut = shut
        self._looks[gate] = last.measured(work, was_shut=was_shut, shut=shut)
        if was_shut and not shut:  # also what was incomplete before: rows of newer tuples were held back, too
            for part in joins(lazy):
                self._completion.mark(part)
