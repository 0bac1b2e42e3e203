"""The sink of a micro-batch: writes the output of cells to the sinks and applies commands to the config."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.adapt import AddQuery, DropQuery, JoinSample, QueryCommand
from penstock.cql import bind_query
from penstock.errors import PenstockError
from penstock.spark.driver.adaptive import BatchReport
from penstock.spark.driver.cell_reports import CellReport, CellReports, OutputKey, list_budgets
from penstock.spark.driver.checkpoint_metadata import CheckpointMetadata
from penstock.spark.driver.control import CommandLog
from penstock.spark.layout import Layout
from penstock.spark.sinks import Sink, open_sink
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.cell_state import METRICS, RESULT, SAMPLES
from penstock.state import decode_table

Listener = Callable[[int, Mapping[int, Any]], object]
EffectCallback = Callable[[int], None]
"""Called with the micro-batch from which on a command takes effect."""


class BatchSink:
    """The function that `foreachBatch` calls.

    At the end of a micro-batch the commands it held change the config of the next one. The config is written to the
    checkpoint metadata before the micro-batch is committed, so that a repeated one finds it.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        metadata: CheckpointMetadata,
        sinks: Mapping[OutputKey, Sink],
        publish: Callable[[str], object],
    ) -> None:
        """`publish` sends the configs to the tasks of the next micro-batch."""
        self.layout = Layout(spec.with_config(metadata.schedule.last))
        self._metadata = metadata
        self._sinks = dict(sinks)
        self._publish = publish
        self._pending: dict[int, tuple[QueryCommand, Sink | None, EffectCallback | None]] = {}
        self._changed = threading.Condition()
        self._reports = CellReports(stream.name for stream in spec.streams)
        self._listeners: list[Listener] = []
        self._observers: list[Callable[[BatchReport], object]] = []
        self._batch_thread: int | None = None
        for (kind, name), sink in sinks.items():
            schema = self.layout.spec.bound_queries[name].schema if kind == RESULT else self._find_stream_schema(name)
            open_sink(sink, metadata.run, name, schema)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self._batch_thread = threading.get_ident()
        try:
            self._process_batch(frame, batch)
        finally:
            self._batch_thread = None

    @property
    def is_in_batch(self) -> bool:
        """Whether the caller runs in the thread of the micro-batch: a sink or a listener."""
        return threading.get_ident() == self._batch_thread

    def _process_batch(self, frame: DataFrame, batch: int) -> None:
        output = _decode_output(frame.collect())
        for key, sink in self._sinks.items():
            self._write_sink(key, sink, batch, output.tables.get(key, ()))
        with self._changed:
            self._reports.add(batch, output.cells, output.count_rows())
            self._reports.log_notices(self.layout)
            self._apply_commands(batch, output.last_command)
        for listener in list(self._listeners):
            listener(batch, output.cells)
        queries = frozenset(query.name for query in self.layout.spec.queries)
        for observer in self._observers:
            observer(BatchReport(batch, output.cells, output.samples, queries))

    def _write_sink(self, key: OutputKey, sink: Sink, batch: int, tables: Sequence[pa.Table]) -> None:
        try:
            sink.write(batch, self._merge_tables(key, tables))
        except Exception as error:
            message = (
                f"the {key[0]} sink of {key[1]} failed in micro-batch {batch}: {type(error).__name__}: {error}; "
                "fix the sink and start again: it gets the same micro-batch again"
            )
            raise PenstockError("SINK_FAILED", message) from error

    # ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, name: str, text: str, sink: Sink) -> None:
        """Open the sink of a new query, so that an error reaches the caller and not a micro-batch."""
        open_sink(sink, self._metadata.run, name, bind_query(text, self.layout.spec.catalog).schema)

    def submit(
        self, command: QueryCommand, log: CommandLog, sink: Sink | None = None, done: EffectCallback | None = None
    ) -> int:
        """Write a command to the log and return its number. `sink`: where the results of an added query go.

        `done` is called with the micro-batch from which on it counts. No micro-batch ends between the write and the
        entry here: one that had read the command would not find it.
        """
        with self._changed:
            number = log.append(command).number
            self._pending[number] = command, sink, done
        return number

    def wait(self, number: int, seconds: float) -> bool:
        """Wait for a command to take effect; False after a time-out. The thread of the micro-batch does not wait."""
        with self._changed:
            if self.is_in_batch:
                return True
            return self._changed.wait_for(lambda: number not in self._pending, seconds)

    def listen(self, listener: Listener) -> None:
        """Call a function after every micro-batch, in its thread, with its number and the cells' reports."""
        self._listeners.append(listener)

    def observe(self, observer: Callable[[BatchReport], object]) -> None:
        """Call a function after every micro-batch, after the listeners, with the samples of the cells too."""
        self._observers.append(observer)

    def _apply_commands(self, batch: int, seen: int) -> None:
        """Apply the commands of a micro-batch to the config of the next one."""
        due = sorted(number for number in self._pending if number <= seen)
        if not due:
            return
        config = self.layout.spec.config
        for number in due:
            command, sink, done = self._pending.pop(number)
            if done is not None:
                done(batch + 1)
            config = command.configure(config, self._metadata.generation + 1)
            if isinstance(command, AddQuery) and sink is not None:
                self._sinks[RESULT, command.name] = sink
            if isinstance(command, DropQuery):
                del self._sinks[RESULT, command.name]
        self._metadata.change_config(batch + 1, config)
        self.layout = Layout(self.layout.spec.with_config(config))
        self._publish(self._metadata.schedule.encode())
        self._changed.notify_all()

    def _find_stream_schema(self, stream: str) -> pa.Schema:
        return next(item.schema for item in self.layout.spec.streams if item.name == stream)

    def _merge_tables(self, key: OutputKey, tables: Sequence[pa.Table]) -> pa.Table:
        kind, name = key
        if kind != RESULT:
            return pa.concat_tables([self._find_stream_schema(name).empty_table(), *tables], promote_options="default")
        if not tables:
            return self.layout.spec.bound_queries[name].schema.empty_table()
        merged = pa.concat_tables(tables)
        return merged if len(tables) == 1 else merged.sort_by("_ts")

    # ── reports ──────────────────────────────────────────────────────────────────────────────────────────────────

    def find_due_frontiers(self, now: int) -> tuple[dict[str, int], dict[str, int]]:
        """The frontiers of streams, and those that the clock may advance at the time `now`."""
        return self._reports.find_due_frontiers(self.layout, now)

    def metrics(self) -> dict[str, Any]:
        """The last reports of the cells, added up by stream and query."""
        return self._reports.metrics(self.layout)

    def list_notices(self) -> list[str]:
        """The active notices, as text."""
        return [str(notice) for notice in self._reports.list_notices(self.layout)]

    def list_budgets(self) -> dict[str, str]:
        """The budgets of queries, as text."""
        return list_budgets(self.layout)

    def explain(self) -> str:
        """The placement of queries, and hot cells."""
        return self._reports.explain(self.layout)


@dataclass(frozen=True)
class _BatchOutput:
    """The output of all cells in a micro-batch."""

    cells: Mapping[int, CellReport]
    samples: Mapping[int, Sequence[JoinSample]]
    tables: Mapping[OutputKey, Sequence[pa.Table]]

    @property
    def last_command(self) -> int:
        return max((cell["seen"] for cell in self.cells.values()), default=-1)

    def count_rows(self) -> dict[OutputKey, int]:
        return {output: sum(table.num_rows for table in tables) for output, tables in self.tables.items()}


def _decode_output(rows: Iterable[Sequence[Any]]) -> _BatchOutput:
    cells: dict[int, CellReport] = {}
    samples: dict[int, Sequence[JoinSample]] = {}
    tables: dict[OutputKey, list[pa.Table]] = {}
    for cell, kind, name, _, data in rows:
        if kind == METRICS:
            cells[cell] = json.loads(bytes(data))
        elif kind == SAMPLES:
            samples[cell] = pickle.loads(bytes(data))
        else:
            tables.setdefault((kind, name), []).append(decode_table(bytes(data)))
    return _BatchOutput(cells, samples, tables)
