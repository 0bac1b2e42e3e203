"""Next-operator selection: what runs after the current operator. Pure functions of the graph's state."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.graph.graph import Node

Rule = Callable[[Node], Node | None]


def dfs(current: Node) -> Node | None:
    """Depth first: forward while there is output to carry on, again while there is input, else back."""
    found = _ready(current.successors) or _ready((current,))
    for producer in current.predecessors:
        found = found or dfs(producer)
    return found


def _ready(nodes: Iterable[Node]) -> Node | None:
    return next((node for node in nodes if node.operator.more()), None)
