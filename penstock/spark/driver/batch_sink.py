"""The sink of a micro-batch: writes the output of cells to the sinks and applies commands to the config."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from time import time_ns
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.adapt.commands import AddQuery, DropQuery, QueryCommand
from penstock.adapt.monitor import JoinSample
from penstock.cql import bind_query
from penstock.errors import PenstockError
from penstock.spark.driver.adaptive import BatchReport
from penstock.spark.driver.checkpoint_metadata import CheckpointMetadata
from penstock.spark.driver.control import CommandLog
from penstock.spark.driver.run_metrics import OutputKey, collect_query_metrics, collect_stream_metrics, list_budgets
from penstock.spark.heartbeat import compute_heartbeats
from penstock.spark.layout import Layout
from penstock.spark.sinks import Sink, open_sink
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.cell_state import METRICS, RESULT, SAMPLES
from penstock.spark.worker.key_stats import KeyStats
from penstock.state.arrow import decode_table

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
        self._batch = -1
        self._cells: dict[int, dict[str, Any]] = {}
        self._counts: dict[OutputKey, int] = {}
        self._last_arrivals = dict.fromkeys((stream.name for stream in spec.streams), time_ns() // 1000)
        self._listeners: list[Listener] = []
        self._observers: list[Callable[[BatchReport], object]] = []
        self._key_stats = KeyStats()
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
        cells: dict[int, dict[str, Any]] = {}
        samples: dict[int, list[JoinSample]] = {}
        found: dict[OutputKey, list[pa.Table]] = {}
        for cell, kind, name, _, data in frame.collect():
            if kind == METRICS:
                cells[cell] = json.loads(bytes(data))
            elif kind == SAMPLES:
                samples[cell] = pickle.loads(bytes(data))
            else:
                found.setdefault((kind, name), []).append(decode_table(bytes(data)))
        for place, sink in self._sinks.items():
            self._write_sink(place, sink, batch, found.get(place, []))
        with self._changed:
            self._cells.update(cells)
            now = time_ns() // 1000
            self._last_arrivals.update({name: now for cell in cells.values() for name in cell["heard"]})
            if batch > self._batch:
                for place, tables in found.items():
                    self._counts[place] = self._counts.get(place, 0) + sum(table.num_rows for table in tables)
                self._batch = batch
                self._key_stats.add(cells)
            self._apply_commands(batch, max((cell["seen"] for cell in cells.values()), default=-1))
        for listener in list(self._listeners):
            listener(batch, cells)
        for observer in self._observers:
            observer(BatchReport(batch, cells, samples, frozenset(query.name for query in self.layout.spec.queries)))

    def _write_sink(self, place: OutputKey, sink: Sink, batch: int, tables: list[pa.Table]) -> None:
        try:
            sink.write(batch, self._merge_tables(place, tables))
        except Exception as error:
            message = (
                f"the {place[0]} sink of {place[1]} failed in micro-batch {batch}: {type(error).__name__}: {error}; "
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
        """Call a function after every micro-batch, in its thread, with its number and what the cells reported."""
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

    def _merge_tables(self, place: OutputKey, tables: list[pa.Table]) -> pa.Table:
        kind, name = place
        if kind != RESULT:
            return pa.concat_tables([self._find_stream_schema(name).empty_table(), *tables], promote_options="default")
        if not tables:
            return self.layout.spec.bound_queries[name].schema.empty_table()
        together = pa.concat_tables(tables)
        return together if len(tables) == 1 else together.sort_by("_ts")

    def find_due_frontiers(self, now: int) -> tuple[dict[str, int], dict[str, int]]:
        """The frontiers, and those the clock may raise."""
        with self._changed:
            frontiers: dict[str, int] = {}
            for cell in self._cells.values():
                for name, frontier in cell["frontiers"].items():
                    frontiers[name] = max(frontier, frontiers.get(name, frontier))
            last_arrivals = dict(self._last_arrivals)
            awaits = [cell["awaits"] for cell in self._cells.values()]
            layout = self.layout
        spec = layout.spec
        queries = [
            (layout.find_base_streams(name), min((each[name] for each in awaits if name in each), default=None))
            for name in spec.bound_queries
        ]
        return frontiers, compute_heartbeats(spec.streams, queries, frontiers, last_arrivals, now)

    def metrics(self) -> dict[str, Any]:
        """The last reports of the cells, added up."""
        with self._changed:
            cells, counts, batch, layout = dict(self._cells), dict(self._counts), self._batch, self.layout
            hot = self._key_stats.find_hot_cells(layout)
        kept = ("version", "segments", "base_rows", "how", "seconds", "rows")
        return {
            "batch": batch,
            "streams": {
                stream.name: collect_stream_metrics(stream.name, cells, counts) for stream in layout.spec.streams
            },
            "queries": {
                query.name: collect_query_metrics(query.name, layout, cells, counts) for query in layout.spec.queries
            },
            "hot": [asdict(each) for each in hot],
            "cells": {number: {key: cells[number][key] for key in kept} for number in sorted(cells)},
        }

    def list_budgets(self) -> dict[str, str]:
        """The budgets of queries, as text."""
        return list_budgets(self.layout)

    def explain(self) -> str:
        """The placement of queries, and hot cells."""
        with self._changed:
            layout = self.layout
            hot = self._key_stats.find_hot_cells(layout)
        placed = (f"{name}: {placement}" for name, placement in layout.placements.items())
        return "\n".join([*placed, *(f"hot: {each}" for each in hot)])
