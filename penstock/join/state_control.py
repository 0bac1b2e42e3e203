"""Which joins of a tree keep their rows, where measurements decide (`auto`).

Law: results do not depend on the choice. A join without a state computes what a probe asks for; a new state is empty
and incomplete. A join whose rows demand those of a closed gate keeps its state, because they are read there.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.join.completion.completion import CompletionTracker
from penstock.join.demand.sampling import choose_places, expand_sample
from penstock.join.join_rows import JoinRows
from penstock.join.leaf_node import LeafNode
from penstock.join.node import JoinNode, TreeNode, walk_joins
from penstock.join.row_table import RowTable
from penstock.join.state_cost import (
    SAMPLE_ROWS,
    StateReview,
    compute_state_cost,
    compute_store_cost,
    count_work,
    sample_lookup,
)
from penstock.join.state_policy import StatePolicy
from penstock.join.tree_context import TreeContext
from penstock.plan import Key, SubPlan


class StateControl:
    """Drops and adds the states of one shape of a tree."""

    def __init__(
        self,
        context: TreeContext,
        find_policy: Callable[[SubPlan], StatePolicy],
        completion: CompletionTracker,
        stateless: set[frozenset[str]],
        discarded: list[RowTable],
    ) -> None:
        """`stateless`: the joins without a state, by their aliases. Tables of dropped states go to `discarded`."""
        self._context = context
        self._find_policy = find_policy
        self._completion = completion
        self._stateless = stateless
        self._discarded = discarded
        self._reviews: dict[JoinNode, StateReview] = {}
        self._new_keys: dict[JoinNode, float] = {}
        """The share of the rows of a state whose key no other row has, as last seen."""

    def review(self, root: JoinNode, batches: int) -> None:
        """Decide for every join below the root; only between two batches."""
        for parent in walk_joins(root):
            for node, sibling in ((parent.left, parent.right), (parent.right, parent.left)):
                if isinstance(node, JoinNode) and node.state_key and self._find_policy(node.plan).states == "measured":
                    self._review_node(parent, node, sibling, node.state_key, batches)

    def _review_node(self, parent: JoinNode, node: JoinNode, sibling: TreeNode, key: Key, batches: int) -> None:
        last, now = self._reviews.get(node, StateReview()), count_work(node, batches)
        since = now.subtract(last.work)
        if node.state is not None and len(node.state):
            self._new_keys[node] = min(1.0, self._context.keys.count_codes(key) / len(node.state))
        new_keys = self._new_keys.get(node, 1.0)
        cost = compute_state_cost(since, key, new_keys)
        if node.state is None:
            review = last.compare(now, since.looked_up, cost)
            if review.is_change_due(compute_store_cost(self._estimate_rows(node), key, new_keys)):
                self.add_state(node)
                node.changes += 1
                review = review.change(now)
        elif self._drives_closed_gate(parent, node) or not last.is_measurement_due(cost, len(node.plan.aliases)):
            return
        else:
            sample = sample_lookup(node, sibling, key, self._sample_rows(sibling))
            review = last.compare(now, cost, sample.estimate_cost(since))
            if review.is_change_due(compute_store_cost(len(node.state), key, new_keys)):
                self.drop_state(node)
                node.changes += 1
                review = review.change(now)
        self._reviews[node] = review

    def _drives_closed_gate(self, parent: JoinNode, node: JoinNode) -> bool:
        gate = parent.lazy.gate
        return parent.driver is node and gate is not None and gate.closed

    def _sample_rows(self, node: TreeNode) -> JoinRows:
        """Some rows of a node, from all of its window."""
        if isinstance(node, LeafNode):
            rows = node.read_living()
            return node.filter_demanded(rows.take(choose_places(len(rows), SAMPLE_ROWS)))
        if node.state is not None:
            rows = node.state.read_living()
            return rows.take(choose_places(len(rows), SAMPLE_ROWS))
        alias = max(node.plan.aliases, key=lambda name: len(self._context.stores[name]))
        store = self._context.stores[alias].rows
        ids = store.base + choose_places(len(store), SAMPLE_ROWS)
        return [rows for part, rows, _ in expand_sample(node, alias, ids, node.gates) if part is node][-1]

    def _estimate_rows(self, node: JoinNode) -> float:
        """The living rows of a join without a state, if the windows stay as they are."""
        stores = [self._context.stores[alias] for alias in node.plan.aliases]
        return node.built * sum(len(store) for store in stores) / max(sum(store.tuples_read for store in stores), 1)

    def drop_state(self, node: JoinNode) -> None:
        """Keep no rows from now on."""
        if node.state is not None:
            self._discarded.append(node.state.table)
            node.state = None
            self._completion.forget(node)
            self._stateless.add(frozenset(node.plan.aliases))

    def add_state(self, node: JoinNode) -> None:
        """Keep rows from now on; older ones are completed."""
        node.add_state()
        self._completion.mark_incomplete(node)
        self._stateless.discard(frozenset(node.plan.aliases))
