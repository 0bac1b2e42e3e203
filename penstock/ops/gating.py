"""Whether a gate is worth its keep: how many rows a node builds that nobody can use.

Holding rows back costs a test per row and a detour when they are needed after all; it pays where many rows arise per
tuple and few of them meet a partner. Both are measured on the newest tuples, whether the gate is shut or open now.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from penstock.ops.join_node import JoinNode
from penstock.ops.leaf_node import codes_of
from penstock.state.demand import Gate
from penstock.state.leaf import LeafStore

SAMPLE = 16
SHUT_ABOVE = 40.0
OPEN_BELOW = 10.0


def is_worth_gating(node: JoinNode, gate: Gate, stores: dict[str, LeafStore]) -> bool:
    """The decision, with hysteresis: unused rows per tuple must pass one threshold to shut, another to open."""
    return unused_per_tuple(node, gate, stores) > (OPEN_BELOW if gate.shut else SHUT_ABOVE)


def builds_few(node: JoinNode, stores: dict[str, LeafStore]) -> bool:
    """Whether so few rows arise per tuple that a gate could not pay: known without asking what is demanded."""
    rows = tuples = 0
    for alias in node.plan.aliases:
        store = stores[alias]
        if not store.plan.source.is_table:
            ids = np.arange(max(store.base, store.end - SAMPLE), store.end)
            tuples += ids.size
            rows += len(node.expand(alias, ids))
    return rows <= SHUT_ABOVE * tuples


def unused_per_tuple(node: JoinNode, gate: Gate, stores: dict[str, LeafStore]) -> float:
    """Rows of the node per tuple of its leaves that the demand of the gate, as it stands, does not admit."""
    tuples = unused = 0
    for alias in node.plan.aliases:
        store = stores[alias]
        ids = np.arange(max(store.base, store.end - SAMPLE), store.end)
        if not ids.size or store.plan.source.is_table:
            continue
        rows = node.expand(alias, ids)
        admitted = gate.admits(node.plan.classes, partial(codes_of, node, rows), len(rows))
        tuples += ids.size
        unused += int(np.count_nonzero(~admitted))
    return unused / tuples if tuples else 0.0
