"""Resume: build the rows that a gate held back, once their keys are demanded (JIT, section IV).

Law: after `demand_from_lazy` every row of the lazy child whose key a driver row has is in its state. Children are
resumed before their parent, because the same gate held their rows back; resumed driver rows demand the rows of their
lazy sibling.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

import numpy as np

from penstock.join.demand.gate import Gate, NewDemand, RowSource
from penstock.join.join_rows import JoinRows, concat_rows
from penstock.join.leaf_node import LeafNode
from penstock.join.probes import Probes, make_full_intervals

if TYPE_CHECKING:
    from penstock.join.node import JoinNode, TreeNode


def demand_from_lazy(node: JoinNode, driver_rows: JoinRows) -> None:
    """Open the gate of a node's lazy child for the keys of driver rows."""
    lazy, gate = node.lazy, node.lazy.gate
    if gate is not None and gate.closed and len(driver_rows):
        build_demanded(lazy, gate, node.driver, driver_rows)


def build_demanded(lazy: TreeNode, gate: Gate, driver: RowSource, rows: JoinRows) -> None:
    """Build the rows held back that some driver rows demand, and let later rows that these demand through.

    If no join from here down keeps rows or has a closed gate, there is nothing to build: the driver rows look all up.
    """
    gate.demand_requests += len(rows)
    resume_all = gate.empty
    new = gate.add(driver, rows)
    if new.size and lacks_rows(lazy):
        resume_rows(lazy, gate, new, resume_all=resume_all)


def lacks_rows(node: TreeNode) -> bool:
    """Whether a gate above a node can hold back what must be made up for: rows of a state, or demand at a gate."""
    if isinstance(node, LeafNode):
        return node.demanded is not None
    gate = node.lazy.gate
    closed = gate is not None and gate.closed
    return node.state is not None or closed or lacks_rows(node.left) or lacks_rows(node.right)


def resume_rows(node: TreeNode, gate: Gate, new: NewDemand, *, resume_all: bool) -> JoinRows:
    """All demanded rows of a node below the gate whose projection is newly demanded; they are stored afterwards.

    Every child whose rows the gate distinguishes is resumed first. If nothing was demanded before, all children are
    (`resume_all`, the thaw after an ∅-MNS).
    """
    if isinstance(node, LeafNode):
        rows = node.filter_demanded(_find_bound_rows(node, gate, new))
        node.resume(rows)
        return rows
    resumed = {
        child: resume_rows(child, gate, new, resume_all=resume_all)
        for child in (node.left, node.right)
        if resume_all or gate.restricts(child.plan)
    }
    if node.driver in resumed:  # its new rows open the gate of its sibling, so the join must start from them
        demand_from_lazy(node, resumed[node.driver])
    start, other = (node.driver, node.lazy) if _starts_from_driver(node, gate, resumed) else (node.lazy, node.driver)
    if isinstance(other, LeafNode) and other in resumed and node.plan.key and not resume_all:
        found = node.pair.extend_among(start, resumed[start], other, resumed[other])
    else:
        found = node.pair.extend(start, resumed[start], old_only=False)
    rows = concat_rows([node.filter_demanded(some) for some in found], len(node.plan.aliases))
    before = node.completed
    node.insert_absent(rows)
    node.resumed += node.completed - before
    return rows


def _starts_from_driver(node: JoinNode, gate: Gate, resumed: Container[TreeNode]) -> bool:
    """Whether the driver's rows are joined with those of the lazy child: where both are resumed, those that are fewer.

    A lazy child that is a join has rows that the driver's rows demanded only now.
    """
    if node.driver not in resumed or node.lazy not in resumed:
        return node.driver in resumed
    return not isinstance(node.lazy, LeafNode) or gate.restricts(node.driver.plan) or not gate.restricts(node.lazy.plan)


def _find_bound_rows(leaf: LeafNode, gate: Gate, new: NewDemand) -> JoinRows:
    """The rows of a leaf whose projection is newly demanded."""
    if not gate.restricts(leaf.plan):
        return leaf.read_living()
    if new.ranges is not None:
        leaf.sought += new.size
        return leaf.find_in_ranges(*new.ranges)
    part = gate.project_key(leaf.plan.classes)
    distinct = np.unique(np.stack([new.codes[id_] for id_ in part]), axis=1)
    key_codes = dict(zip(part, distinct, strict=True))
    leaf.sought += distinct.shape[1]
    probes = Probes(key_codes, *make_full_intervals(distinct.shape[1]), from_leaves=True)
    rows = [found.rows for found in leaf.match(probes)]
    return concat_rows(rows, 1)
