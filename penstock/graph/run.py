"""The execution cycle: run the current operator, select the next one, until nothing moves."""

from __future__ import annotations

from penstock.graph.graph import Graph
from penstock.graph.rules import Rule


def run(graph: Graph, rule: Rule, batch: int) -> None:
    """Run until no operator can do anything. `batch` is the number of tuples an operator takes per turn."""
    for node in graph:
        current = node if node.operator.more() else None
        while current is not None:
            current.operator.run(batch)
            current = rule(current)
