"""The execution cycle: run the current operator, select the next by its row of the state table, until nothing moves.

Law: the cycle ends only when no operator has work, and no operator can enable one that idles. Strategies and break
nodes change the order of the work, never the results. The graph may be edited between any two steps: the cycle
continues with the new table.

A turn has a fixed cost. While nobody gets results during the run, an operator therefore waits until those that it reads
have no work, or until many turns of rows wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.graph.graph import Graph, Node
from penstock.graph.rules import select_next
from penstock.graph.state_table import StateRow, StateTable, fork_name
from penstock.graph.timestamps import can_idle, find_enabler, list_reached

StepObserver = Callable[[Node, int], None]

_KEPT_SETS = 256
"""For how many sets of sources it is kept what they affect."""
_HELD_TURNS = 16
"""An operator does not wait for more rows when so many turns of rows wait: buffers stay small."""


@dataclass(frozen=True)
class _Topology:
    """What the cycle needs to know of the graph, computed once for each state table."""

    table: StateTable
    places: Mapping[str, int] = field(default_factory=dict)
    """All operators, producers first."""
    sources: list[Node] = field(default_factory=list)
    """The operators that read no other."""
    work_checks: Mapping[str, Callable[[], bool]] = field(default_factory=dict)
    """By operator: whether it has work."""
    affected: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By operator: those that may have other work after it ran."""
    idle_candidates: list[str] = field(default_factory=list)
    """The operators that can wait for a time that a source knows."""
    producers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By operator: those that it reads."""
    _affected_by: dict[tuple[str, ...], list[str]] = field(default_factory=dict)
    """Those that may have other work after some operators ran."""

    def list_affected(self, ran: tuple[str, ...]) -> list[str]:
        """The operators that may have other work after some sources ran."""
        if ran not in self._affected_by:
            if len(self._affected_by) > _KEPT_SETS:
                self._affected_by.clear()
            self._affected_by[ran] = list(dict.fromkeys(state for each in ran for state in self.affected[each]))
        return self._affected_by[ran]

    @classmethod
    def from_graph(cls, graph: Graph) -> _Topology:
        return cls(
            graph.table,
            {state: place for place, state in enumerate(r.state for r in graph.table.rows if not r.is_fork)},
            [node for node in graph if not node.readers],
            {node.id: node.operator.has_work for node in graph},
            {node.id: (node.id, *list_reached(node)) for node in graph},
            [node.id for node in graph if can_idle(node)],
            {node.id: frozenset(before.id for before in node.predecessors) for node in graph},
        )


class GraphScheduler:
    """Runs a graph. `batch`: how many rows an operator takes per turn; `on_step` is called after every step."""

    def __init__(self, graph: Graph, batch: int, on_step: StepObserver | None = None) -> None:
        self.on_step = on_step
        self.deliver_after: Mapping[str, Callable[[], object]] = {}
        """By operator: what delivers the results that its steps have written."""
        self._graph = graph
        self._batch = batch
        self._next_turn = 0
        self._topology = _Topology(StateTable(()))
        self._ready: set[str] = set()
        self._prompt = True
        """Whether somebody gets results during the run, so that operators do not wait for more rows."""
        self.ran: dict[str, Node] = {}
        """The operators that ran in the last run, by their ids."""

    def run(self, *, refresh: bool = True) -> bool:
        """Run until nothing moves. All sources run first, so that merges see all rows that arrived at once.

        `refresh`: operators may have got work other than from sources since the last run. Without it, and with the same
        graph, only operators behind sources that run are looked at. Returns whether all of them were.
        """
        refresh = refresh or self.on_step is not None or self._topology.table is not self._graph.table
        if self._topology.table is not self._graph.table:
            self._topology = _Topology.from_graph(self._graph)
        self.ran = {}
        self._prompt = self.on_step is not None or bool(self.deliver_after)
        for node in self._topology.sources:
            if node.operator.has_work():
                self._execute(node)
        if refresh:
            self._refresh_all()
        else:
            checks = self._topology.work_checks
            self._ready = {state for state in self._topology.list_affected(tuple(self.ran)) if checks[state]()}
        state = self._choose_ready()
        while state is not None:
            self._execute(self._graph[state])
            self._refresh_after(state)
            state = self._select_next(state) or self._choose_ready()
        return refresh

    def _execute(self, node: Node) -> None:
        operator = node.operator
        self.ran[operator.id] = node
        done = operator.run(self._batch)
        if self.on_step is not None or self.deliver_after:
            self._show_step(node, done)

    def _show_step(self, node: Node, done: int) -> None:
        if self.on_step is not None:
            self.on_step(node, done)
        if node.id in self.deliver_after:
            self.deliver_after[node.id]()

    def _select_next(self, state: str) -> str | None:
        """The next operator by the rule of the current one; None if that was removed, or reaches no work."""
        table = self._topology.table
        if (
            state not in table.by_state
            or not self._ready
            or not (self._topology.idle_candidates or self._ready & table.reachable[state])
        ):
            return None
        return select_next(table.by_state[state], self)

    def _choose_ready(self) -> str | None:
        """The next part of the graph, in turn, that has work; else an operator that enables one that idles."""
        if not self._ready:
            return next(filter(None, map(self.find_enabler, self._topology.idle_candidates)), None)
        places, turn = self._topology.places, self._next_turn
        if len(self._ready) == 1:  # it waits for no other
            (found,) = self._ready
        else:
            found = min(filter(self.has_work, self._ready), key=lambda state: (places[state] < turn, places[state]))
        self._next_turn = places[found] + 1
        return found

    def _refresh_after(self, state: str) -> None:
        """Update which operators have work after a step; an `on_step` function may have changed anything."""
        if self.on_step is not None:
            self._refresh_all()
        else:
            for other in self._topology.affected[state]:
                (self._ready.add if self._topology.work_checks[other]() else self._ready.discard)(other)

    def _refresh_all(self) -> None:
        """Update everything: rows may have arrived, the graph may have been edited."""
        if self._topology.table is not self._graph.table:
            self._topology = _Topology.from_graph(self._graph)
        self._ready = {state for state, has_work in self._topology.work_checks.items() if has_work()}

    # ── what the rules see ───────────────────────────────────────────────────────────────────────────────────────

    def row(self, state: str) -> StateRow:
        return self._topology.table.by_state[state]

    def has_work(self, state: str) -> bool:
        return state in self._ready and (self._prompt or not self._waits_for_rows(state))

    def find_enabler(self, state: str) -> str | None:
        found = find_enabler(self._graph[state]) if state in self._topology.idle_candidates else None
        return None if found is None else found.id

    def find_runnable(self, state: str) -> str | None:
        if state in self._ready:
            return state if self.has_work(state) else None
        return self.find_enabler(state)

    def _waits_for_rows(self, state: str) -> bool:
        """Whether operators that it reads have work, and few rows wait for it."""
        if self._ready.isdisjoint(self._topology.producers[state]):
            return False
        return sum(reader.waiting() for reader in self._graph[state].readers) < _HELD_TURNS * self._batch

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
