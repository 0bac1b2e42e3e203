"""Joins of leaves with a key and a range: whether partners are found by the range, where a key has many rows.

Law: either way finds the partners with an equal key and a number in the range; the predicates are tested on all of
them. So the choice may differ from batch to batch.

Cost: a sample of probes by the range, from time to time, while a key has many rows. A sorted index that is no longer
read is dropped with the next review of the leaf's indexes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from penstock.join.join_rows import JoinRows
from penstock.join.leaf_node import LeafNode
from penstock.join.probes import ProbeResult, Probes
from penstock.join.range_probes import compute_probe_ranges
from penstock.join.tree_context import TreeContext
from penstock.plan import NodePlan, RangeCondition, find_range_condition, orient_range
from penstock.state import Mask

if TYPE_CHECKING:
    from penstock.join.node import TreeNode

_SAMPLED_PROBES = 32
_BATCHES = 64
"""After so many batches the choice is made anew."""


@dataclass
class _Choice:
    """What was chosen for the probes of one leaf, and for how many more batches."""

    by_range: bool
    batches: int


class RangeChoice:
    """The choice for one join of two leaves with a key and a range between them."""

    def __init__(
        self, plan: NodePlan, condition: RangeCondition, children: Sequence[LeafNode], context: TreeContext
    ) -> None:
        self.condition = condition
        (self._key,) = plan.key
        self._context = context
        self._choices: dict[str, _Choice] = {}
        for child in children:
            child.ordered_by = orient_range(condition, child.plan.aliases)

    def chooses_range(self, side: TreeNode, rows: JoinRows, other: TreeNode, *, old_only: bool) -> bool:
        """Whether rows of one leaf look for partners in the other by the range."""
        if not isinstance(other, LeafNode) or other.demanded is not None or self._context.shedding is not None:
            return False
        if len(other.store) < self._context.maintenance.range_rows:
            return False
        known = self._choices.get(other.store.alias)
        if known is None or not known.batches:
            by_range = self._pays_off(side, rows, other, old_only=old_only)
            known = self._choices[other.store.alias] = _Choice(by_range, _BATCHES)
        known.batches -= 1
        return known.by_range

    def _pays_off(self, side: TreeNode, rows: JoinRows, other: LeafNode, *, old_only: bool) -> bool:
        """Compare the rows of a key with those in the ranges of some probes."""
        upkeep, keys = self._context.maintenance, self._context.keys
        per_key = len(other.store) / max(keys.interners[self._key].live_count, 1)
        if per_key < upkeep.range_rows:
            return False
        sample = rows.take(np.linspace(0, len(rows) - 1, min(len(rows), _SAMPLED_PROBES)).astype(np.int64))
        read = self._context.make_reader(side.plan, sample)
        ranges = compute_probe_ranges(self.condition, other.plan.aliases, read)
        probes = Probes({}, sample.born, sample.dies, old_only, ranges)
        found = sum(block.probe.size for block in other.match(probes))
        return upkeep.range_gain * found <= per_key * len(sample)

    def find_equal_keys(self, side: TreeNode, rows: JoinRows, other: TreeNode, found: ProbeResult) -> Mask:
        """Which of the pairs that were found by the range have equal keys."""
        codes = other.codes(self._key, found.rows)
        equal: Mask = (codes == side.codes(self._key, rows)[found.probe]) & (codes >= 0)
        return equal


def make_range_choice(plan: NodePlan, left: TreeNode, right: TreeNode, context: TreeContext) -> RangeChoice | None:
    """The choice for a join of two leaves with one key and a range that is bounded on both sides; None for others."""
    if len(plan.key) != 1 or not isinstance(left, LeafNode) or not isinstance(right, LeafNode):
        return None
    condition = find_range_condition(plan)
    if condition is None or (condition.second is None and not -inf < condition.low <= condition.high < inf):
        return None
    return RangeChoice(plan, condition, (left, right), context)
