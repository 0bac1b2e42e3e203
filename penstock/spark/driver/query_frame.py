"""The frame of a pipeline's streaming query: packed streams and commands, processed by cells."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, current_timestamp

from penstock.cql import Stream
from penstock.expr import quote_name
from penstock.spark.cell_keys import find_cell_keys
from penstock.spark.control_source import open_control_stream
from penstock.spark.driver.control import CommandLog
from penstock.spark.driver.observed import observe_output
from penstock.spark.heartbeat import is_stamped
from penstock.spark.payloads import Payload
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.pack import NOW_COLUMN, PACKED_DDL, build_pack_map
from penstock.spark.worker.processor import OUTPUT_TYPE, CellProcessor


def pack_streams(
    spec: PipelineSpec, frames: Mapping[str, DataFrame], payloads: Mapping[str, Payload | None]
) -> list[DataFrame]:
    """The packed rows of each stream, with all columns, which later queries may read.

    `frames` are the rows of the streams by name; `payloads` has the streams whose rows come as blobs.
    """
    return [_pack_stream(spec, stream, frames[stream.name], payloads) for stream in spec.streams]


def _pack_stream(
    spec: PipelineSpec, stream: Stream, frame: DataFrame, payloads: Mapping[str, Payload | None]
) -> DataFrame:
    """The columns have numbers as names: `mapInArrow` does not take a name with a dot or a backtick."""
    blobs = stream.name in payloads
    # Spark's current_timestamp() is that of the micro-batch: the same when it is repeated
    now = [current_timestamp()] if is_stamped(stream) or stream.ahead is not None else []
    given = [name for name in stream.schema.names if not is_stamped(stream) or name != stream.time]
    read = [col(quote_name(name)) for name in (frame.columns if blobs else given)]
    numbered = [column.alias(f"c{number}") for number, column in enumerate([*read, *now])]
    clock = stream.time if is_stamped(stream) else NOW_COLUMN
    names = None if blobs else [*given, *([clock] if now else [])]
    pack = build_pack_map(spec, stream, names, payloads.get(stream.name))
    return frame.select(*numbered).mapInArrow(pack, PACKED_DDL)


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
