"""The source operator: puts the rows of a stream in order, up to its frontier.

Law: a late row (see `lateness`) goes to the late output and nowhere else. Every other row is written exactly once, when
the frontier has reached it. Rows are written in the order (time, arrival). The frontier rises with the rows, or by
`advance`. State: the rows between the frontier and the newest row.

A source with a clock can also raise its frontier on demand, by an Enabling Time-Stamp: if it runs with nothing to
release, the frontier becomes what its declaration allows (`compute_clock_frontier`). Rows of a latent stream have no
time until they are released.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.cql import Stream
from penstock.ops.changelog import as_batch, as_table
from penstock.ops.ingest import TimeScan
from penstock.ops.lateness import find_frontier, mark_late, stamp_times
from penstock.ops.protocol import Changes, Outlet, SavedState, StreamRows, as_stream_rows, concat
from penstock.ops.rejects import RejectedRows
from penstock.ops.time_merge import clamp_time
from penstock.state import ALWAYS, FOREVER, I64, scan_times


class SourceOperator:
    """Writes the rows of one stream into the graph."""

    failure: None = None
    """It does not stop."""

    def __init__(self, id_: str, stream: Stream, outlet: Outlet) -> None:
        self.id = id_
        self.stream = stream
        self.frontier = int(ALWAYS)
        self.arrival_count = 0
        self.late = RejectedRows(stream.schema)
        self.dead_letters = RejectedRows(stream.schema)
        self._outlet = outlet
        self._released_frontier = int(ALWAYS)
        self._held_batches: list[StreamRows] = []
        self._scanned: tuple[StreamRows, int, bool] | None = None
        """The last batch that arrived, its newest time, and whether its times ascend."""

    @property
    def outlet(self) -> Outlet:
        """Where it writes its rows."""
        return self._outlet

    def feed(self, times: I64, columns: Mapping[str, pa.Array], scanned: TimeScan | None = None) -> None:
        """Take in rows as they arrive, in any order. `scanned`: what is known of their times."""
        first, self.arrival_count = self.arrival_count, self.arrival_count + times.size
        batch = StreamRows(times, columns, None, np.arange(first, self.arrival_count))
        oldest, newest, ascending = scanned or scan_times(times)
        if oldest < self.frontier:
            late = mark_late(times, self.frontier)
            self.late.add(batch.take(np.flatnonzero(late)).columns, "late")
            batch = batch.take(np.flatnonzero(~late))
        if batch.times.size:
            self._held_batches.append(batch)
            self._scanned = batch, newest, ascending
            self.advance(find_frontier(self.stream, newest))

    def advance(self, frontier: int) -> None:
        """Raise the frontier: no row before it will come."""
        self.frontier = max(self.frontier, frontier)

    def has_work(self) -> bool:
        return self.frontier > self._released_frontier or bool(
            self._held_batches and self._mask_ready(self._held_batches[-1]).any()
        )

    def run(self, budget: int) -> int:  # noqa: ARG002 - all complete rows leave at once; readers take as many as they can
        held = self.held_rows()
        self._held_batches = []
        released = 0
        if held is not None:
            newest, ascending = self._find_order(held)
            if newest > self.frontier:
                ready = self._mask_ready(held)
                self._held_batches = [held.take(np.flatnonzero(~ready))]
                held = held.take(np.flatnonzero(ready))
            if not ascending:
                held = held.take(np.argsort(held.times, kind="stable"))
            self._outlet.write(self.check_rows(held))
            released = held.times.size
        self._released_frontier = self.frontier
        self._outlet.advance(self.frontier)
        return released

    def _find_order(self, held: StreamRows) -> tuple[int, bool]:
        """The newest time of the rows that are held, and whether they are in temporal order."""
        known, self._scanned = self._scanned, None
        if known is not None and known[0] is held:
            return known[1:]
        _, newest, ascending = scan_times(held.times)
        return newest, ascending

    def check_rows(self, rows: StreamRows) -> StreamRows:
        """The rows that are written, of those that the frontier has reached, in temporal order."""
        return rows

    def _mask_ready(self, batch: StreamRows) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return batch.times <= self.frontier

    def metrics(self) -> dict[str, object]:
        return {
            "arrived": self.arrival_count,
            "held": sum(len(batch) for batch in self._held_batches),
            "late": self.late.count,
            "dead": self.dead_letters.count,
            "frontier": self.frontier,
        }

    def held_rows(self) -> StreamRows | None:
        """The rows that are not written yet, in the order of their arrival."""
        return concat(self._held_batches) if self._held_batches else None

    @property
    def held_batches(self) -> Sequence[StreamRows]:
        """The rows that are not written yet, as they came."""
        return self._held_batches

    def holds_rows(self) -> bool:
        return bool(self._held_batches)

    def find_newest_time(self) -> int:
        return clamp_time(self.frontier + self.stream.lateness)

    def dump(self) -> SavedState:
        values = {"frontier": self.frontier, "arrived": self.arrival_count}
        counts = {"late": self.late.count, "dead": self.dead_letters.count}
        tables = {"late": self.late.with_reasons(), "dead": self.dead_letters.with_reasons()}
        held = self.held_rows()
        return SavedState({**values, **counts}, tables if held is None else {**tables, "held": as_table(held)})

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        self._held_batches = [as_stream_rows(as_batch(saved.tables["held"]))] if "held" in saved.tables else []
        self.frontier = saved.values["frontier"]  # the first run writes it to the arc, after the rows that are held
        self.arrival_count = saved.values["arrived"]
        for rejects, name in ((self.late, "late"), (self.dead_letters, "dead")):
            rejects.extend(saved.tables[name])
            rejects.count = saved.values[name]
        return None


TickClock = Callable[[], int]


def compute_clock_frontier(stream: Stream, now: int, last_arrival: int) -> int:
    """The time before which no row of the stream will come, by a clock; `last_arrival`: when the last row came.

    For a stream that the engine stamps this is the time now. For an external stream it is now less the declared skew,
    or, if no row came for `idle_after`, now less `idle_after`.
    """
    if stream.timestamps != "external":
        return now
    promises = [int(ALWAYS)]
    if stream.skew:
        promises.append(now - stream.skew)
    if stream.idle_after is not None and now - last_arrival >= stream.idle_after:
        promises.append(now - stream.idle_after)
    return max(promises)


class ClockedSource(SourceOperator):
    """A stream whose frontier a clock can raise. Rows of an internal stream are stamped when they arrive."""

    def __init__(self, id_: str, stream: Stream, outlet: Outlet, clock: TickClock) -> None:
        super().__init__(id_, stream, outlet)
        self._clock = clock
        self._last_arrival = clock()

    def feed(self, times: I64, columns: Mapping[str, pa.Array], scanned: TimeScan | None = None) -> None:
        self._last_arrival = self._clock()
        if self.stream.timestamps == "internal":
            times, columns = self._stamp(columns)
            scanned = None
        super().feed(times, columns, scanned)

    def run(self, budget: int) -> int:
        if not self.has_work():
            self.advance(self._compute_clock_frontier())
        return super().run(budget)

    def can_advance_to(self, time: int) -> bool:
        return self.frontier <= time <= (able := self._compute_clock_frontier()) and able > self.frontier

    def next_timer(self) -> int | None:
        return min(int(batch.times.min()) for batch in self._held_batches) if self._held_batches else None

    def _compute_clock_frontier(self) -> int:
        return compute_clock_frontier(self.stream, self._clock(), self._last_arrival)

    def _stamp(self, columns: Mapping[str, pa.Array]) -> tuple[I64, dict[str, pa.Array]]:
        """The columns with the current time in the time column."""
        rows = len(next(iter(columns.values())))
        times = stamp_times(np.full(rows, self._clock()), self.frontier)
        return times, {**columns, self.stream.time: pa.array(times).cast(self.stream.time_type)}


class LatentSource(ClockedSource):
    """A stream whose rows are stamped when they are released, as many as fit in a turn."""

    def feed(self, times: I64, columns: Mapping[str, pa.Array], scanned: TimeScan | None = None) -> None:  # noqa: ARG002
        numbers = np.arange(self.arrival_count, self.arrival_count + times.size)
        self.arrival_count += times.size
        if times.size:
            self._held_batches.append(StreamRows(times, columns, None, numbers))

    def has_work(self) -> bool:
        return bool(self._held_batches) or super().has_work()

    def find_newest_time(self) -> int:
        return int(FOREVER)  # rows that are held have no time yet

    def run(self, budget: int) -> int:
        held = self.held_rows()
        if held is None:
            return super().run(budget)
        taken = held.slice(0, budget)
        self._held_batches = [held.slice(budget, len(held))] if len(held) > budget else []
        times, columns = self._stamp(taken.columns)
        self._outlet.write(StreamRows(times, columns, None, taken.numbers))
        self.advance(int(times[0]))
        self._outlet.advance(self.frontier)
        self._released_frontier = self.frontier
        return len(taken)
