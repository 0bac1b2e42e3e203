"""The sinks of a run: what each gets in a micro-batch, and in which thread.

Every sink is called in the first micro-batch of a run, because that may be the repetition of one that had other rows.
Later a sink without rows is not called. Sinks are written at the same time; those that Spark writes one after another
in the thread of the micro-batch, whose local properties their jobs need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, concat_ws, lit, when

from penstock.errors import PenstockError, QueryError
from penstock.spark.driver.batch_output import BatchOutput, decode_output
from penstock.spark.driver.output_limits import (
    SPARK_LIMIT,
    build_frame_limit_error,
    build_limit_error,
    build_spark_limit_error,
)
from penstock.spark.driver.sink_thread import SinkThread
from penstock.spark.sinks import DRIVER_LIMIT, FrameSink, Sink, TaskSink, describe_sink, open_sink
from penstock.spark.worker.cell_state import RESULT, OutputKey
from penstock.spark.worker.unpack import unpack_frame
from penstock.spark.worker.writer import describe_failure, encode_targets


class RunSinks:
    """The sinks of a run by output, with the schemas they were opened with."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._sinks: dict[OutputKey, Sink] = {}
        self._schemas: dict[OutputKey, pa.Schema] = {}
        self._threads: dict[OutputKey, SinkThread] = {}
        self._is_first = True

    def open(self, key: OutputKey, sink: Sink, schema: pa.Schema) -> None:
        """Open a sink, so that an error reaches the caller and not a micro-batch."""
        other = next((name for (_, name), each in list(self._sinks.items()) if each is sink), None)
        if other is not None:
            message = f"{other} and {key[1]} have the same sink; make one for each"
            raise QueryError("SINK_SHARED", message, query=key[1])
        open_sink(sink, self._run, key[1], schema)

    def add(self, key: OutputKey, sink: Sink, schema: pa.Schema) -> None:
        """Add an open sink."""
        self._sinks[key], self._schemas[key] = sink, schema

    def remove(self, key: OutputKey) -> None:
        del self._sinks[key], self._schemas[key]
        self._threads.pop(key, None)

    def describe_results(self) -> dict[str, str]:
        """Where the results of every query go, in words."""
        return {name: describe_sink(sink) for (kind, name), sink in list(self._sinks.items()) if kind == RESULT}

    def encode(self) -> str:
        """Where tasks send each output, as a text for them."""
        return encode_targets(self._sinks)

    def is_sink_thread(self) -> bool:
        """Whether the caller runs in the thread of a sink."""
        return any(thread.is_current() for thread in list(self._threads.values()))

    # ── a micro-batch ────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, frame: DataFrame, batch: int) -> BatchOutput:
        """Run the job of a micro-batch, and write its output."""
        frames = {key: sink for key, sink in self._sinks.items() if isinstance(sink, FrameSink)}
        if not frames:
            output = self._collect(frame, batch)
            self._write_sinks(batch, output, {})
            return output
        frame.persist()
        try:
            output = self._collect(_without_data(frame, frames), batch)
            writes = {key: partial(self._write_frame, key, sink, frame, batch) for key, sink in frames.items()}
            self._write_sinks(batch, output, writes)
        finally:
            frame.unpersist()
        return output

    def _collect(self, frame: DataFrame, batch: int) -> BatchOutput:
        try:
            columns = frame.toArrow().columns  # Spark prepares this job in less time than that of `collect`
        except Exception as error:
            if SPARK_LIMIT not in str(error):
                raise
            driver = (name for (_, name), sink in self._sinks.items() if not isinstance(sink, TaskSink | FrameSink))
            raise build_spark_limit_error(batch, driver) from error
        output = decode_output(zip(*(column.to_pylist() for column in columns), strict=True))
        for key, sink in self._sinks.items():
            size = output.measure(key)
            if isinstance(sink, FrameSink) and size:
                raise build_frame_limit_error(key, batch, size)
            if size > (limit := getattr(sink, "limit", DRIVER_LIMIT)):
                raise build_limit_error(key, batch, size, limit)
        return output

    def _write_sinks(self, batch: int, output: BatchOutput, frames: Mapping[OutputKey, Callable[[], object]]) -> None:
        """Write all sinks that have rows; if some fail the others are written, and the first error is raised."""
        due = [key for key in self._sinks if self._is_first or output.rows[key]]
        calls = {
            key: self._get_thread(key).submit(partial(self._write_sink, key, batch, output))
            for key in due
            if key not in frames
        }
        failures: dict[OutputKey, BaseException | None] = {}
        for key in (key for key in due if key in frames):
            try:
                frames[key]()
            except Exception as error:
                failures[key] = error
        failures.update({key: call.exception() for key, call in calls.items()})
        for key, failure in failures.items():
            if failure is not None:
                raise PenstockError("SINK_FAILED", describe_failure(key, batch, failure)) from failure
        self._is_first = False

    def _write_sink(self, key: OutputKey, batch: int, output: BatchOutput) -> None:
        sink = self._sinks[key]
        if isinstance(sink, TaskSink):
            sink.commit(batch, output.get_messages(key))
        elif not isinstance(sink, FrameSink):
            sink.write(batch, output.merge_tables(key, self._schemas[key]))

    def _write_frame(self, key: OutputKey, sink: FrameSink, frame: DataFrame, batch: int) -> None:
        sink.write(unpack_frame(frame, key, self._schemas[key], numbered=sink.numbered), batch)

    def _get_thread(self, key: OutputKey) -> SinkThread:
        if key not in self._threads:
            self._threads[key] = SinkThread(f"penstock-sink-{key[0]}-{key[1]}")
        return self._threads[key]


def _without_data(frame: DataFrame, keys: Mapping[OutputKey, object]) -> DataFrame:
    """The output rows, without the data of these outputs."""
    names = [concat_ws("\0", lit(kind), lit(name)) for kind, name in keys]
    kept = when(~concat_ws("\0", col("kind"), col("name")).isin(*names), col("data"))
    return frame.select("cell", "kind", "name", "rows", kept.alias("data"))
