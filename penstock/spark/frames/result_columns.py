"""The columns of a query's results as a DataFrame has them.

A timestamp with a zone is a TIMESTAMP, one without a TIMESTAMP_NTZ. In tasks columns have numbers as names, because
`mapInArrow` takes no name with a dot or a backtick.

The state stage of a streaming frame sends results as columns, with the counts of a cell in a row of their own. Arrow
columns pass through pandas without a copy. Times pass as numbers, because Spark converts pandas times by the zone of
the session. pandas converts nested values one by one, so results with such columns pass as Arrow blobs, which a second
function decodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, date_from_unix_date, expr, timestamp_micros
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructType

from penstock.spark.worker.cell_state import BLOB_BYTES, DEAD, LATE, RESULT, OutputKey
from penstock.spark.worker.pack import ArrowMap
from penstock.state import decode_table, encode_table

if TYPE_CHECKING:
    import pandas as pd

COUNTS = {RESULT: "results", LATE: "late", DEAD: "dead"}
"""By kind of output, the column with its number of rows; they are NULL in rows of results."""
_BLOB = "data"
_UNPACKED_ROWS = 2**16
_SENT_BYTES = 8 * 2**20
"""About the largest size of the rows that a cell sends at once as columns."""


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


class SentResults:
    """How the results of a query leave the state stage: as columns, or as blobs if a column is nested."""

    def __init__(self, numbered: pa.Schema) -> None:
        self._numbered = numbered
        self._is_flat = not any(pa.types.is_nested(field.type) for field in numbered)
        if self._is_flat:
            self._schema = pa.schema([pa.field(field.name, _find_sent_type(field.type)) for field in numbered])
        else:
            self._schema = pa.schema([(_BLOB, pa.binary())])

    @property
    def spark_type(self) -> StructType:
        """The columns that the state stage returns."""
        found = StructType()
        for name in COUNTS.values():
            found = found.add(name, LongType())
        return StructType([*found.fields, *to_spark_columns(self._schema).fields])

    def send(self, output: Iterable[tuple[OutputKey, pa.Table]]) -> Iterator[pd.DataFrame]:
        """The results of a cell, and a row with the counts of its output if there is any."""
        counts = dict.fromkeys(COUNTS, 0)
        for (kind, _), table in output:
            counts[kind] += table.num_rows
            if kind == RESULT:
                yield from self._send_results(table)
        if any(counts.values()):
            rows = [counts[kind] for kind in COUNTS]
            yield _build_frame(1, [pa.array([count]) for count in rows], self._schema.empty_table())

    def _send_results(self, table: pa.Table) -> Iterator[pd.DataFrame]:
        most = _SENT_BYTES if self._is_flat else BLOB_BYTES
        parts = max(1, -(-table.nbytes // most), -(-table.num_rows // _UNPACKED_ROWS))
        size = max(1, -(-table.num_rows // parts))
        for start in range(0, table.num_rows, size):
            rows = table.slice(start, size)
            if self._is_flat:
                rows = rows.rename_columns(self._numbered.names).cast(self._numbered).cast(self._schema)
            else:
                rows = pa.table([pa.array([encode_table(rows)])], schema=self._schema)
            yield _build_frame(rows.num_rows, [pa.nulls(rows.num_rows, pa.int64()) for _ in COUNTS], rows)

    def receive(self, frame: DataFrame) -> DataFrame:
        """The results of the rows that the state stage returns, as columns of the numbered schema."""
        results = frame.filter(col(COUNTS[RESULT]).isNull())
        if not self._is_flat:
            return results.select(_BLOB).mapInArrow(build_unpack_map(self._numbered), to_spark_columns(self._numbered))
        return results.select(*(_read_sent(field).alias(field.name) for field in self._numbered))


def _find_sent_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(kind) else kind


def _read_sent(field: pa.Field) -> Column:
    """The value of a column, of what was sent."""
    if pa.types.is_date32(field.type):
        return date_from_unix_date(col(field.name))
    if not pa.types.is_timestamp(field.type):
        return col(field.name)
    if field.type.tz is not None:
        return timestamp_micros(col(field.name))
    return expr(f"TIMESTAMP_NTZ'1970-01-01 00:00:00' + INTERVAL '0.000001' SECOND * {field.name}")


def _build_frame(rows: int, counts: Iterable[pa.Array], results: pa.Table) -> pd.DataFrame:
    """A frame of pandas around Arrow columns, without a copy; results without rows are NULL."""
    import pandas as pd  # noqa: PLC0415 - only the workers of frames need it

    columns = dict(zip(COUNTS.values(), counts, strict=True))
    for field, column in zip(results.schema, results.columns, strict=True):
        columns[field.name] = column.combine_chunks() if len(column) else pa.nulls(rows, field.type)
    return pd.DataFrame({name: pd.arrays.ArrowExtensionArray(column) for name, column in columns.items()}, copy=False)


def build_unpack_map(numbered: pa.Schema) -> ArrowMap:
    """The function for `mapInArrow` that turns a column of blobs into columns."""

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch.column(0):
                yield from split_results(decode_table(blob.as_buffer()), numbered)

    return unpack
