"""The execution cycle: run the current operator, select the next by its row of the state table, until nothing moves.

Law: the cycle ends only when no operator can do anything, and none that idles can be helped. Strategies and break nodes
change the order of the work, never the results. The graph may be edited between any two steps: the walk goes on by the
new table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.graph.graph import Graph, Node
from penstock.graph.rules import select
from penstock.graph.state_table import Row, Table, fork_name
from penstock.graph.timestamps import enabler, may_idle, reached_by

Watch = Callable[[Node, int], None]


class Cycle:
    """Runs a graph. `batch`: how many tuples an operator takes per turn; `watch` sees every step and its work."""

    def __init__(self, graph: Graph, batch: int, watch: Watch | None = None) -> None:
        self.watch = watch
        self._graph = graph
        self._batch = batch
        self._turn = 0
        self._table: Table | None = None

    def run(self) -> None:
        """Run until nothing moves. First all sources let in what has arrived, so that merges see all of it at once."""
        for node in list(self._graph):
            if not node.readers and node.operator.more():
                self._execute(node)
        self._look_around()
        state = self._scheduled()
        while state is not None:
            self._execute(self._graph[state])
            self._look(state)
            state = self._selected(state) or self._scheduled()

    def _execute(self, node: Node) -> None:
        done = node.operator.run(self._batch)
        if self.watch is not None:
            self.watch(node, done)

    def _selected(self, state: str) -> str | None:
        """By the rule in the row of the current state, unless it was taken out or there is nothing in its reach."""
        if state not in self._rows or not self._ready or not (self._idlers or self._ready & self._reach[state]):
            return None
        return select(self._rows[state], self)

    def _scheduled(self) -> str | None:
        """The next part of the graph, in turn, that has work; else what can help one that idles."""
        if not self._ready:
            return next(filter(None, map(self.enabler, self._idlers)), None)
        in_turn = self._states[self._turn :] + self._states[: self._turn]
        found = next(state for state in in_turn if state in self._ready)
        self._turn = self._states.index(found) + 1
        return found

    def _look(self, state: str) -> None:
        """See what a step changed; a watcher may have changed anything."""
        if self.watch is not None:
            self._look_around()
        else:
            for other in self._affected[state]:
                (self._ready.add if self._able[other]() else self._ready.discard)(other)

    def _look_around(self) -> None:
        """Look at everything afresh: tuples may have arrived, the graph may have been edited."""
        if self._table is not self._graph.table:
            self._table = self._graph.table
            self._rows = self._table.by_state
            self._reach = self._table.reach
            self._states = [row.state for row in self._table.rows if not row.fork]
            self._able = {node.id: node.operator.more for node in self._graph}
            self._affected = {node.id: (node.id, *reached_by(node)) for node in self._graph}
            self._idlers = [node.id for node in self._graph if may_idle(node)]
        self._ready = {state for state, able in self._able.items() if able()}

    # ── what the rules see ───────────────────────────────────────────────────────────────────────────────────────

    def row(self, state: str) -> Row:
        return self._rows[state]

    def more(self, state: str) -> bool:
        return state in self._ready

    def enabler(self, state: str) -> str | None:
        found = enabler(self._graph[state]) if state in self._idlers else None
        return None if found is None else found.id

    def moving(self, state: str) -> str | None:
        return state if state in self._ready else self.enabler(state)

    def furthest_behind(self, fork: Row) -> Sequence[str]:
        before = self._graph[fork.predecessors[0]]
        waiting = {
            state: sum(reader.waiting() for reader, node in self._graph[state].producers.items() if node is before)
            for state in fork.successors
        }
        return sorted(waiting, key=waiting.__getitem__, reverse=True)

    def holding_back(self, row: Row) -> str:
        if len(row.predecessors) == 1:
            return row.predecessors[0]
        registers: dict[str, int] = {}
        for reader, producer in self._graph[row.state].producers.items():
            state = producer.id if producer.id in row.predecessors else fork_name(producer.id)
            registers[state] = min(reader.frontier, registers.get(state, reader.frontier))
        return min(row.predecessors, key=registers.__getitem__)
