"""The frame of a pipeline's streaming query: packed streams and commands, processed by cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import groupby

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, current_timestamp

from penstock.cql import Stream
from penstock.expr import quote_name
from penstock.spark.cell_keys import find_cell_keys
from penstock.spark.combined_frame import combine_frames
from penstock.spark.control_source import open_control_stream
from penstock.spark.driver.control import CommandLog
from penstock.spark.driver.observed import observe_output
from penstock.spark.heartbeat import is_stamped
from penstock.spark.layout import get_layout
from penstock.spark.payloads import Payload
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.combined import StreamSlots, pack_combined
from penstock.spark.worker.pack import NOW_COLUMN, PACKED_DDL, build_pack_map
from penstock.spark.worker.processor import OUTPUT_TYPE, CellProcessor
from penstock.spark.worker.setup import freeze_gc, read_task_spec


def pack_streams(
    spec: PipelineSpec, frames: Mapping[str, DataFrame], payloads: Mapping[str, Payload | None], tasks: int
) -> list[DataFrame]:
    """The packed rows of the streams, with all columns, which later queries may read.

    `frames` are the rows of the streams by name; `payloads` has the streams whose rows come as blobs. Neighbouring
    streams of rows are packed together, by at most `tasks` tasks. The order of the sources is that of the streams:
    Spark stores their offsets in this order.
    """
    packed: list[DataFrame] = []
    for blobs, group in groupby(spec.streams, lambda stream: stream.name in payloads):
        streams = list(group)
        if blobs or len(streams) == 1:
            packed += [_pack_stream(spec, stream, frames[stream.name], payloads) for stream in streams]
        else:
            packed.append(_pack_together(spec, streams, frames, tasks))
    return packed


def _pack_stream(
    spec: PipelineSpec, stream: Stream, frame: DataFrame, payloads: Mapping[str, Payload | None]
) -> DataFrame:
    rows, names = _select_columns(stream, frame, blobs=stream.name in payloads)
    return rows.mapInArrow(build_pack_map(spec, stream, names, payloads.get(stream.name)), PACKED_DDL)


def _pack_together(
    spec: PipelineSpec, streams: Sequence[Stream], frames: Mapping[str, DataFrame], tasks: int
) -> DataFrame:
    selected = [_select_columns(stream, frames[stream.name], blobs=False) for stream in streams]
    together, slots = combine_frames([rows for rows, _ in selected], tasks)
    placed = [
        StreamSlots(stream, tuple(names or ()), used)
        for stream, (_, names), used in zip(streams, selected, slots, strict=True)
    ]

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from pack_combined(get_layout(read_task_spec(spec)), placed, batches)
        freeze_gc(spec.id)

    return together.mapInArrow(pack, PACKED_DDL)


def _select_columns(stream: Stream, frame: DataFrame, *, blobs: bool) -> tuple[DataFrame, list[str] | None]:
    """The columns that are packed, and their names; None for blobs.

    The columns have numbers as names: `mapInArrow` does not take a name with a dot or a backtick.
    """
    # Spark's current_timestamp() is that of the micro-batch: the same when it is repeated
    now = [current_timestamp()] if is_stamped(stream) or stream.ahead is not None else []
    given = [name for name in stream.schema.names if not is_stamped(stream) or name != stream.time]
    read = [col(quote_name(name)) for name in (frame.columns if blobs else given)]
    numbered = [column.alias(f"c{number}") for number, column in enumerate([*read, *now])]
    clock = stream.time if is_stamped(stream) else NOW_COLUMN
    return frame.select(*numbered), None if blobs else [*given, *([clock] if now else [])]


def build_query_frame(
    spark: SparkSession, spec: PipelineSpec, packed: list[DataFrame], log: CommandLog, processor: CellProcessor
) -> DataFrame:
    """What the cells write in each micro-batch."""
    control = open_control_stream(spark, log.spool, find_cell_keys(spec.cells))
    together = reduce(DataFrame.unionAll, [*packed, control])
    processed = together.groupBy("cell").transformWithState(
        processor, outputStructType=OUTPUT_TYPE, outputMode="Append", timeMode="None"
    )
    return observe_output(processed)
