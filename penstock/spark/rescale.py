"""Rescale: makes a checkpoint for another number of cells from one that is not running. The old one is not changed.

Only base rows are moved: the routes of the new grid divide them again, and intermediate states are filled just in time
when the pipeline starts. Spark writes the new state as the first micro-batch of the new checkpoint. Then that
micro-batch gets the source offsets of the last one that was committed in the old checkpoint, so that the run continues
with the next row.

Rows of one inlet may be separated, but rows of different inlets are never merged: they have different columns, and it
is not known which of them are the same. So FROM items share an inlet only if they did before.

Spark's own offline repartitioning moves whole keys. Here a key is a cell, and the cells change.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from penstock.errors import DataError, QueryError
from penstock.spark.blobs import join_blobs, split_blobs
from penstock.spark.cell_keys import find_cell_keys
from penstock.spark.driver.checkpoint_metadata import CheckpointMetadata, find_last_commit
from penstock.spark.driver.control import CONTROL_FOLDER as CONTROL
from penstock.spark.driver.pipeline_record import PipelineRecord
from penstock.spark.environment import require_session
from penstock.spark.inlet_record import record_inlets
from penstock.spark.layout import Layout, StreamScan, number_inlets
from penstock.spark.pipeline_config import ConfigSchedule, PipelineConfig
from penstock.spark.session import apply_query_settings
from penstock.spark.spec import PipelineSpec, build_declared_spec
from penstock.spark.storage import Folder
from penstock.spark.worker.cell_state import HEADER_KEY, StateHeader
from penstock.spark.worker.pack import route_rows
from penstock.spark.worker.processor import OUTPUT_TYPE, open_segment_state
from penstock.spark.worker.segments import build_segment, cut_rows
from penstock.state import decode_table, encode_table, flatten_table

_STATE_FOLDER = "seed"
_FIRST_VERSION = 1
"""The first version of a rescaled cell; every segment of limited size has a version of its own."""
_NO_OFFSET = "-"
"""Spark's text for a source of which nothing was read."""
InletTables = dict[int, pa.Table]


def rescale(spark: SparkSession, old: str, new: str, cells: int) -> int:
    """Make a checkpoint for a number of cells; returns the number of base rows it holds."""
    require_session(spark)
    source, target = Folder(old), Folder(new)
    metadata = CheckpointMetadata.read(source)
    if metadata is None:
        raise QueryError("NO_CHECKPOINT", f"{old} is not a checkpoint of a pipeline", checkpoint=old)
    if target.list_names():
        raise DataError("FOLDER_IN_USE", f"{new} is not empty; give a new place for the new checkpoint", place=new)
    batch = _find_last_commit(source)
    _check_batch_finished(source, batch)
    record = metadata.current
    before = record.schedule.find_config(batch + 1)
    after = _divide_again(before, build_declared_spec(record.declared, before, cells))
    headers, rows = _read_state(spark, old, record)
    moved = _move_rows(before, after, rows)
    moved_record = replace(
        record,
        first_batch=0,
        declared=after.spec.describe(),
        schedule=ConfigSchedule(((0, after.spec.config),)),
        inlets=record_inlets(after),
    )
    with _remove_unfinished(target):
        _write_state(spark, target, cells, _build_state_rows(after, headers, moved))
        _copy_offsets(source, target, batch, cells)
        CheckpointMetadata(target, uuid4().hex, moved_record, moved_record).save()
    return sum(table.num_rows for tables in moved for table in tables.values())


@contextmanager
def _remove_unfinished(target: Folder) -> Iterator[None]:
    """Remove the new checkpoint if it is not written to the end; an interrupt counts as well."""
    try:
        yield
    except BaseException:
        target.delete_all()
        raise


def _check_batch_finished(folder: Folder, batch: int) -> None:
    """Refuse a checkpoint with an uncommitted micro-batch: the new run would write its output to the sinks again."""
    begun = max(_list_numbers(folder.child("offsets")), default=-1)
    if begun > batch:
        message = (
            f"{folder.path} was stopped within micro-batch {begun}: start the pipeline once more, let it end "
            "(`run.processAllAvailable()`, or `penstock run --once`), then rescale"
        )
        raise DataError("BATCH_UNFINISHED", message, checkpoint=folder.path)


def _list_numbers(folder: Folder) -> list[int]:
    return [int(name) for name in folder.list_names() if name.isdigit()]


def _find_last_commit(folder: Folder) -> int:
    """The last committed micro-batch."""
    done = find_last_commit(folder)
    if done < 0:
        raise QueryError("NOTHING_COMMITTED", f"{folder.path} has no finished micro-batch; start with a new checkpoint")
    return done


def _divide_again(before: PipelineConfig, spec: PipelineSpec) -> Layout:
    """The layout of the new cells. FROM items share an inlet only if they shared one before."""
    numberless = replace(before, queries=tuple(replace(query, inlets=()) for query in before.queries))
    trial = Layout(spec.with_config(numberless))

    def find_key(scan: StreamScan) -> Hashable:
        return _find_origin(before, scan), scan.route

    return Layout(trial.spec.with_inlets(number_inlets(trial, numberless, find_key)))


def _find_origin(before: PipelineConfig, scan: StreamScan) -> int:
    """The number of the inlet that a FROM item reads in the old checkpoint."""
    return before.find_query(scan.query).inlets[scan.item_index]


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_state(spark: SparkSession, place: str, record: PipelineRecord) -> tuple[list[StateHeader], InletTables]:
    """The headers of the cells, and the base rows by inlet: each once, those of a cell in order of arrival."""
    reader = spark.read.format("statestore").option("path", place).option("stateVarName", "journal")
    try:
        found = reader.load().select("key.cell", "user_map_key.first", "user_map_key.last", "user_map_value.data")
        parts = {(row[0], row[1], row[2]): bytes(row[3]) for row in found.collect()}
    except PySparkException as error:
        raise DataError("STATE_UNREADABLE", f"the state in {place} cannot be read: {error}", place=place) from error
    headers: list[StateHeader] = []
    rows: dict[int, list[pa.Table]] = {}
    for number, key in enumerate(find_cell_keys(record.cells)):
        if (key, *HEADER_KEY) not in parts:
            continue
        headers.append(StateHeader.decode(parts[key, *HEADER_KEY]))
        for item in headers[-1].segments:
            for inlet, blob in split_blobs(parts[key, *item.key]).items():
                if inlet in record.inlets and record.inlets[inlet].is_owner(number):
                    rows.setdefault(inlet, []).append(decode_table(blob).select(list(record.inlets[inlet].columns)))
    return headers, {inlet: pa.concat_tables(tables).combine_chunks() for inlet, tables in rows.items()}


def _move_rows(before: PipelineConfig, after: Layout, rows: InletTables) -> list[InletTables]:
    """The rows of the new inlets in the new cells."""
    cells: list[InletTables] = [{} for _ in range(after.spec.cells)]
    for inlet in after.inlets:
        table = rows.get(_find_origin(before, inlet.scans[0]))
        if table is None:
            continue
        table = table.select(inlet.schema.names)
        columns = flatten_table(table)
        for cell, chosen in route_rows(inlet.route, table, columns, np.arange(table.num_rows)):
            cells[cell][inlet.number] = table.take(pa.array(chosen))
    return cells


def _build_state_rows(
    layout: Layout, headers: list[StateHeader], moved: list[InletTables]
) -> Iterator[tuple[int, int, int, bytes]]:
    """The state of the new cells: (cell's key, first, last, data)."""
    frontiers: dict[str, int] = {}
    for header in headers:
        for name, frontier in header.frontiers.items():
            frontiers[name] = max(frontier, frontiers.get(name, frontier))
    last_command = max((header.last_command for header in headers), default=-1)
    times = {inlet.number: inlet.stream.time for inlet in layout.inlets}
    for key, rows in zip(find_cell_keys(layout.spec.cells), moved, strict=True):
        segments = []
        for version, part in enumerate(cut_rows(rows, layout.spec.maintenance.segment_bytes), _FIRST_VERSION):
            blob = join_blobs({number: encode_table(table) for number, table in part.items()})
            segments.append(build_segment(version, version, part, times, len(blob)))
            yield key, version, version, blob
        version = max((segment.last for segment in segments), default=_FIRST_VERSION)
        header = StateHeader(version, uuid4().hex, frontiers, [], segments, last_command)
        yield key, *HEADER_KEY, header.encode()


# ── Spark's files ────────────────────────────────────────────────────────────────────────────────────────────────────


class StateWriter(StatefulProcessor):
    """Writes its input rows into the state of the cells."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = open_segment_state(handle)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,  # noqa: ARG002
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        for _, first, last, data in rows:
            self._state.updateValue((first, last), (bytes(data),))
        return iter(())

    def close(self) -> None:
        pass


def _write_state(
    spark: SparkSession, target: Folder, cells: int, state_rows: Iterator[tuple[int, int, int, bytes]]
) -> None:
    """Write the state of the new cells with Spark, as micro-batch 0 of the new checkpoint."""
    columns = "cell int, first bigint, last bigint, data binary"
    place = target.child(_STATE_FOLDER).path
    spark.createDataFrame(list(state_rows), columns).coalesce(1).write.parquet(place)
    frame = spark.readStream.schema(columns).parquet(place)
    with apply_query_settings(spark, cells, local=target.is_local):
        written = frame.groupBy("cell").transformWithState(
            StateWriter(), outputStructType=OUTPUT_TYPE, outputMode="Append", timeMode="None"
        )
        writer = written.writeStream.foreachBatch(_run_batch).option("checkpointLocation", target.path)
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
    target.child(_STATE_FOLDER).delete_all()


def _run_batch(frame: DataFrame, batch: int) -> None:
    del batch
    frame.collect()


def _copy_offsets(source: Folder, target: Folder, batch: int, cells: int) -> None:
    """Give micro-batch 0 of the new checkpoint the source offsets of a micro-batch of the old one."""
    saved = source.child("offsets").read(str(batch))
    if saved is None:
        message = f"micro-batch {batch} of {source.path} was committed, but has no offsets"
        raise DataError("STATE_UNREADABLE", message, place=source.path)
    version, metadata, *offsets, _ = saved.decode().splitlines()  # the last source is that of commands
    settings = json.loads(metadata)
    settings["conf"]["spark.sql.shuffle.partitions"] = str(cells)
    target.child("offsets").remove(".0.crc")
    target.child("offsets").write("0", "\n".join([version, json.dumps(settings), *offsets, _NO_OFFSET]).encode())
    target.child("sources").delete_all()
    source.child("sources").copy_to(target.child("sources"))
    target.child(f"sources/{len(offsets)}").delete_all()
    commands = source.child(CONTROL)
    last = max(name for name in commands.list_names() if name[0].isdigit())
    target.child(CONTROL).write(last, commands.read(last) or b"")  # so that the numbers of commands go on
