"""The execution cycle: run the current operator, select the next by its row of the state table, until nothing moves.

Law: the cycle ends only when no operator can do anything, and none that idles can be helped. Strategies and break nodes
change the order of the work, never the results. The graph may be edited between any two steps: the walk goes on by the
new table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.graph.graph import Graph, Node
from penstock.graph.rules import select_next
from penstock.graph.state_table import StateRow, StateTable, fork_name
from penstock.graph.timestamps import can_idle, find_enabler, list_reached

StepObserver = Callable[[Node, int], None]


class GraphScheduler:
    """Runs a graph. `batch`: how many tuples an operator takes per turn; `watch` sees every step and its work."""

    def __init__(self, graph: Graph, batch: int, on_step: StepObserver | None = None) -> None:
        self.on_step = on_step
        self._graph = graph
        self._batch = batch
        self._next_turn = 0
        self._table: StateTable | None = None

    def run(self) -> None:
        """Run until nothing moves. First all sources let in what has arrived, so that merges see all of it at once."""
        for node in list(self._graph):
            if not node.readers and node.operator.has_work():
                self._execute(node)
        self._refresh_all()
        state = self._choose_ready()
        while state is not None:
            self._execute(self._graph[state])
            self._refresh_after(state)
            state = self._select_next(state) or self._choose_ready()

    def _execute(self, node: Node) -> None:
        done = node.operator.run(self._batch)
        if self.on_step is not None:
            self.on_step(node, done)

    def _select_next(self, state: str) -> str | None:
        """By the rule in the row of the current state, unless it was taken out or there is nothing in its reach."""
        if (
            state not in self._rows
            or not self._ready
            or not (self._idle_candidates or self._ready & self._reachable[state])
        ):
            return None
        return select_next(self._rows[state], self)

    def _choose_ready(self) -> str | None:
        """The next part of the graph, in turn, that has work; else what can help one that idles."""
        if not self._ready:
            return next(filter(None, map(self.find_enabler, self._idle_candidates)), None)
        in_turn = self._states[self._next_turn :] + self._states[: self._next_turn]
        found = next(state for state in in_turn if state in self._ready)
        self._next_turn = self._states.index(found) + 1
        return found

    def _refresh_after(self, state: str) -> None:
        """See what a step changed; a watcher may have changed anything."""
        if self.on_step is not None:
            self._refresh_all()
        else:
            for other in self._affected[state]:
                (self._ready.add if self._work_checks[other]() else self._ready.discard)(other)

    def _refresh_all(self) -> None:
        """Look at everything afresh: tuples may have arrived, the graph may have been edited."""
        if self._table is not self._graph.table:
            self._table = self._graph.table
            self._rows = self._table.by_state
            self._reachable = self._table.reachable
            self._states = [row.state for row in self._table.rows if not row.is_fork]
            self._work_checks = {node.id: node.operator.has_work for node in self._graph}
            self._affected = {node.id: (node.id, *list_reached(node)) for node in self._graph}
            self._idle_candidates = [node.id for node in self._graph if can_idle(node)]
        self._ready = {state for state, able in self._work_checks.items() if able()}

    # ── what the rules see ───────────────────────────────────────────────────────────────────────────────────────

    def row(self, state: str) -> StateRow:
        return self._rows[state]

    def has_work(self, state: str) -> bool:
        return state in self._ready

    def find_enabler(self, state: str) -> str | None:
        found = find_enabler(self._graph[state]) if state in self._idle_candidates else None
        return None if found is None else found.id

    def find_runnable(self, state: str) -> str | None:
        return state if state in self._ready else self.find_enabler(state)

    def list_lagging_readers(self, fork: StateRow) -> Sequence[str]:
        before = self._graph[fork.predecessors[0]]
        waiting = {
            state: sum(reader.waiting() for reader, node in self._graph[state].producers.items() if node is before)
            for state in fork.successors
        }
        return sorted(waiting, key=waiting.__getitem__, reverse=True)

    def find_lowest_input(self, row: StateRow) -> str:
        if len(row.predecessors) == 1:
            return row.predecessors[0]
        registers: dict[str, int] = {}
        for reader, producer in self._graph[row.state].producers.items():
            state = producer.id if producer.id in row.predecessors else fork_name(producer.id)
            registers[state] = min(reader.frontier, registers.get(state, reader.frontier))
        return min(row.predecessors, key=registers.__getitem__)
