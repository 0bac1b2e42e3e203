"""The three kinds of sinks, by who writes.

- A `DriverSink` gets the rows of a query in the driver, as one table per micro-batch, up to a number of bytes.
- A `TaskSink` is written by the Spark tasks that made the rows. The driver gets their messages and commits.
- A `FrameSink` gets a DataFrame, for formats that Spark writes best.

Law: a micro-batch that is written again, after a failure or a restart, leaves the sink as if it had been written once.
A class says how it keeps this law, or what its user must do for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import pyarrow as pa

from penstock.cql import Connector, redact
from penstock.errors import PenstockError, QueryError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DRIVER_LIMIT = 256 * 2**20
"""The bytes of a micro-batch that a sink in the driver takes unless it has a `limit` of its own."""


class DriverSink(Protocol):
    """A destination that the driver writes. It may have an attribute `limit`: the bytes of a micro-batch it takes."""

    def open(self, run: str, name: str, schema: pa.Schema) -> None:
        """Called once before the first micro-batch: the id of the run, the name of the query, the columns."""

    def write(self, batch: int, rows: pa.Table) -> None:
        """Write the rows of a micro-batch, in temporal order.

        It is called in the first micro-batch of a run, if need be with no rows, then only with rows: the first
        micro-batch may be the repetition of one that had other rows. Calls of one run come from one thread.
        """


@dataclass(frozen=True)
class Attempt:
    """An attempt of a task to write: the micro-batch, the cell, and a token that no other attempt has."""

    batch: int
    cell: int
    token: str


class TaskSink(ABC):
    """A destination that tasks write. It is pickled and sent to them after `open`.

    Spark may run a task several times, also at the same time, and may repeat a micro-batch. So `write` puts the rows
    aside under the token of the attempt, and `commit` makes exactly those visible that the messages name.
    """

    def open(self, run: str, name: str, schema: pa.Schema) -> None:  # noqa: B027 - a sink may need none of it
        """Called in the driver before the first micro-batch: the id of the run, the name of the query, the columns."""

    @abstractmethod
    def write(self, attempt: Attempt, rows: Iterator[pa.RecordBatch]) -> Any:
        """Write the rows of a cell, in temporal order, in a task. Returns a message of JSON values for `commit`."""

    @abstractmethod
    def commit(self, batch: int, messages: Sequence[Any]) -> None:
        """Make the rows of a micro-batch visible, in the driver. The messages are in the order of their cells.

        In the first micro-batch of a run there may be none: what an earlier attempt left of it is then removed. Later
        it is called only with messages. It may be called again for the same micro-batch, with other messages.
        """


CELL_COLUMN, SEQUENCE_COLUMN = "_penstock_cell", "_penstock_sequence"


class FrameSink(ABC):
    """A destination that Spark writes."""

    numbered: bool = False
    """Whether the frame also has the cell of each row, and its place among the sorted rows of the cell."""

    def open(self, run: str, name: str, schema: pa.Schema) -> None:  # noqa: B027 - a sink may need none of it
        """Called once before the first micro-batch: the id of the run, the name of the query, the columns."""

    @abstractmethod
    def write(self, frame: DataFrame, batch: int) -> None:
        """Write the rows of a micro-batch. A repeated micro-batch has the same number."""


Sink = DriverSink | TaskSink | FrameSink


def as_sink(what: object) -> Sink:
    """The argument as a sink; a QueryError says how to make one."""
    methods = ("open", "write", "commit") if isinstance(what, TaskSink) else ("open", "write")
    if isinstance(what, type) or not all(callable(getattr(what, method, None)) for method in methods):
        raise QueryError("NOT_A_SINK", f"{what!r} is not a sink; use ps.sinks, such as ps.sinks.parquet(path)")
    return cast(Sink, what)


def sink_connector(sink: Sink) -> Connector | None:
    """The description from which `from_connector` makes such a sink again; None if there is none.

    It is written to the checkpoint, so a sink whose options contain secrets has none.
    """
    found = getattr(sink, "connector", None)
    return found if isinstance(found, Connector) else None


def open_sink(sink: Sink, run: str, name: str, schema: pa.Schema) -> None:
    """Open a sink; its errors become SINK_FAILED."""
    try:
        sink.open(run, name, schema)
    except Exception as error:
        message = f"the sink of {name} cannot be opened: {type(error).__name__}: {redact(str(error))}"
        raise PenstockError("SINK_FAILED", message, query=name) from error
