"""The source operator: a stream's tuples put in order, as far as its frontier says they are complete.

Law: a tuple that arrives before the stream's frontier is late: it goes to the late output and nowhere else. Every other
tuple is written exactly once, when the frontier has reached it; tuples are written in the order (time, arrival).
The frontier is judged at the start of a push, so that the order of rows inside a push does not matter; it rises to the
largest time seen less the allowed lateness, or by `advance`. State: the tuples between the frontier and the newest.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.cql.catalog import Stream
from penstock.ops.operator import Batch, Outlet, concat
from penstock.ops.rejects import Rejects
from penstock.state.kernels import ALWAYS, I64


class SourceOperator:
    """One stream's entry into the graph."""

    def __init__(self, id_: str, stream: Stream, outlet: Outlet) -> None:
        self.id = id_
        self.stream = stream
        self.frontier = int(ALWAYS)
        self.arrived = 0
        self.late = Rejects(stream.schema)
        self.dead = Rejects(stream.schema)
        self._outlet = outlet
        self._released = int(ALWAYS)
        self._held: list[Batch] = []

    def feed(self, times: I64, columns: Mapping[str, pa.Array]) -> None:
        """Tuples as they arrive, in any order."""
        numbers = np.arange(self.arrived, self.arrived + times.size)
        self.arrived += times.size
        batch = Batch(times, columns, numbers=numbers)
        late = times < self.frontier
        if late.any():
            self.late.add(batch.take(np.flatnonzero(late)).columns, "late")
            batch = batch.take(np.flatnonzero(~late))
        if len(batch):
            self._held.append(batch)
            self.advance(int(batch.times.max()) - self.stream.lateness)

    def advance(self, frontier: int) -> None:
        """No tuple before `frontier` will come."""
        self.frontier = max(self.frontier, frontier)

    def more(self) -> bool:
        return self.frontier > self._released or bool(self._held and self._ready(self._held[-1]).any())

    def run(self, budget: int) -> int:  # noqa: ARG002 - what is complete leaves at once; readers take what they can
        held = self.held()
        self._held = []
        released = 0
        if held is not None:
            ready = self._ready(held)
            if not ready.all():
                self._held = [held.take(np.flatnonzero(~ready))]
                held = held.take(np.flatnonzero(ready))
            if np.any(np.diff(held.times) < 0):
                held = held.take(np.argsort(held.times, kind="stable"))
            self._outlet.write(held)
            released = len(held)
        self._released = self.frontier
        self._outlet.advance(self.frontier)
        return released

    def _ready(self, batch: Batch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return batch.times <= self.frontier

    def metrics(self) -> dict[str, object]:
        return {
            "arrived": self.arrived,
            "held": sum(len(batch) for batch in self._held),
            "late": self.late.count,
            "dead": self.dead.count,
            "frontier": self.frontier,
        }

    def held(self) -> Batch | None:
        """The tuples not yet written, in the order of their arrival."""
        return concat(self._held) if self._held else None

    def revive(self, held: Batch | None, frontier: int, arrived: int) -> None:
        """Go on where a snapshot stopped."""
        self._held = [] if held is None else [held]
        self.frontier = frontier  # written to the arc with the first run, after the tuples that are held
        self.arrived = arrived
