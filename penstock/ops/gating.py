"""Whether a gate is worth its keep: how many rows a node builds that nobody can use.

Holding rows back costs a test per row and a detour when they are needed after all; it pays where many rows arise per
tuple and few of them meet a partner. Both are measured on the newest tuples, whether the gate is shut or open now.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from penstock.ops.join_node import JoinNode
from penstock.ops.leaf_node import codes_of
from penstock.state.demand import Gate
from penstock.state.leaf import LeafStore
from penstock.state.rows import Rows

SAMPLE = 16
SHUT_ABOVE = 40.0
OPEN_BELOW = 10.0


def is_worth_gating(node: JoinNode, gate: Gate, stores: dict[str, LeafStore]) -> bool:
    """The decision, with hysteresis: unused rows per tuple must pass one threshold to shut, another to open."""
    return unused_per_tuple(node, gate, stores) > (OPEN_BELOW if gate.shut else SHUT_ABOVE)


def builds_few(node: JoinNode, stores: dict[str, LeafStore]) -> bool:
    """Whether so few rows arise per tuple that a gate could not pay: known without asking what is demanded."""
    samples = list(_newest(node, stores))
    return sum(len(rows) for _, rows in samples) <= SHUT_ABOVE * sum(tuples for tuples, _ in samples)


def unused_per_tuple(node: JoinNode, gate: Gate, stores: dict[str, LeafStore]) -> float:
    """Rows of the node per tuple of its leaves that the demand of the gate, as it stands, does not admit."""
    seen = unused = 0
    for tuples, rows in _newest(node, stores):
        admitted = gate.admits(node.plan.classes, partial(codes_of, node, rows), len(rows))
        seen += tuples
        unused += int(np.count_nonzero(~admitted))
    return unused / seen if seen else 0.0


def _newest(node: JoinNode, stores: dict[str, LeafStore]) -> Iterator[tuple[int, Rows]]:
    """For every stream below the node, a few of its newest tuples: how many, and the rows of the node they are in."""
    for alias in node.plan.aliases:
        store = stores[alias]
        ids = np.arange(max(store.base, store.end - SAMPLE), store.end)
        if ids.size and not store.plan.source.is_table:
            yield ids.size, node.expand(alias, ids)
