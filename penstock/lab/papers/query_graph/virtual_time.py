"""Virtual time: the graph and the cycle of the engine, on a clock that moves only by the cost of each step.

`cost` gives the cost of a step. Events during a step are delivered before the next step, with the instant of their
arrival. When no operator has work, the clock moves to the next event. So latencies are exact and repeatable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from penstock.graph import Graph, GraphScheduler, Node, Reader

StepCost = Callable[[Node, int], int]


@dataclass(frozen=True)
class Event:
    """An external event at an instant: tuples arrive, or a heartbeat is sent."""

    at: int
    action: Callable[[], object] = field(compare=False)


class VirtualRunner:
    """Runs a graph on a virtual clock. `results` has the instant at which each result left, and its timestamp."""

    def __init__(self, graph: Graph, sink: Reader, cost: StepCost, batch: int = 1) -> None:
        self.now = 0
        self.results: list[tuple[int, int]] = []
        self._sink = sink
        self._cost = cost
        self._scheduler = GraphScheduler(graph, batch, self._on_step)
        self._events: list[Event] = []
        self._arriving: int | None = None

    def clock(self) -> int:
        """The clock of sources: the instant of the event that is delivered, otherwise now."""
        return self.now if self._arriving is None else self._arriving

    def run_events(self, events: Iterable[Event]) -> None:
        """Deliver the events and run until no operator has work."""
        self._events = sorted(events, key=lambda event: event.at, reverse=True)
        self._scheduler.run()
        while self._events:
            self.now = max(self.now, self._events[-1].at)
            self._deliver()
            self._scheduler.run()

    def _on_step(self, node: Node, done: int) -> None:
        self.now += self._cost(node, done)
        for batch in self._sink.take(self._sink.waiting()):
            self.results += ((self.now, int(time)) for time in batch.times)
        self._deliver()

    def _deliver(self) -> None:
        while self._events and self._events[-1].at <= self.now:
            event = self._events.pop()
            self._arriving = event.at
            event.action()
        self._arriving = None
