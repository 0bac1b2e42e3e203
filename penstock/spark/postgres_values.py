"""Types of PostgreSQL, and rows as the CSV text of COPY. Arrow writes and reads it: there is no loop over plain rows.

An array of plain values is an array of PostgreSQL; other arrays, maps and structs are `jsonb`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from penstock.cql import format_type
from penstock.errors import DataError, UnsupportedError
from penstock.expr import is_nested
from penstock.spark.json_text import write_json
from penstock.spark.text_payloads import parse_lines, read_json

_TYPES: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.date32(): "date",
}
_VALUE = "v"


def name_type(kind: pa.DataType) -> str:
    """The type of PostgreSQL for a column."""
    if pa.types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if is_nested(kind):
        return f"{name_type(kind.value_type)}[]" if _is_plain_list(kind) else "jsonb"
    if kind not in _TYPES:
        raise UnsupportedError("POSTGRES_TYPE", f"PostgreSQL has no type for {format_type(kind)}; CAST the column")
    return _TYPES[kind]


def _is_plain_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind)) and not is_nested(kind.value_type)


# ── written ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def write_csv(batch: pa.RecordBatch) -> memoryview:
    """Rows for COPY … FROM STDIN. NULL is an empty field, an empty text is a quoted one."""
    columns = [_write_column(column) for column in batch.columns]
    file = io.BytesIO()
    plain = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    pa_csv.write_csv(plain, file, pa_csv.WriteOptions(include_header=False))
    return file.getbuffer()


def _write_column(column: pa.Array) -> pa.Array:
    """A column as PostgreSQL reads it, with texts for arrays and jsonb."""
    kind = column.type
    if not is_nested(kind):
        return column
    if _is_plain_list(kind):
        return _write_arrays(column)
    texts = [None if value is None else write_json(value, kind) for value in column.to_pylist()]
    return pa.array(texts, pa.string())


def _write_arrays(column: pa.Array) -> pa.Array:
    """Arrays in the text form of PostgreSQL: {"a","b",NULL}."""
    offsets = pc.subtract(column.offsets, column.offsets[0])
    texts = pc.cast(column.values.slice(column.offsets[0].as_py(), offsets[-1].as_py()), pa.string())
    for mark in ("\\", '"'):
        texts = pc.replace_substring(texts, mark, f"\\{mark}")
    quoted = pc.fill_null(pc.binary_join_element_wise('"', texts, '"', ""), "NULL")
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, quoted), ",")
    whole = pc.binary_join_element_wise("{", joined, "}", "")
    return pc.if_else(column.is_valid(), whole, pa.scalar(None, pa.string()))


# ── read ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def parse_rows(data: bytes, schema: pa.Schema, what: str) -> pa.Table:
    """Rows of COPY … TO STDOUT as a table. PostgreSQL writes booleans as t and f."""
    if not data:
        return schema.empty_table()
    # Arrow reads no zone of hours alone, such as +00: these texts are converted below
    texts = {field.name: pa.string() if _is_text(field.type) else field.type for field in schema}
    options = pa_csv.ConvertOptions(
        column_types=texts, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False,
        true_values=["t"], false_values=["f"],
    )  # fmt: skip
    try:
        table = pa_csv.read_csv(
            io.BytesIO(data), pa_csv.ReadOptions(column_names=schema.names),
            pa_csv.ParseOptions(newlines_in_values=True), options,
        )  # fmt: skip
        columns = [_parse_column(table.column(field.name), field.type) for field in schema]
        return pa.table(columns, schema=schema)
    except (pa.ArrowException, ValueError) as error:
        message = f"{what} does not have the declared types: {error}; change the declaration"
        raise DataError("SOURCE_UNREADABLE", message) from None


def _is_text(kind: pa.DataType) -> bool:
    return is_nested(kind) or bool(pa.types.is_timestamp(kind) and kind.tz)


def _parse_column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if is_nested(kind):
        return _parse_json(column, kind)
    if not _is_text(kind):
        return column
    plain = pc.replace_substring_regex(column, r"\+00$", "").cast(pa.timestamp("us"))
    return pc.assume_timezone(plain, "UTC").cast(kind)


def _parse_json(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """JSON texts as values of a type, each as the field of an object."""
    texts = pc.binary_join_element_wise(f'{{"{_VALUE}":', pc.fill_null(column, "null"), "}", "").cast(pa.binary())
    fields = pa.schema([pa.field(_VALUE, kind)])
    rows, _ = parse_lines(pa.concat_arrays(texts.chunks), list(range(len(texts))), fields, read_json)
    return rows.column(_VALUE)
