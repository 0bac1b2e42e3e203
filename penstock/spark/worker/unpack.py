"""Unpack: the output rows of one query become a DataFrame with its columns, for sinks that Spark writes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.spark.worker.cell_state import OutputKey
from penstock.spark.worker.pack import ArrowMap
from penstock.state import decode_table

_UNPACKED_ROWS = 2**16


def unpack_frame(frame: DataFrame, key: OutputKey, schema: pa.Schema) -> DataFrame:
    """The rows of one output in a frame of output rows, with the columns of its schema."""
    kind, name = key
    chosen = frame.filter((col("kind") == lit(kind)) & (col("name") == lit(name))).select("data")
    numbered = _number_columns(schema)
    unpacked = chosen.mapInArrow(_build_unpack_map(numbered), from_arrow_schema(numbered))
    return unpacked.toDF(*schema.names)


def _number_columns(schema: pa.Schema) -> pa.Schema:
    """The schema as Spark takes it: a timestamp has a zone, and `mapInArrow` takes no name with a dot or a backtick."""
    fields = [
        pa.field(f"c{number}", pa.timestamp("us", "UTC") if pa.types.is_timestamp(field.type) else field.type)
        for number, field in enumerate(schema)
    ]
    return pa.schema(fields)


def _build_unpack_map(schema: pa.Schema) -> ArrowMap:
    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch.column(0):
                table = decode_table(blob.as_buffer()).rename_columns(schema.names).cast(schema)
                yield from table.to_batches(_UNPACKED_ROWS)

    return unpack
