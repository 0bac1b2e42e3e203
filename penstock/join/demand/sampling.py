"""Samples of a tree: some rows of a window, and the rows of the joins above that contain them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from penstock.join.demand.gate import Gate
from penstock.join.join_rows import JoinRows, concat_rows
from penstock.join.leaf_node import LeafNode
from penstock.join.node import JoinNode, TreeNode
from penstock.state import I64

_MOST_ROWS = 512
"""Samples with more rows are thinned out before they are joined further."""


def choose_places(rows: int, most: int) -> I64:
    """The places of at most some of the rows, evenly from the first to the last."""
    places = np.arange(rows) if rows <= most else np.linspace(0, rows - 1, most).astype(np.int64)
    return places.astype(np.int64)


def expand_sample(
    node: JoinNode, alias: str, ids: I64, gates: Sequence[Gate]
) -> Iterator[tuple[JoinNode, JoinRows, float]]:
    """The rows of a node, and of every join below it, that contain some rows of a leaf and that gates admit.

    They are computed from the leaves, whatever the states hold; without a key from the state of the other child, which
    is completed first. At the begin of a batch only old partners are found: the batch itself adds the others to states.

    If there are many, only some are computed; each then stands for as many as the number beside them.
    """
    side, scale = (node.left if alias in node.left.plan.aliases else node.right), 1.0
    if isinstance(side, LeafNode):
        rows = _admit(side, side.expand(alias, ids), gates)
    else:
        for below, rows, scale in expand_sample(side, alias, ids, gates):
            yield below, rows, scale
    if len(rows) > _MOST_ROWS:
        scale *= len(rows) / _MOST_ROWS
        rows = rows.take(choose_places(len(rows), _MOST_ROWS))
    found = list(node.pair.extend(side, rows, old_only=True, from_leaves=bool(node.plan.key)))
    yield node, _admit(node, concat_rows(found, len(node.plan.aliases)), gates), scale


def _admit(node: TreeNode, rows: JoinRows, gates: Sequence[Gate]) -> JoinRows:
    for gate in gates:
        if gate.closed and len(rows):
            rows = rows.take(gate.find_demanded(node.plan, node, rows))
    return rows
