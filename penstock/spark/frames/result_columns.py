"""The columns of a query's results as a DataFrame has them.

A timestamp with a zone is a TIMESTAMP, one without a TIMESTAMP_NTZ. In tasks columns have numbers as names, because
`mapInArrow` takes no name with a dot or a backtick.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock.spark.worker.pack import ArrowMap
from penstock.state import decode_table

_UNPACKED_ROWS = 2**16


def number_columns(schema: pa.Schema) -> pa.Schema:
    """The schema that tasks return for the results of a query."""
    return pa.schema([pa.field(f"c{number}", _find_type(field.type)) for number, field in enumerate(schema)])


def _find_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz is not None else None)
    return kind


def to_spark_columns(numbered: pa.Schema) -> StructType:
    """The types of a numbered schema in Spark."""
    return from_arrow_schema(numbered, prefer_timestamp_ntz=True)


def split_results(table: pa.Table, numbered: pa.Schema) -> Iterator[pa.RecordBatch]:
    """A table of results as Arrow batches for Spark."""
    yield from table.rename_columns(numbered.names).cast(numbered).to_batches(_UNPACKED_ROWS)


def build_unpack_map(numbered: pa.Schema) -> ArrowMap:
    """The function for `mapInArrow` that turns a column of blobs into columns."""

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch.column(0):
                yield from split_results(decode_table(blob.as_buffer()), numbered)

    return unpack
