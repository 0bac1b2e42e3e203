"""Which child of a join of two joins drives, and which one is lazy.

The driver is built in full, the lazy child as far as the driver's rows demand it. So the child with fewer rows should
drive, wherever the plan has it. The rows of a child are counted; while a gate holds them back they are estimated from
some of the newest tuples.

A change of sides costs the rows that the new driver lacks because they were held back. It takes place once the rows
that the other choice would have saved amount to that cost. A lazy child of which no older row can exist lacks none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from penstock.join.demand.sampling import expand_sample
from penstock.join.leaf_node import LeafNode
from penstock.join.leaf_store import LeafStore
from penstock.join.node import JoinNode, TreeNode, walk_joins, walk_nodes
from penstock.state import KeySpace

Stores = Mapping[str, LeafStore]

SIDE_FACTOR = 2.0
"""A driver with at most this many times the rows of the lazy child remains the driver."""
SIDE_ROWS = 256.0
"""What a change of sides costs in any case, in rows."""
SIDE_SAMPLE = 64
"""How many of the newest tuples of each leaf are expanded to estimate the rows of a child."""


@dataclass(frozen=True)
class SideReview:
    """The last review of a choice of sides."""

    built: tuple[int, int] = (0, 0)
    """How many rows the driver and the lazy child had built."""
    arrived: int = 0
    """How many tuples of the lazy child's streams had arrived."""
    lost: float = 0.0
    """The rows that the other choice would have saved since it became the better one."""
    due: bool = False
    """Whether the sides should change."""


def review_sides(last: SideReview, node: JoinNode, stores: Stores) -> SideReview:
    """Count or estimate the rows that each child had since the last review, rows held back included."""
    lazy, now = node.lazy, restart_review(node, stores)
    driver_rows, lazy_rows = now.built[0] - last.built[0], float(now.built[1] - last.built[1])
    held_back = 0.0
    if isinstance(lazy, JoinNode) and lazy.gate is not None and lazy.gate.closed and driver_rows > SIDE_ROWS:
        per_tuple = _estimate_rows_per_tuple(lazy, stores)
        lazy_rows = per_tuple * (now.arrived - last.arrived)
        held_back = per_tuple * sum(len(stores[alias]) for alias in lazy.plan.aliases)
    lost = last.lost + driver_rows - lazy_rows if driver_rows > SIDE_FACTOR * lazy_rows else 0.0
    return replace(now, lost=lost, due=lost > SIDE_ROWS + held_back)


def restart_review(node: JoinNode, stores: Stores) -> SideReview:
    """The counts now."""
    built = [sum(part.built for part in walk_joins(child)) for child in (node.driver, node.lazy)]
    return SideReview((built[0], built[1]), sum(stores[alias].tuples_read for alias in node.lazy.plan.aliases))


def _estimate_rows_per_tuple(child: JoinNode, stores: Stores) -> float:
    """The rows of a child and of the joins below it per new tuple, if only the gates above the child hold rows back."""
    above = child.gates[:-1]
    rows = weight = 0.0
    for alias in child.plan.aliases:
        store = stores[alias]
        ids = np.arange(max(store.rows.base, store.rows.end - SIDE_SAMPLE), store.rows.end)
        if ids.size and store.table is None:
            weight += store.tuples_read
            found = sum(scale * len(some) for _, some, scale in expand_sample(child, alias, ids, above))
            rows += found / ids.size * store.tuples_read
    return rows / weight if weight else 0.0


def list_new_leaves(stores: Stores) -> frozenset[str]:
    """The leaves all of whose tuples came with this batch."""
    return frozenset(alias for alias, store in stores.items() if store.fresh_from <= store.rows.base)


def has_no_older_rows(child: TreeNode, new_leaves: frozenset[str]) -> bool:
    """Whether no join of a child can have a row of earlier batches: each has a leaf whose tuples are all new."""
    return all(not new_leaves.isdisjoint(node.plan.aliases) for node in walk_joins(child))


def estimate_size(child: TreeNode, keys: KeySpace) -> float:
    """The rows that a child can have by the sizes of its windows, if all classes are uniform and independent."""
    leaves = [part for part in walk_nodes(child) if isinstance(part, LeafNode)]
    size = float(prod(len(leaf.store) for leaf in leaves))
    for id_ in child.plan.classes:
        members = sum(id_ in leaf.plan.classes for leaf in leaves)
        size /= float(max(keys.interners[id_].live_count, 1)) ** max(members - 1, 0)
    return size
