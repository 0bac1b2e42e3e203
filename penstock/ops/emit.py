"""From a changing answer to a stream: ISTREAM, DSTREAM, RSTREAM, EMIT CHANGES, and derived streams.

Law: ISTREAM writes each row when it enters the answer, DSTREAM when it leaves it. EMIT CHANGES writes both; of one
instant, rows that leave come first. EMIT ON WINDOW CLOSE writes the row that a group has until the end of its window,
at that end. RSTREAM writes, at every instant at
which a row enters or leaves, all rows of the answer at that instant. All read changes in temporal order; RSTREAM needs
whole instants. A query that writes no ends needs no ISTREAM. A derived stream has the rows of its query with their
times in the column `_ts`, numbered in the order in which they become certain.
State: RSTREAM keeps the answer. Cost: RSTREAM O(output), the others O(changes).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.cql import Stream
from penstock.ops.operator_id import make_stream_id
from penstock.ops.protocol import (
    Batch,
    Changes,
    FrontierBypass,
    Inlet,
    Outlet,
    QueryOperator,
    SavedState,
    StreamRows,
    as_changes,
    concat,
    sort_changes,
)
from penstock.ops.time_merge import pass_frontier
from penstock.state import as_times


class BatchMapper(QueryOperator, FrontierBypass):
    """An operator that maps every batch to another."""

    def __init__(self, id_: str, inlet: Inlet, outlet: Outlet) -> None:
        self.id = id_
        self._inlet = inlet
        self._outlet = outlet
        self._emitted = 0

    def has_work(self) -> bool:
        return self._inlet.next_time() is not None

    def run(self, budget: int) -> int:
        done = 0
        for batch in self._inlet.take_batches(budget):
            passed = self._map_batch(batch)
            self._emitted += len(passed)
            self._outlet.write(passed)
            done += len(batch)
        pass_frontier(self._inlet, self._outlet)
        return done

    def metrics(self) -> dict[str, object]:
        return {"emitted": self._emitted}

    @abstractmethod
    def _map_batch(self, batch: Batch) -> Batch:
        """The rows that a batch becomes."""


class IStreamOperator(BatchMapper):
    """Rows that enter the answer."""

    def _map_batch(self, batch: Batch) -> Batch:
        changes = as_changes(batch)
        rows = changes.take(np.flatnonzero(changes.signs > 0))
        return Batch(rows.times, rows.columns)


class DStreamOperator(BatchMapper):
    """Rows that leave the answer."""

    def _map_batch(self, batch: Batch) -> Batch:
        changes = as_changes(batch)
        rows = changes.take(np.flatnonzero(changes.signs < 0))
        return Batch(rows.times, rows.columns)


class EmitChangesOperator(BatchMapper):
    """All changes of the answer, with `_op`: '+' where a row enters, '-' where it leaves."""

    def _map_batch(self, batch: Batch) -> Batch:
        changes = sort_changes(as_changes(batch))
        signs = pa.DictionaryArray.from_arrays(pa.array((changes.signs < 0).astype(np.int8)), ["+", "-"])
        return Batch(changes.times, {**changes.columns, "_op": signs.dictionary_decode()})


class WindowCloseOperator(BatchMapper):
    """Rows that leave the answer at the end of their window, which is their last column."""

    def _map_batch(self, batch: Batch) -> Batch:
        changes = as_changes(batch)
        *names, close = changes.columns
        ends = changes.columns[close].cast(pa.int64()).to_numpy(zero_copy_only=False)
        rows = changes.take(np.flatnonzero((changes.signs < 0) & (changes.times == ends)))
        return Batch(rows.times, {name: rows.columns[name] for name in names})


class RStreamOperator(BatchMapper):
    """The whole answer whenever it changes."""

    def __init__(self, id_: str, inlet: Inlet, outlet: Outlet) -> None:
        super().__init__(id_, inlet, outlet)
        self._current_rows: Changes | None = None

    def metrics(self) -> dict[str, object]:
        return {"answer_rows": 0 if self._current_rows is None else len(self._current_rows), **super().metrics()}

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        if current is not None:
            self._current_rows = _sort_by_number(current[0])
        return None

    def _map_batch(self, batch: Batch) -> Batch:
        changes = as_changes(batch)
        rows = changes.take(np.flatnonzero(changes.signs > 0))
        rows = _sort_by_number(rows if self._current_rows is None else concat([self._current_rows, rows]))
        leaving = np.flatnonzero(changes.signs < 0)
        instants = np.unique(changes.times)
        first = np.searchsorted(instants, rows.times)
        last = np.full(len(rows), instants.size)
        places = np.searchsorted(rows.numbers, changes.numbers[leaving])
        last[places] = np.searchsorted(instants, changes.times[leaving])
        spans = last - first
        chosen = np.repeat(np.arange(len(rows)), spans)
        within = np.arange(chosen.size) - np.repeat(np.cumsum(spans) - spans, spans)
        at = first[chosen] + within
        order = np.argsort(at, kind="stable")
        staying = np.ones(len(rows), np.bool_)
        staying[places] = False
        self._current_rows = rows.take(np.flatnonzero(staying))
        return Batch(instants[at[order]], rows.take(chosen[order]).columns)


def _sort_by_number(rows: Changes) -> Changes:
    return rows if np.all(np.diff(rows.numbers) > 0) else rows.take(np.argsort(rows.numbers, kind="stable"))


class DerivedStreamOperator(BatchMapper):
    """The results of a query as a stream, which other queries read like a source."""

    def __init__(self, stream: Stream, inlet: Inlet, outlet: Outlet) -> None:
        super().__init__(make_stream_id(stream.name), inlet, outlet)
        self.stream = stream
        self.arrival_count = 0

    def metrics(self) -> dict[str, object]:
        return {"arrived": self.arrival_count, "frontier": self._inlet.frontier}

    def holds_rows(self) -> bool:
        return False

    def find_newest_time(self) -> int:
        return self._outlet.frontier

    def dump(self) -> SavedState:
        return SavedState({"arrived": self.arrival_count})

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        self.arrival_count = saved.values["arrived"]
        return None

    def _map_batch(self, batch: Batch) -> Batch:
        numbers = np.arange(self.arrival_count, self.arrival_count + len(batch))
        self.arrival_count += len(batch)
        names = (name for name in self.stream.schema.names if name != self.stream.time)
        columns = dict(zip(names, batch.columns.values(), strict=True))
        columns[self.stream.time] = as_times(batch.times, self.stream.time_type)
        return StreamRows(batch.times, columns, None, numbers)
