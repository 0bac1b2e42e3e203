"""The query graph: operators joined by arcs, with their strategies and break nodes.

The outlet of an operator is one `Buffer` with a reader for each successor, so that a shared input is stored once.
A join that queries share has an outlet for each query that other operators read. Nodes are in the order in which they
were added: producers before consumers. Every edit makes a new state table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypedDict

from penstock.graph.buffers import Buffer, Reader
from penstock.graph.state_table import StateTable, build_state_table
from penstock.ops import FrontierBypass, FrontierGenerator, Operator, TimerOperator


class RunSettings(TypedDict):
    """How an operator is scheduled, as snapshots save it."""

    strategy: str | None
    broken: bool


class Node:
    """An operator and its place in the graph. `producers` are the nodes that each of its readers reads."""

    def __init__(self, operator: Operator, outlet: Buffer, producers: Mapping[Reader, Node]) -> None:
        self.operator = operator
        self.outlet = outlet
        self.producers = dict(producers)
        self.readers = tuple(producers)
        self.predecessors = list(dict.fromkeys(producers.values()))
        self.successors: list[Node] = []
        self.holding = operator if isinstance(operator, TimerOperator) else None
        self.enabling = operator if isinstance(operator, FrontierGenerator) else None

    @property
    def id(self) -> str:
        return self.operator.id

    def replace_bypass(self, operator: Operator) -> None:
        """Run another operator in place of a bypass, which passes frontiers on itself: its ETS arc is cut."""
        self.operator = operator
        for reader in self.readers:
            reader.cut_bypass()


class Graph:
    """Nodes by the ids of their operators."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._strategy = "dfs"
        self._strategies: dict[str, str] = {}
        self._breaks: set[str] = set()
        self._table: StateTable | None = None

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def __getitem__(self, id_: str) -> Node:
        return self._nodes[id_]

    def __contains__(self, id_: object) -> bool:
        return id_ in self._nodes

    # ── topology ─────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, operator: Operator, outlet: Buffer, inputs: Mapping[Reader, Node] | None = None) -> Node:
        """Add an operator behind the nodes that its readers read."""
        node = Node(operator, outlet, inputs or {})
        for producer in node.predecessors:
            producer.successors.append(node)
        if isinstance(operator, FrontierBypass):
            for reader in node.readers:
                reader.bypass(outlet)
        self._nodes[operator.id] = node
        self._table = None
        return node

    def remove(self, node: Node) -> None:
        """Remove a node without successors; rows that only this node had not read are freed."""
        for reader in node.readers:
            reader.buffer.close(reader)
        for producer in node.predecessors:
            producer.successors.remove(node)
        del self._nodes[node.id]
        self._strategies.pop(node.id, None)
        self._breaks.discard(node.id)
        self._table = None

    # ── how it is run ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def strategy(self) -> str:
        """The strategy of operators that have none of their own."""
        return self._strategy

    @property
    def table(self) -> StateTable:
        """The state table of the graph as it is now."""
        if self._table is None:
            successors = {node.id: tuple(after.id for after in node.successors) for node in self}
            strategies = {node.id: self._strategies.get(node.id, self._strategy) for node in self}
            self._table = build_state_table(successors, strategies, self._breaks)
        return self._table

    def schedule(self, strategy: str, *ids: str) -> None:
        """Set the strategy of these operators; without any, of the whole graph."""
        if not ids:
            self._strategy = strategy
        self._strategies = {**self._strategies, **dict.fromkeys(ids, strategy)} if ids else {}
        self._table = None

    def break_after(self, id_: str, broken: bool = True) -> None:
        """Set a virtual break node behind an operator, or remove it."""
        (self._breaks.add if broken else self._breaks.discard)(id_)
        self._table = None

    def run_settings(self, id_: str) -> RunSettings:
        """The strategy of an operator, None if it has none of its own, and whether a break node follows."""
        return {"strategy": self._strategies.get(id_), "broken": id_ in self._breaks}

    def restore_settings(self, id_: str, settings: RunSettings) -> None:
        """Schedule an operator as in a snapshot."""
        if settings["strategy"] is not None:
            self.schedule(settings["strategy"], id_)
        if settings["broken"]:
            self.break_after(id_)

    def list_upstream(self, node: Node) -> list[Node]:
        """A node and all nodes upstream of it, producers first."""
        found = {node}
        for other in reversed(list(self)):
            if other in found:
                found.update(other.predecessors)
        return [other for other in self if other in found]
