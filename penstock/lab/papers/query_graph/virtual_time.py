"""Virtual time: the same graph and the same cycle on a clock that moves only by the cost of the work done.

A step of the cycle costs what `cost` says; what arrives meanwhile is delivered before the next step, stamped with the
instant of its arrival. When nothing moves the clock jumps to the next arrival. So latencies are exact and repeatable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from penstock.graph.buffers import Reader
from penstock.graph.graph import Graph, Node
from penstock.graph.scheduler import GraphScheduler

StepCost = Callable[[Node, int], int]


@dataclass(frozen=True)
class Event:
    """Something from outside, at an instant: tuples arrive, a heartbeat is sent."""

    at: int
    action: Callable[[], object] = field(compare=False)


class VirtualRunner:
    """A graph run on a virtual clock. `out` keeps (instant it left, its timestamp) of every result."""

    def __init__(self, graph: Graph, sink: Reader, cost: StepCost, batch: int = 1) -> None:
        self.now = 0
        self.results: list[tuple[int, int]] = []
        self._sink = sink
        self._cost = cost
        self._scheduler = GraphScheduler(graph, batch, self._on_step)
        self._events: list[Event] = []
        self._arriving: int | None = None

    def clock(self) -> int:
        """For sources: the instant an arrival is delivered at, else now."""
        return self.now if self._arriving is None else self._arriving

    def run_events(self, events: Iterable[Event]) -> None:
        """Let events happen and run until nothing moves any more."""
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
