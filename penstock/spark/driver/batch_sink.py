"""The end of a micro-batch in the driver: sinks are committed or written, and commands change the config."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.adapt import AddQuery, AlterQuery, DropQuery, QueryCommand
from penstock.cql import bind_query
from penstock.spark.control_command import ControlCommand, list_engine_commands
from penstock.spark.driver.adaptive import BatchReport
from penstock.spark.driver.cell_reports import CellReports, list_budgets
from penstock.spark.driver.checkpoint_metadata import CheckpointMetadata
from penstock.spark.driver.commits import RunSinks
from penstock.spark.driver.control import CommandLog
from penstock.spark.driver.query_comparison import alter_query
from penstock.spark.layout import Layout
from penstock.spark.pipeline_config import CONFIG_PROPERTY, PipelineConfig
from penstock.spark.sinks import Sink, check_folders, clear_folders, sink_connector
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.cell_state import DEAD, RESULT, OutputKey
from penstock.spark.worker.writer import SINKS_PROPERTY

_JOB_DESCRIPTION = "spark.job.description"
"""The local property with the text that Spark's UI shows for jobs; Spark sets its own at the start of a micro-batch."""
_SHOWN_QUERIES = 5
_KEPT_NOTES = 100
_LOG = logging.getLogger(__name__)

Listener = Callable[[int, Mapping[int, Any]], object]
EffectCallback = Callable[[int], None]
"""Called with the micro-batch from which on a command takes effect."""


class BatchSink:
    """The function that `foreachBatch` calls.

    At the end of a micro-batch the commands it held change the config of the next one. Cells obey commands to engines
    already in the micro-batch that holds them; the config keeps their effect. The config is written to the checkpoint
    metadata before the micro-batch is committed, so that a repeated one finds it.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        metadata: CheckpointMetadata,
        sinks: Mapping[OutputKey, Sink],
        publish: Callable[[str, str], object],
    ) -> None:
        """`publish` sets a local property for the tasks of the next micro-batch."""
        self.layout = Layout(spec.with_config(metadata.schedule.last))
        self._metadata = metadata
        self._sinks = RunSinks(metadata.run)
        self._publish = publish
        self._pending: dict[int, tuple[QueryCommand, Sink | None, EffectCallback | None]] = {}
        self._changed = threading.Condition()
        self._reports = CellReports(stream.name for stream in spec.streams)
        self._listeners: list[Listener] = []
        self._observers: list[Callable[[BatchReport], object]] = []
        self._notes: deque[str] = deque(maxlen=_KEPT_NOTES)
        self._batch_thread: int | None = None
        for (kind, name), sink in sinks.items():
            schema = (
                self.layout.spec.bound_queries[name].schema if kind == RESULT else self._find_stream_schema(kind, name)
            )
            self._sinks.open((kind, name), sink, schema)
            self._sinks.add((kind, name), sink, schema)

    def list_properties(self) -> dict[str, str]:
        """The local properties that tasks need: the configs and the sinks."""
        return {CONFIG_PROPERTY: self._metadata.schedule.encode(), SINKS_PROPERTY: self._sinks.encode()}

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self._batch_thread = threading.get_ident()
        try:
            self._process_batch(frame, batch)
        finally:
            self._batch_thread = None

    @property
    def is_in_batch(self) -> bool:
        """Whether the caller runs in the thread of the micro-batch: a sink or a listener."""
        return threading.get_ident() == self._batch_thread or self._sinks.is_sink_thread()

    def _process_batch(self, frame: DataFrame, batch: int) -> None:
        self._publish(_JOB_DESCRIPTION, describe_batch(batch, [query.name for query in self.layout.spec.queries]))
        self._metadata.begin(batch)
        output = self._sinks.write(frame, batch)
        with self._changed:
            self._reports.add(self.layout, batch, output.cells, output.rows)
            self._reports.log_notices(self.layout)
            self._apply_commands(batch, output.last_command)
        for listener in list(self._listeners):
            listener(batch, output.cells)
        queries = frozenset(query.name for query in self.layout.spec.queries)
        for observer in self._observers:
            observer(BatchReport(batch, output.cells, output.samples, queries))

    # ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, name: str, text: str, sink: Sink) -> None:
        """Open the sink of a new query, so that an error reaches the caller and not a micro-batch."""
        run = self._metadata.run
        check_folders([sink], run)
        self._sinks.open((RESULT, name), sink, bind_query(text, self.layout.spec.catalog).schema)
        clear_folders([sink], run)

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
        """Apply the commands of a micro-batch to the config of the next one. Cells have obeyed those to engines."""
        due = sorted(number for number in self._pending if number <= seen)
        if not due:
            return
        config = self.layout.spec.config
        numbered = [ControlCommand(number, self._pending[number][0]) for number in due]
        obeyed = list_engine_commands(numbered, -1)
        for number in due:
            command, sink, done = self._pending.pop(number)
            if done is not None:
                done(batch if number in obeyed else batch + 1)
            config = self._configure(config, command)
            if isinstance(command, AddQuery) and sink is not None:
                schema = bind_query(command.text, self.layout.spec.catalog).schema
                self._sinks.add((RESULT, command.name), sink, schema)
                config = config.mark_added(command.name, sink_connector(sink))
            if isinstance(command, DropQuery):
                self._sinks.remove((RESULT, command.name))
        self.layout = Layout(self.layout.spec.with_config(config))
        self._metadata.change_config(batch + 1, self.layout)
        for key, value in self.list_properties().items():
            self._publish(key, value)
        self._changed.notify_all()

    def _configure(self, config: PipelineConfig, command: QueryCommand) -> PipelineConfig:
        """The config after a command, which is the next change of the pipeline."""
        generation = self._metadata.generation + 1
        if not isinstance(command, AlterQuery):
            return command.configure(config, generation)
        altered, note = alter_query(Layout(self.layout.spec.with_config(config)), command, generation)
        _LOG.info("%s", note)
        self._notes.append(note)
        return altered

    def _find_stream_schema(self, kind: str, name: str) -> pa.Schema:
        stream = next(item for item in self.layout.spec.streams if item.name == name)
        return stream.dead_schema if kind == DEAD else stream.schema

    # ── reports ──────────────────────────────────────────────────────────────────────────────────────────────────

    def find_due_frontiers(self, now: int) -> tuple[dict[str, int], dict[str, int]]:
        """The frontiers of streams, and those that the clock may advance at the time `now`."""
        return self._reports.find_due_frontiers(self.layout, now)

    def metrics(self) -> dict[str, Any]:
        """The last reports of the cells, added up by stream and query."""
        return self._reports.metrics(self.layout)

    def list_statuses(self) -> list[Mapping[str, Any]]:
        """The newest descriptions of the cells."""
        return self._reports.list_statuses()

    def get_latest(self, name: str) -> list[Any]:
        """The newest rows of a query, by cell."""
        return self._reports.get_latest(name)

    def list_notices(self) -> list[str]:
        """The active notices, as text."""
        return [str(notice) for notice in self._reports.list_notices(self.layout)]

    def list_failures(self) -> dict[str, str]:
        """The queries that have stopped, in which cells, and why."""
        return self._reports.list_failures(self.layout)

    def list_notes(self) -> list[str]:
        """A sentence for each query that was altered, the newest ones: whether it keeps its windows."""
        return list(self._notes)

    def list_budgets(self) -> dict[str, str]:
        """The budgets of queries, as text."""
        return list_budgets(self.layout)

    def describe_sinks(self) -> dict[str, str]:
        """Where the results of every query go."""
        return self._sinks.describe_results()

    def explain(self) -> str:
        """The placement of queries, and hot cells."""
        return self._reports.explain(self.layout)


def describe_batch(batch: int, queries: Sequence[str]) -> str:
    """A micro-batch for Spark's UI, with the names of its queries, or of the first ones."""
    names, others = ", ".join(queries[:_SHOWN_QUERIES]), len(queries) - _SHOWN_QUERIES
    return f"Penstock micro-batch {batch}: {names}" + (f" and {others} more" if others > 0 else "")
