"""A query over streaming DataFrames, as a streaming DataFrame: pack, state stage, unpack.

Law: the rows of all micro-batches together are those results of the query that are certain, each exactly once, also
after a restart from the user's checkpoint. State: the rows of the query's windows, in Spark's state store.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, current_timestamp, lit
from pyspark.sql.functions import sum as sum_values

from penstock.expr import quote_name
from penstock.spark.combined_frame import combine_frames
from penstock.spark.environment import is_connect
from penstock.spark.frames.frame_cells import FrameProcessor, build_frame_pack_map
from penstock.spark.frames.inputs import FrameInputs
from penstock.spark.frames.moved_frame import move_frame
from penstock.spark.frames.result_columns import COUNTS, SentResults, number_columns
from penstock.spark.frames.session import count_cores
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.combined import StreamSlots
from penstock.spark.worker.pack import NOW_COLUMN, PACKED_DDL

OBSERVED_NAME = "penstock"
"""The beginning of the name under which a frame's metrics are in `observedMetrics`."""


def build_stream_frame(spark: SparkSession, inputs: FrameInputs, spec: PipelineSpec, schema: pa.Schema) -> DataFrame:
    """The results of the query of a spec. `spark`: the session of the frame; `schema`: the columns of the results."""
    # Spark's current_timestamp() is that of the micro-batch: the same when it is repeated
    now, clock = ([current_timestamp()], [NOW_COLUMN]) if spec.clocked else ([], [])
    frames = [
        select_numbered(move_frame(inputs.streams[stream.name].frame, spark), stream.schema, now)
        for stream in spec.streams
    ]
    tasks = spec.cells if is_connect(spark) else max(spec.cells, count_cores(spark))
    rows, slots = combine_frames(frames, tasks)
    placed = [
        StreamSlots(stream, (*stream.schema.names, *clock), used)
        for stream, used in zip(spec.streams, slots, strict=True)
    ]
    packed = rows.mapInArrow(build_frame_pack_map(spec, placed), PACKED_DDL)
    results = SentResults(number_columns(schema))
    processed = packed.groupBy("cell").transformWithStateInPandas(
        FrameProcessor(spec, results), outputStructType=results.spark_type, outputMode="Append", timeMode="None"
    )
    return results.receive(_observe(processed, spec)).toDF(*schema.names)


def select_numbered(frame: DataFrame, schema: pa.Schema, more: Sequence[Column] = ()) -> DataFrame:
    """The columns of a schema and others, with numbers as names."""
    columns = [*(frame[quote_name(name)] for name in schema.names), *more]
    return frame.select(*(column.alias(f"c{number}") for number, column in enumerate(columns)))


def _observe(frame: DataFrame, spec: PipelineSpec) -> DataFrame:
    """The frame with the numbers of results, late and dead rows as observed metrics.

    The name has the id of the spec, because Spark refuses two observations of one name in a query.
    """
    name = f"{OBSERVED_NAME}-{spec.id[:8]}"
    return frame.observe(name, *(coalesce(sum_values(col(each)), lit(0)).alias(each) for each in COUNTS.values()))
