"""Payloads that are texts with one row each: JSON objects, change records of Debezium, and lines of CSV.

Arrow reads all payloads of a batch as the lines of one text. Law: no payload changes the rows of another one. A payload
that is not complete in itself could take the beginning of the next one as its end, and a payload with two rows could
hide that. So payloads that do not have the form of one object or one line are set aside before they are joined: then a
line end between two payloads is always the end of a row, and a wrong number of rows is always noticed.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from penstock.cql import format_type
from penstock.errors import QueryError
from penstock.expr import is_nested

_SPARE = 16
"""A text is read as one block of a few bytes more: blocks of a fixed size cost more than small texts."""
_OBJECT = r"(?s)\A\s*\{.*\}\s*\z"
Parsed = tuple[pa.Table, pa.Array]
"""Rows, and for each of them the number of its record."""
TextReader = Callable[[pa.Buffer, pa.Schema], pa.Table]


def check_text_type(kind: pa.DataType, payload: str, column: str) -> None:
    """Refuse a column whose type a text cannot have: every payload would be bad."""
    if payload == "csv" and is_nested(kind):
        raise QueryError("PAYLOAD_TYPE", f"column {column}: a line of csv has no {format_type(kind)}; use json")
    if pa.types.is_map(kind):
        message = f"column {column}: {payload} is not read as {format_type(kind)}"
        raise QueryError("PAYLOAD_TYPE", f"{message}; declare a STRUCT with the names that are needed, or use avro")
    for number in range(kind.num_fields if is_nested(kind) else 0):
        check_text_type(kind.field(number).type, payload, column)


def find_malformed(values: pa.Array, payload: str, delimiter: str) -> pa.Array:
    """Which payloads have not the form of one object, or of one line; those without a value are not marked."""
    form = _build_line_form(delimiter) if payload == "csv" else _OBJECT
    return pc.fill_null(pc.invert(pc.match_substring_regex(values, form)), False)


def describe_form(payload: str) -> str:
    """The reason of a dead letter for a payload that `find_malformed` marks."""
    if payload == "csv":
        return "the payload is not one line of CSV: a quote is not closed, or a line ends outside of quotes"
    return "the payload is not one JSON object"


def _build_line_form(delimiter: str) -> str:
    cut = re.escape(delimiter)
    field = rf'(?:"(?:[^"]|"")*"|[^"{cut}\r\n][^{cut}\r\n]*|)'
    return rf"(?s)\A{field}(?:{cut}{field})*[\r\n]*\z"


def parse_lines(values: pa.Array, chosen: list[int], fields: pa.Schema, read: TextReader) -> Parsed:
    """Payloads as lines of one text. Times and dates are read as texts."""
    numbers = pa.array(chosen, pa.int64())
    if not chosen:
        return fields.empty_table(), numbers
    texts = values.take(numbers)
    texts.cast(pa.string())  # Arrow's reader of JSON takes any bytes as a text
    lines = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    joined = pc.binary_join(lines, pa.scalar(b"\n", pa.binary()))[0].as_buffer()
    table = read(joined, pa.schema([field.with_type(_get_text_type(field.type)) for field in fields]))
    if table.num_rows != len(chosen):
        raise ValueError(f"the payload has {table.num_rows} rows instead of {len(chosen)}")
    columns = [_parse_texts(_flatten_chunks(table.column(field.name)), field.type) for field in fields]
    return pa.table(columns, schema=fields), numbers


def _get_text_type(kind: pa.DataType) -> pa.DataType:
    """A type with texts in place of times and dates, whose ISO 8601 texts Arrow's readers do not take everywhere."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_get_text_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_get_text_type(field.type)) for field in kind])
    return kind


def _parse_texts(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of `_get_text_type` with its times and dates. A time without a zone is UTC."""
    if pa.types.is_timestamp(kind):
        zoned = pc.match_substring_regex(column, r"(Z|[+-]\d\d(:?\d\d)?)$")
        marked = pc.if_else(zoned, column, pc.binary_join_element_wise(column, "Z", ""))
        return marked.cast(pa.timestamp("us", "UTC")).cast(kind)
    if pa.types.is_list(kind):
        parts = _parse_texts(column.values, kind.value_type)
        return pa.ListArray.from_arrays(column.offsets, parts, type=kind, mask=column.is_null())
    if pa.types.is_struct(kind):
        parts = [_parse_texts(column.field(number), field.type) for number, field in enumerate(kind)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    return column.cast(kind)


# ── readers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_csv(text: pa.Buffer, fields: pa.Schema, delimiter: str) -> pa.Table:
    types = {field.name: field.type for field in fields}
    convert = pa_csv.ConvertOptions(
        column_types=types, include_columns=fields.names, strings_can_be_null=True,
        quoted_strings_can_be_null=False, null_values=[""],
    )  # fmt: skip
    return pa_csv.read_csv(
        io.BytesIO(text),
        pa_csv.ReadOptions(column_names=fields.names, use_threads=False, block_size=len(text) + _SPARE),
        pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True), convert,
    )  # fmt: skip


def read_json(text: pa.Buffer, fields: pa.Schema) -> pa.Table:
    options = pa_json.ParseOptions(explicit_schema=fields, unexpected_field_behavior="ignore")
    found = pa_json.read_json(
        io.BytesIO(text), pa_json.ReadOptions(use_threads=False, block_size=len(text) + _SPARE), options
    )
    return found.select(fields.names)


def read_debezium(text: pa.Buffer, fields: pa.Schema) -> pa.Table:
    """Change records of Debezium, with or without their schema: the row after a change, or before a deletion.

    The columns `_op` and `ts_ms` are those of the record: '-' for a deletion, and the time of the change, in
    milliseconds or as a time.
    """
    row = pa.struct([field for field in fields if field.name not in ("_op", "ts_ms")])
    envelope = pa.schema([("before", row), ("after", row), ("op", pa.string()), ("ts_ms", pa.int64())])
    found = read_json(text, pa.schema([*envelope, ("payload", pa.struct(list(envelope)))])).combine_chunks()
    plain = {name: _flatten_chunks(found.column(name)) for name in envelope.names}
    nested = _flatten_chunks(found.column("payload"))
    # `payload` is NULL in records without a schema, so one of both has the value
    parts = {name: _choose(each, pc.struct_field(nested, name)) for name, each in plain.items()}
    operations = parts["op"]
    if pc.any(pc.invert(pc.is_in(operations, pa.array(["c", "u", "d", "r"])))).as_py():
        raise ValueError("the payload has no operation c, u, d or r")
    deleted = pc.equal(operations, "d")
    rows = pc.if_else(deleted, parts["before"], parts["after"])
    if rows.null_count:
        raise ValueError("the payload has no row")
    time = parts["ts_ms"]
    if any(each.name == "ts_ms" and pa.types.is_string(each.type) for each in fields):  # declared as a TIMESTAMP
        time = time.cast(pa.timestamp("ms")).cast(pa.string())
    own = {"_op": pc.if_else(deleted, "-", "+"), "ts_ms": time}
    columns = [own[each.name] if each.name in own else pc.struct_field(rows, each.name) for each in fields]
    return pa.table([each.cast(field.type) for each, field in zip(columns, fields, strict=True)], schema=fields)


def _flatten_chunks(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks)


def _choose(one: pa.Array, other: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_valid(one), one, other)
