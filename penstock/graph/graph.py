"""The query graph: operators joined by arcs.

An operator's outlet is one `Buffer` with a reader per successor, so that a shared input is stored once. Nodes stand in
the order they were added: producers before consumers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.graph.buffers import Buffer, Reader
from penstock.ops.operator import Operator


@dataclass(eq=False)
class Node:
    """An operator and its place in the graph."""

    operator: Operator
    outlet: Buffer
    readers: tuple[Reader, ...] = ()
    predecessors: list[Node] = field(default_factory=list)
    successors: list[Node] = field(default_factory=list)


class Graph:
    """Nodes by the ids of their operators."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def __getitem__(self, id_: str) -> Node:
        return self._nodes[id_]

    def add(self, operator: Operator, outlet: Buffer, inputs: dict[Reader, Node] | None = None) -> Node:
        """Place an operator behind the nodes its readers read."""
        inputs = inputs or {}
        node = Node(operator, outlet, tuple(inputs))
        for producer in inputs.values():
            if producer not in node.predecessors:
                node.predecessors.append(producer)
                producer.successors.append(node)
        self._nodes[operator.id] = node
        return node

    def remove(self, node: Node) -> None:
        """Take a node without successors out; what only it had not read yet is freed."""
        for reader in node.readers:
            reader.buffer.close(reader)
        for producer in node.predecessors:
            producer.successors.remove(node)
        del self._nodes[node.operator.id]
