"""The writer: a task writes the output of its cell to the sinks that tasks write, and passes on the rest as rows.

The state stage calls it, so results do not leave the process that made them. What leaves is a message for each sink,
and the rows of sinks that the driver or Spark writes. Their size is limited. Above the limit the cell sends the size
alone, and the driver ends the run with an error that says so.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import cloudpickle

from penstock.cql import redact
from penstock.errors import PenstockError
from penstock.spark.layout import Layout
from penstock.spark.sinks import DRIVER_LIMIT, Attempt, FrameSink, Sink, TaskSink
from penstock.spark.worker.cell_state import DEAD, RESULT, OutputKey, OutputRow, encode_rows
from penstock.spark.worker.setup import get_batch, get_task_property

SINKS_PROPERTY = "penstock.sinks"
WRITTEN, OVERSIZE = "written:", "oversize:"
"""Before the kind of an output row: its data is the message of a sink that a task wrote, or a size above the limit."""
FRAME_LIMIT = 2**30
"""The bytes of an output that a cell sends for a frame: Spark keeps all output rows of a cell in one Arrow batch."""
_BATCH_ROWS = 2**16


@dataclass(frozen=True)
class SentRows:
    """Rows are sent to Spark, for the driver or a frame, up to a number of bytes."""

    limit: int


Target = TaskSink | SentRows


def encode_targets(sinks: Mapping[OutputKey, Sink]) -> str:
    """Where tasks send each output, as the text of a local property."""
    targets: dict[OutputKey, Target] = {}
    for key, sink in sinks.items():
        if isinstance(sink, TaskSink):
            targets[key] = sink
        else:
            limit = FRAME_LIMIT if isinstance(sink, FrameSink) else getattr(sink, "limit", DRIVER_LIMIT)
            targets[key] = SentRows(limit)
    return base64.b64encode(cloudpickle.dumps(targets)).decode()  # type: ignore[no-untyped-call]


_decoded: tuple[str, dict[OutputKey, Target]] = ("", {})


def _decode_targets(text: str) -> dict[OutputKey, Target]:
    """The targets of a text; a worker keeps the last ones."""
    global _decoded  # noqa: PLW0603 - a cache of this worker
    if _decoded[0] != text:
        _decoded = text, pickle.loads(base64.b64decode(text))
    return _decoded[1]


class OutputWriter:
    """Writes the output of cells in a micro-batch. An output without a target is dropped: its query has ended."""

    def __init__(self, layout: Layout, batch: int, targets: Mapping[OutputKey, Target]) -> None:
        self._layout = layout
        self._batch = batch
        self._targets = targets

    @classmethod
    def for_task(cls, layout: Layout) -> OutputWriter | None:
        """The writer of this task; None if the pipeline has no sinks, as for a frame that users write."""
        text = get_task_property(SINKS_PROPERTY)
        return None if text is None else cls(layout, get_batch(), _decode_targets(text))

    def write(self, cell: int, token: str, output: Iterable[tuple[OutputKey, pa.Table]]) -> list[OutputRow]:
        """Write the tables of a cell. `token`: of the attempt; no other attempt has it."""
        attempt = Attempt(self._batch, cell, token)
        found: list[OutputRow] = []
        for key, table in output:
            target = self._targets.get(key)
            if isinstance(target, TaskSink):
                found.append(self._write_sink(key, target, attempt, table))
            elif target is not None:
                found += _send(cell, key, self._fit_columns(key, table), target)
        return found

    def _write_sink(self, key: OutputKey, sink: TaskSink, attempt: Attempt, table: pa.Table) -> OutputRow:
        kind, name = key
        batches = iter(self._fit_columns(key, table).to_batches(_BATCH_ROWS))
        try:
            data = json.dumps(sink.write(attempt, batches)).encode()
        except Exception as error:
            raise PenstockError("SINK_FAILED", describe_failure(key, attempt.batch, error)) from error
        return attempt.cell, WRITTEN + kind, name, table.num_rows, data

    def _fit_columns(self, key: OutputKey, table: pa.Table) -> pa.Table:
        """The columns that the sink was opened with: cells hold the columns of late rows that queries read."""
        kind, name = key
        if kind == RESULT:
            return table
        stream = next(stream for stream in self._layout.spec.streams if stream.name == name)
        schema = stream.dead_schema if kind == DEAD else stream.schema
        return pa.concat_tables([schema.empty_table(), table], promote_options="default")


def describe_failure(key: OutputKey, batch: int, error: BaseException) -> str:
    """The message for a sink that failed."""
    kind, name = key
    return (
        f"the {kind} sink of {name} failed in micro-batch {batch}: {type(error).__name__}: {redact(str(error))}; "
        "fix the sink and start again: it gets the same micro-batch again"
    )


def _send(cell: int, key: OutputKey, table: pa.Table, target: SentRows) -> list[OutputRow]:
    size = table.nbytes
    if size <= target.limit:
        return encode_rows(cell, key, table)
    kind, name = key
    return [(cell, OVERSIZE + kind, name, table.num_rows, json.dumps(size).encode())]
