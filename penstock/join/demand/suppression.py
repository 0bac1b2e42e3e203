"""The test for demand: which rows of a node the closed gates above it let through (JIT)."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from penstock.join.demand.gate import Gate, RowSource
from penstock.join.join_rows import JoinRows


class GatedNode(RowSource, Protocol):
    """The part of a node that the test for demand uses."""

    gate: Gate | None
    gates: tuple[Gate, ...]


def filter_demanded(node: GatedNode, rows: JoinRows, suppressed: Counter[str] | None = None) -> JoinRows:
    """The rows that every gate above the node admits; `suppressed` counts the others by the type of their MNS."""
    for gate in node.gates:
        if gate.closed and len(rows):
            before = len(rows)
            rows = rows.take(gate.find_demanded(node.plan, node, rows))
            if suppressed is not None:
                kind = "empty" if gate.empty else "type II" if gate is node.gate else "type I"
                suppressed[kind] += before - len(rows)
    return rows
