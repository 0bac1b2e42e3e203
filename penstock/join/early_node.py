"""A node of a join tree that queries read before the tree does: see `early_reader`."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.join.early_reader import PendingRows
from penstock.join.join_rows import JoinRows
from penstock.join.node import JoinNode, walk_joins
from penstock.join.sharing.row_interest import RowInterest


class EarlyNode:
    """A node that computes its rows ahead of the tree, which takes them from `pending` later."""

    def __init__(self, node: JoinNode) -> None:
        self.plan = node.plan
        self.pending = node.pending = PendingRows(node.plan.aliases)
        self._node = node

    def step(self, interest: RowInterest | None) -> JoinRows:
        """The new rows after the leaves stored a batch. Rows that readers of the root need become pending."""
        node = self._node
        rows = node.find_new_rows(node.lazy.compute_delta(), node.driver.compute_delta())
        node.left.end_batch()
        node.right.end_batch()
        if interest is not None and len(rows):
            upwards, _ = interest.restrict(node.plan, rows, interest.root_code)
            upwards = interest.clip(node.plan, upwards)
            self.pending.add(upwards.take(upwards.born < upwards.dies))
        return rows

    def roll_back(self, marks: Mapping[str, int]) -> None:
        """Drop the rows that this node and the nodes below it built from leaf rows from `marks` on."""
        self.pending.clear()
        for node in walk_joins(self._node):
            if node is not self._node and node.state is not None:
                node.state.roll_back(marks)
