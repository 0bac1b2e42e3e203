"""The operator protocol: batches, arcs, and what operators offer to the graph and to the engine.

Batches flow along arcs. An operator reads its inlets, writes its outlet and never touches another operator. A frontier
flows along each arc too: no batch written later holds a row before it (the arc's time-stamp memory, TSM).

An operator that merges by time processes rows up to the lowest frontier of its inlets: `has_work` is true while a row
is not after it, or while it has risen since it was last passed on. All others read all rows that wait: they are marked
with `FrontierBypass`.

To add an operator: write its file with a class that has the methods of `Operator` and derives from `QueryOperator`, add
its place to `engine.compiler`, and test it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import pyarrow as pa

from penstock.cql import Stream
from penstock.errors import InternalError, QueryError
from penstock.expr import HIDDEN
from penstock.state import I64

I8 = np.ndarray[tuple[int], np.dtype[np.int8]]
END_TIME = f"{HIDDEN}end"
"""The column with the time at which a row will leave, of rows whose end is known when they enter."""


@dataclass
class Batch:
    """Rows in temporal order. Results have times and columns only; see `StreamRows` and `Changes` for the others."""

    times: I64
    columns: Mapping[str, pa.Array]
    signs: I8 | None = None
    numbers: I64 | None = None

    def __len__(self) -> int:
        return self.times.size

    def slice(self, start: int, stop: int) -> Self:
        return type(self)(
            self.times[start:stop],
            {name: column.slice(start, stop - start) for name, column in self.columns.items()},
            None if self.signs is None else self.signs[start:stop],
            None if self.numbers is None else self.numbers[start:stop],
        )

    def take(self, chosen: I64) -> Self:
        """The rows at positions."""
        indices = pa.array(chosen)
        return type(self)(
            self.times[chosen],
            {name: column.take(indices) for name, column in self.columns.items()},
            None if self.signs is None else self.signs[chosen],
            None if self.numbers is None else self.numbers[chosen],
        )


@dataclass
class StreamRows(Batch):
    """Rows of a stream. `numbers` are their arrival numbers: they tell equal rows apart."""

    signs: None = field()
    numbers: I64 = field()


@dataclass
class Changes(Batch):
    """Changes of an answer. `signs`: +1 where a row enters, -1 where it leaves.

    `numbers` tell equal rows apart: a row leaves with the number with which it entered.
    """

    signs: I8 = field()
    numbers: I64 = field()


B = TypeVar("B", bound=Batch)
_LONGEST_SPAN = 1 << 62
"""Twice a shorter span of times fits into 64 bits."""


def as_changes(batch: Batch) -> Changes:
    """A batch that was written by an operator that writes changes."""
    if isinstance(batch, Changes):
        return batch
    raise InternalError("NOT_CHANGES", f"an operator read {type(batch).__name__}, not changes")


def as_stream_rows(batch: Batch) -> StreamRows:
    """A batch that was written by the operator of a stream."""
    if isinstance(batch, StreamRows):
        return batch
    raise InternalError("NOT_STREAM_ROWS", f"an operator read {type(batch).__name__}, not rows of a stream")


def concat(batches: Sequence[B]) -> B:
    """One batch after another; all are of the same type and have the same columns."""
    if len(batches) == 1:
        return batches[0]
    first = batches[0]
    signs = [batch.signs for batch in batches if batch.signs is not None]
    numbers = [batch.numbers for batch in batches if batch.numbers is not None]
    return type(first)(
        np.concatenate([batch.times for batch in batches]),
        {name: pa.concat_arrays([batch.columns[name] for batch in batches]) for name in first.columns},
        np.concatenate(signs) if signs else None,
        np.concatenate(numbers) if numbers else None,
    )


def sort_changes(changes: Changes) -> Changes:
    """Changes in temporal order; within an instant, rows leave before others enter."""
    order = order_changes(changes.times, changes.signs)
    return changes if order is None else changes.take(order)


def order_changes(times: I64, signs: I8) -> I64 | None:
    """The places of changes in the order of `sort_changes`; None if they have it."""
    first = int(times.min(initial=0))
    if int(times.max(initial=0)) - first >= _LONGEST_SPAN:
        return np.lexsort((signs, times))
    key = 2 * (times - first) + (signs > 0)
    return None if (key[1:] >= key[:-1]).all() else np.argsort(key, kind="stable")


def merge_changes(ends: B | None, inserts: B | None) -> B | None:
    """Ends and inserts of rows as one batch in temporal order; within an instant, rows leave before others enter."""
    changes = [batch for batch in (ends, inserts) if batch is not None and len(batch)]
    if len(changes) < 2:
        return changes[0] if changes else None
    batch = concat(changes)
    return batch.take(np.argsort(batch.times, kind="stable"))


class Inlet(Protocol):
    """The reading end of an arc."""

    @property
    def frontier(self) -> int: ...
    def waiting(self) -> int:
        """How many rows were written and not read."""

    def unread(self) -> Batch | None:
        """The rows that wait, in order; None if none does."""

    def reads(self, outlet: Outlet) -> bool:
        """Whether the arc comes from this outlet."""

    def next_time(self) -> int | None:
        """The time of the next row, None if none waits."""

    def times(self, limit: int) -> I64:
        """The times of the next rows, at most `limit`."""

    def rewind(self, rows: int) -> None:
        """Move to before the last `rows` rows that were written."""

    def read(self, until: int) -> list[Batch]:
        """Consume all rows with a time of at most `until`."""

    def take(self, limit: int) -> list[Batch]:
        """Consume the next rows, at most `limit`."""

    def take_batches(self, limit: int) -> list[Batch]:
        """Consume the next batches as they were written, until they have `limit` rows.

        A writer of whole instants writes none in two batches, except that one may end with the instant with which the
        next begins: these stay together.
        """

    def fork(self) -> Inlet:
        """A second reader at the same position: the arc also keeps the rows that this one has not read."""

    def close(self) -> None:
        """Stop reading, so that the arc frees the rows."""


class Outlet(Protocol):
    """The writing end of an arc."""

    @property
    def frontier(self) -> int: ...
    def write(self, batch: Batch) -> None: ...
    def advance(self, frontier: int) -> None: ...


class Operator(Protocol):
    """A node of the query graph."""

    @property
    def id(self) -> str:
        """A name that is stable and unique in the graph, for metrics, `explain` and scheduling."""

    def run(self, budget: int) -> int:
        """Process about `budget` rows; returns the number of rows processed."""

    def has_work(self) -> bool:
        """Whether `run` can process something now."""

    def metrics(self) -> dict[str, object]: ...


@dataclass(frozen=True)
class SavedState:
    """The saved state of an operator: plain values and tables."""

    values: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    def with_values(self, **values: Any) -> SavedState:
        """The same state with more values."""
        return SavedState({**self.values, **values}, self.tables)


class QueryOperator:
    """What an operator of a query offers besides `Operator`: saved state, failure, completeness.

    The defaults are those of an operator without state. An operator that keeps state overrides `restore`, and `dump` if
    its state does not follow from the current rows of its inputs.
    """

    failure: QueryError | None = None
    """Why the operator stopped; None while it runs."""
    current_inputs: int | None = None
    """Of how many inputs, from the first, `restore` needs the current rows; None: of all."""

    def dump(self) -> SavedState:
        """The state that does not follow from the current rows of the inputs."""
        return SavedState()

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        """Continue from a dump; returns the current rows of the answer, None if they are not known.

        `current`: the current rows of the inputs that it needs, as of what the operator has read; None if one of them
        writes no ends, so that it does not keep them.
        """
        return None

    def find_complete_since(self, since: int) -> int:
        """The time from which on the output lacks no row, if the input lacks none from `since` on."""
        return since


@dataclass(frozen=True)
class OutputMode:
    """What an operator writes. `ends`: also rows that leave, with sign -1; `whole`: only whole instants.

    `current`: whether the reader asks for the current rows after a restart.
    `end_times`: a join adds the column `END_TIME`, with the time at which a row leaves.
    """

    ends: bool
    whole: bool
    current: bool = True
    end_times: bool = False

    @property
    def reads_ends(self) -> bool:
        """Whether it matters when a row leaves."""
        return self.ends or self.end_times


INSERTS = OutputMode(ends=False, whole=False)
"""Rows that enter, as soon as they are certain."""
CHANGES = OutputMode(ends=True, whole=True)
"""All changes of an instant at once."""


class StreamWriter(Operator, Protocol):
    """An operator that writes a declared stream, for queries to read: a source or a derived stream."""

    stream: Stream
    arrival_count: int
    """How many rows have arrived; the next one gets this number."""

    def holds_rows(self) -> bool:
        """Whether rows have arrived that are not written yet."""

    def find_newest_time(self) -> int:
        """A time not before that of any row that has arrived."""

    def dump(self) -> SavedState: ...
    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None: ...


class FrontierBypass:
    """Marks an operator with one inlet that neither needs nor changes time: frontiers bypass it.

    It writes no row before the frontier of its inlet once it has read all rows that wait there.
    """


@runtime_checkable
class TimerOperator(Protocol):
    """An operator that holds rows back until time passes: ends of rows, slides, rows out of order."""

    def next_timer(self) -> int | None:
        """The time that the frontiers of its inlets must reach before it writes the next row; None: it holds none."""


@runtime_checkable
class FrontierGenerator(Protocol):
    """An operator that can raise its frontier without rows: a source with a clock."""

    def can_advance_to(self, time: int) -> bool:
        """Whether `run` raises the frontier from `time` or before to `time` or after, without a new row."""
