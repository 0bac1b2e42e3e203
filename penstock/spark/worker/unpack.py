"""Unpack: the output rows of one query become a DataFrame with its columns, for sinks that Spark writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.spark.sinks import CELL_COLUMN, SEQUENCE_COLUMN
from penstock.spark.sinks.net_changes import OPERATION_COLUMN, TIME_COLUMN, encode_values
from penstock.spark.worker.cell_state import OutputKey
from penstock.spark.worker.pack import ArrowMap
from penstock.state import decode_table

_UNPACKED_ROWS = 2**16
_CHANGE_ORDER = ((TIME_COLUMN, "ascending"), (OPERATION_COLUMN, "descending"))
"""Rows in the order of time; '-' before '+'."""


def unpack_frame(frame: DataFrame, key: OutputKey, schema: pa.Schema, *, numbered: bool = False) -> DataFrame:
    """The rows of one output in a frame of output rows, with the columns of its schema.

    With `numbered` also the cell of each row, and its place among the sorted rows of the cell.
    """
    if numbered:
        return _unpack_numbered(frame, key, schema)
    kind, name = key
    chosen = frame.filter((col("kind") == lit(kind)) & (col("name") == lit(name))).select("data")
    plain = _number_columns(schema)
    unpacked = chosen.mapInArrow(_build_unpack_map(plain), from_arrow_schema(plain))
    return unpacked.toDF(*schema.names)


def _unpack_numbered(frame: DataFrame, key: OutputKey, schema: pa.Schema) -> DataFrame:
    kind, name = key
    chosen = frame.filter((col("kind") == lit(kind)) & (col("name") == lit(name))).select("cell", "data")
    plain = _number_columns(schema)
    marked = pa.schema([*plain, (CELL_COLUMN, pa.int32()), (SEQUENCE_COLUMN, pa.int64())])
    names = dict(zip(schema.names, plain.names, strict=True))
    order = [(names[name], direction) for name, direction in _CHANGE_ORDER if name in names]
    unpacked = chosen.mapInArrow(build_numbered_map(plain, marked, order), from_arrow_schema(marked))
    return unpacked.toDF(*schema.names, CELL_COLUMN, SEQUENCE_COLUMN)


def build_numbered_map(plain: pa.Schema, marked: pa.Schema, order: Sequence[tuple[str, str]] = ()) -> ArrowMap:
    """The rows of each cell, sorted and numbered. All rows of a cell are in one partition.

    `order`: the columns to sort by first, with their directions; the others follow. Equal rows need no order.
    """
    given = {name for name, _ in order}
    keys = [*order, *((name, "ascending") for name in plain.names if name not in given)]

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables: dict[int, list[pa.Table]] = {}
        for batch in batches:
            for cell, blob in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                table = decode_table(blob.as_buffer()).rename_columns(plain.names).cast(plain)
                tables.setdefault(cell, []).append(table)
        for cell, parts in tables.items():
            rows = pa.concat_tables(parts)
            rows = rows.take(pc.sort_indices(encode_values(rows, plain.names), sort_keys=keys))
            cells = pa.repeat(pa.scalar(cell, pa.int32()), rows.num_rows)
            sequence = pa.array(range(rows.num_rows), pa.int64())
            yield from pa.table([*rows.columns, cells, sequence], schema=marked).to_batches(_UNPACKED_ROWS)

    return unpack


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
