"""Payloads of records, such as those of Kafka: JSON, CSV, Avro or Arrow become rows of a stream, in the pack stage.

Law: every record becomes the rows of its payload, or one dead letter with its topic, partition, offset, payload and the
reason; the others are not affected. JSON and CSV are parsed by Arrow, all payloads of a batch at once. If that fails,
the batch is halved until the bad records are found: a bad record costs about as many parses as the batch has halvings.
Arrow payloads are read one by one and hold many rows each. Avro is decoded record by record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.cql import Stream
from penstock.errors import QueryError, require_known
from penstock.spark.avro import BAD_RECORD, check_avro_fields, decode_avro, import_fastavro, read_schema_text
from penstock.spark.text_payloads import (
    Parsed,
    TextReader,
    check_text_type,
    describe_form,
    find_malformed,
    parse_lines,
    read_csv,
    read_debezium,
    read_json,
)
from penstock.state import decode_table

RECORD_COLUMNS = ("value", "key", "topic", "partition", "offset", "timestamp", "headers")
"""The columns of the frame that a `Payload` decodes, in this order."""
REJECT_COLUMNS = pa.schema([("_topic", pa.string()), ("_partition", pa.int32()), ("_offset", pa.int64()),
                            ("_payload", pa.binary()), ("_reason", pa.string())])  # fmt: skip
"""Columns of the dead letters of such a stream, after its own."""
TEXT_FORMATS = ("json", "csv", "debezium")
_FORMATS = (*TEXT_FORMATS, "avro", "arrow")
_BAD_PAYLOAD = (pa.ArrowException, ValueError, EOFError, KeyError, IndexError, TypeError, StopIteration, *BAD_RECORD)


@dataclass(frozen=True)
class Payload:
    """How the values of records are decoded. It is sent to tasks.

    `columns`: declared columns that have a part of the record (key, topic, partition, offset, timestamp, headers)
    instead of a field of the payload. `schema`: the Avro schema as JSON text, or the path of its file; `registry`: the
    address of a schema registry, or a secret that has it, for payloads that begin with the number of their schema.
    """

    format: str
    columns: tuple[tuple[str, str], ...] = ()
    schema: str = ""
    registry: str = ""
    delimiter: str = ","

    def __post_init__(self) -> None:
        require_known(self.format, _FORMATS, "payload")
        for _, part in self.columns:
            require_known(part, RECORD_COLUMNS[1:], "part of a record")
        if self.format == "avro" and bool(self.schema) == bool(self.registry):
            raise QueryError("PAYLOAD_OPTIONS", "avro needs either schema (its text or a path) or registry (a URL)")
        if self.format == "avro":
            import_fastavro()
        if len(self.delimiter.encode()) != 1 or self.delimiter in '"\r\n':
            raise QueryError("PAYLOAD_OPTIONS", f"delimiter is one character, no quote or line end: {self.delimiter!r}")
        if self.schema:  # tasks may run where the file is not
            object.__setattr__(self, "schema", read_schema_text(self.schema))

    def check(self, stream: Stream) -> None:
        """Refuse columns that the stream does not declare, or that no payload can have."""
        for name, part in self.columns:
            if name not in stream.schema.names:
                known = ", ".join(stream.schema.names)
                message = f"{stream.name} has no column {name} for the {part} of records; it has {known}"
                raise QueryError("PAYLOAD_OPTIONS", message)
        if len(self.columns) == len(stream.schema):
            raise QueryError("PAYLOAD_OPTIONS", f"{stream.name} declares no field of the payload")
        parts = dict(self.columns)
        fields = pa.schema([field for field in stream.schema if field.name not in parts])
        if self.format == "avro" and self.schema:
            check_avro_fields(stream.name, self.schema, fields)
        if self.format in TEXT_FORMATS:
            for field in fields:
                check_text_type(field.type, self.format, field.name)

    def decode(self, records: pa.Table, stream: Stream) -> tuple[pa.Table, pa.Table]:
        """The rows of records, and the dead letters. `records` has the columns RECORD_COLUMNS."""
        records = records.combine_chunks()
        parts = dict(self.columns)
        fields = pa.schema([field for field in stream.schema if field.name not in parts])
        values = _flatten(records.column("value"))
        if self.format in ("json", "debezium"):  # a line end within a text is written \\n, so others are spaces
            values = pc.replace_substring(values, b"\n", b" ")
        bad: dict[int, str] = {}
        if self.format in TEXT_FORMATS:
            marked = find_malformed(values, self.format, self.delimiter)
            bad = dict.fromkeys(pc.indices_nonzero(marked).to_pylist(), describe_form(self.format))
        bad |= dict.fromkeys(_find_empty(values, self.format), "the payload is empty")
        chosen = _without(len(values), bad)
        if self.format == "debezium":  # a record without a value follows a deletion, for the compaction of the topic
            bad = {number: reason for number, reason in bad.items() if values[number].is_valid}
        rows, numbers = _parse(self._choose_parser(fields), values, chosen, bad)
        taken = records.take(numbers)
        columns = [
            _cast_part(taken.column(parts[field.name]), field.type) if field.name in parts else rows.column(field.name)
            for field in stream.schema
        ]
        return pa.table(columns, schema=stream.schema), _build_rejects(records, bad, stream)

    def _choose_parser(self, fields: pa.Schema) -> Callable[[pa.Array, list[int]], Parsed]:
        """A function that parses some of the payloads or raises."""
        if self.format == "arrow":
            return lambda values, chosen: _parse_arrow(values, chosen, fields)
        if self.format == "avro":
            return lambda values, chosen: _parse_avro(values, chosen, fields, self)
        csv = partial(read_csv, delimiter=self.delimiter)
        readers: Mapping[str, TextReader] = {"csv": csv, "json": read_json, "debezium": read_debezium}
        read = readers[self.format]
        return lambda values, chosen: parse_lines(values, chosen, fields, read)


# ── parsing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _parse(
    parse: Callable[[pa.Array, list[int]], Parsed], values: pa.Array, chosen: list[int], bad: dict[int, str]
) -> Parsed:
    """Parse the chosen payloads; those that cannot be parsed are added to `bad` with the reason."""
    try:
        return parse(values, chosen)
    except _BAD_PAYLOAD as error:
        if len(chosen) == 1:
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            bad[chosen[0]] = said[:300]
            return parse(values, [])
        middle = len(chosen) // 2
        left = _parse(parse, values, chosen[:middle], bad)
        right = _parse(parse, values, chosen[middle:], bad)
        return pa.concat_tables([left[0], right[0]]), pa.concat_arrays([left[1], right[1]])


def _parse_arrow(values: pa.Array, chosen: list[int], fields: pa.Schema) -> Parsed:
    tables, numbers = [fields.empty_table()], [pa.array([], pa.int64())]
    for number in chosen:
        table = decode_table(values[number].as_buffer()).select(fields.names)
        table.validate(full=True)
        table = table.cast(fields)
        tables.append(table)
        numbers.append(pa.repeat(pa.scalar(number, pa.int64()), table.num_rows))
    return pa.concat_tables(tables), pa.concat_arrays(numbers)


def _parse_avro(values: pa.Array, chosen: list[int], fields: pa.Schema, payload: Payload) -> Parsed:
    numbers = pa.array(chosen, pa.int64())
    return decode_avro(values.take(numbers).to_pylist(), payload.schema, payload.registry, fields), numbers


# ── records ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _flatten(column: pa.ChunkedArray) -> pa.Array:
    """Payloads as one binary array."""
    return pa.concat_arrays([pa.array([], pa.binary()), *(chunk.cast(pa.binary()) for chunk in column.chunks)])


def _find_empty(values: pa.Array, kind: str) -> Iterable[int]:
    """The numbers of payloads that are NULL or blank: Arrow's readers skip them."""
    lengths = pc.fill_null(pc.binary_length(values), 0)
    empty = pc.equal(lengths, 0)
    if kind in ("json", "csv"):
        blank = pc.match_substring_regex(values, r"\A\s*\z")
        empty = pc.or_(empty, pc.fill_null(blank, True))
    return [int(number) for number in pc.indices_nonzero(empty).to_pylist()]


def _without(size: int, bad: Mapping[int, str]) -> list[int]:
    return [number for number in range(size) if number not in bad] if bad else list(range(size))


def _cast_part(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A part of records as a declared column; a key that is no text of that type is NULL."""
    if not pa.types.is_binary(column.type) or pa.types.is_binary(kind):
        return column.cast(kind)
    try:
        return column.cast(pa.string()).cast(kind)
    except pa.ArrowException:
        distinct = column.unique()
        known = pa.array([_cast_key(key, kind) for key in distinct], kind)
        return pa.chunked_array([known.take(pc.index_in(column.combine_chunks(), distinct))], kind)


def _cast_key(key: pa.Scalar, kind: pa.DataType) -> Any:
    try:
        return key.cast(pa.string()).cast(kind).as_py()
    except pa.ArrowException:
        return None


def _build_rejects(records: pa.Table, bad: Mapping[int, str], stream: Stream) -> pa.Table:
    numbers = sorted(bad)
    taken = records.take(pa.array(numbers, pa.int64()))
    own = [pa.nulls(len(numbers), field.type) for field in stream.schema]
    names = ("topic", "partition", "offset", "value")
    told = [taken.column(name).cast(kind) for name, kind in zip(names, REJECT_COLUMNS.types, strict=False)]
    reasons = pa.array([bad[number] for number in numbers], pa.string())
    fields = [field.with_nullable(True) for field in (*stream.schema, *REJECT_COLUMNS)]
    return pa.table([*own, *told, reasons], schema=pa.schema(fields))
