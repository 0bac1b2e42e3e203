"""Pushed Arrow data are checked against the declaration of their stream before anything changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa

from penstock.cql import Stream, Table, format_duration
from penstock.errors import DataError
from penstock.expr import is_instant, try_cast
from penstock.ops.notices import guess_tick_unit
from penstock.state import FOREVER, I64, Mask, flatten_column, scan_times, to_ticks

TimeScan = tuple[int, int, bool]
"""The oldest and the newest of some times, and whether they ascend."""
_INTEGER_DIGITS = 20
"""Digits of the largest integers."""


def fit_columns(name: str, data: pa.Table | pa.RecordBatch, schema: pa.Schema) -> dict[str, pa.Array]:
    """The columns of a pushed table in the declared order and types, copied; DataError if they do not fit."""
    if not isinstance(data, (pa.Table, pa.RecordBatch)):
        raise DataError(
            "NOT_A_TABLE", f"{name} got a {type(data).__name__}; push a pyarrow.Table or RecordBatch", stream=name
        )
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])  # its columns are copied
    if data.schema.equals(schema):  # names and types as declared
        return dict(zip(schema.names, _copy_columns(data), strict=True))
    given = _map_column_positions(name, data)
    missing = [column for column in schema.names if column.casefold() not in given]
    extra = [data.schema.names[place] for key, place in given.items() if key not in _fold_names(schema)]
    if missing or extra:
        wrong = [f"{what} {', '.join(names)}" for what, names in (("lacks", missing), ("has unknown", extra)) if names]
        raise DataError(
            "COLUMNS_DIFFER",
            f"the table pushed to {name} {' and '.join(wrong)}; {name} has {', '.join(schema.names)}",
            stream=name, missing=missing, extra=extra,
        )  # fmt: skip
    return {field.name: _cast_column(name, field, data.column(given[field.name.casefold()])) for field in schema}


def fit_stream_columns(stream: Stream, data: pa.Table | pa.RecordBatch) -> dict[str, pa.Array]:
    """The columns of rows that are pushed to a stream, as `fit_columns`, faster if they are as declared."""
    names, types = stream.columns
    if isinstance(data, pa.Table) and data.schema.names == names:
        columns = _copy_columns(data)
        if [column.type for column in columns] == types:
            return dict(zip(names, columns, strict=True))
    return fit_columns(stream.name, data, stream.schema)


def _copy_columns(data: pa.Table) -> list[pa.Array]:
    """The columns of a table as one array each, copied, so that the table may change later.

    A record batch gives its columns faster as the fields of a struct.
    """
    batches = data.to_batches()
    copied = pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], data.schema)
    columns: list[pa.Array] = copied.to_struct_array().flatten()
    return columns


def _map_column_positions(name: str, data: pa.Table | pa.RecordBatch) -> dict[str, int]:
    """The places of columns by case-folded name."""
    places: dict[str, int] = {}
    for place, column in enumerate(data.schema.names):
        if column.casefold() in places:
            raise DataError("DUPLICATE_COLUMN", f"the table pushed to {name} has two columns {column}", stream=name)
        places[column.casefold()] = place
    return places


def _fold_names(schema: pa.Schema) -> set[str]:
    return {column.casefold() for column in schema.names}


def _cast_column(name: str, field: pa.Field, column: pa.Array | pa.ChunkedArray) -> pa.Array:
    column = flatten_column(column)
    if column.type.equals(field.type, check_metadata=True):  # of arrays also the name of the element
        return column
    if pa.types.is_dictionary(column.type) and pa.types.is_string_view(column.type.value_type):
        # a categorical of polars; Arrow cannot decode it
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.string()))
    if is_instant(field.type) and _is_same_kind(column.type, pa.string()) and not pa.types.is_null(column.type):
        return _parse_instants(name, field, column.cast(pa.string()))
    if not _is_same_kind(column.type, field.type):
        message = (
            f"{name}.{field.name} is {field.type}, but the pushed column is {column.type}{_advise_cast(field, column)}"
        )
        raise DataError("COLUMN_TYPE", message, stream=name)
    try:
        if pa.types.is_decimal(field.type) and pa.types.is_integer(column.type):
            # Arrow casts to decimals that have room for every integer
            scale = field.type.scale
            column = column.cast(pa.decimal256(_INTEGER_DIGITS + scale, scale))
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            "COLUMN_TYPE", f"{name}.{field.name} is {field.type}; the pushed {column.type} does not fit: {error}",
            stream=name,
        ) from error  # fmt: skip


def _advise_cast(field: pa.Field, column: pa.Array) -> str:
    """How to convert integers to a timestamp; empty for other types."""
    if not pa.types.is_timestamp(field.type) or not pa.types.is_integer(column.type):
        return ""
    if len(column) == column.null_count:
        return ""
    newest = int(np.max(column.drop_null().to_numpy()))
    unit = guess_tick_unit(newest) or "microseconds"
    short = {"seconds": "s", "milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}[unit]
    return f'; it looks like {unit} since 1970: column.cast(pa.timestamp("{short}"))'


def _parse_instants(name: str, field: pa.Field, column: pa.Array) -> pa.Array:
    """ISO text as times or dates; text without an offset is UTC."""
    parsed = try_cast(column, pa.date32() if pa.types.is_date(field.type) else pa.timestamp("us", "UTC"))
    if parsed.null_count > column.null_count:
        bad = next(text for text, time in zip(column.to_pylist(), parsed.to_pylist(), strict=True) if text and not time)
        raise DataError(
            "COLUMN_TYPE", f"{name}.{field.name} is {field.type}, and {bad!r} is not ISO text such as "
            "2026-01-31 or 2026-01-31T12:00:00Z", stream=name,
        )  # fmt: skip
    return parsed.cast(field.type)


def _have_same_parts(given: pa.DataType, declared: pa.DataType) -> bool:
    """Whether the parts of arrays, maps or structs are of the same kinds; structs have fields of the same names."""
    if pa.types.is_struct(declared) or pa.types.is_struct(given):
        if not (pa.types.is_struct(declared) and pa.types.is_struct(given)):
            return False
        types = {field.name: field.type for field in given}
        names = {field.name for field in declared}
        return names == types.keys() and all(_is_same_kind(types[field.name], field.type) for field in declared)
    if pa.types.is_map(declared) or pa.types.is_map(given):
        both = pa.types.is_map(declared) and pa.types.is_map(given)
        return both and _is_same_kind(given.key_type, declared.key_type) and _is_same_kind(
            given.item_type, declared.item_type
        )  # fmt: skip
    return _is_same_kind(given.value_type, declared.value_type)


def _is_same_kind(given: pa.DataType, declared: pa.DataType) -> bool:
    kinds = (
        (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
        (pa.types.is_timestamp,),
        (pa.types.is_date,),
        (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        (pa.types.is_boolean,),
        (pa.types.is_duration,),
        (pa.types.is_binary, pa.types.is_large_binary),
    )
    if pa.types.is_dictionary(given):
        return _is_same_kind(given.value_type, declared)
    if pa.types.is_date(given) and pa.types.is_timestamp(declared):
        return True
    if pa.types.is_nested(declared) and pa.types.is_nested(given):
        return _have_same_parts(given, declared)
    return pa.types.is_null(given) or any(
        any(is_kind(given) for is_kind in kind) and any(is_kind(declared) for is_kind in kind) for kind in kinds
    )


@dataclass
class SplitRows:
    """The rows of a stream that are accepted, with their times, and the bad rows with the reason."""

    times: I64
    columns: Mapping[str, pa.Array]
    bad_rows: tuple[tuple[Mapping[str, pa.Array], str], ...] = ()
    scanned: TimeScan | None = None
    """What is known of the times."""


def split_bad_rows(stream: Stream, columns: Mapping[str, pa.Array], now: int | None) -> SplitRows:
    """Separate the rows that cannot be in the stream: no time, the end of time, a NULL in a NOT NULL column.

    `now` is the clock, for a stream that declares how far ahead of it a time may be.
    """
    bad: list[tuple[Mapping[str, pa.Array], str]] = []
    for name in (stream.time, *stream.required):
        if columns[name].null_count:
            valid = np.asarray(columns[name].is_valid())
            bad.append((_filter_rows(columns, ~valid), _explain_null(stream, name)))
            columns = _filter_rows(columns, valid)
    times = to_ticks(columns[stream.time])
    scanned, end = scan_times(times), int(FOREVER)
    newest = scanned[1]
    limit = end if now is None or stream.ahead is None else now + stream.ahead
    if newest == end:
        bad.append((_filter_rows(columns, times == end), f"{stream.time} is the end of time"))
        columns, times = _filter_rows(columns, times < end), times[times < end]
    if newest > limit and (times > limit).any():
        ahead = format_duration(limit - (now or 0), stream.time_type)
        reason = f"{stream.time} is more than {ahead} ahead of the clock"
        bad.append((_filter_rows(columns, times > limit), reason))
        columns, times = _filter_rows(columns, times <= limit), times[times <= limit]
    return SplitRows(times, columns, tuple(bad), None if newest == end or newest > limit else scanned)


def _explain_null(stream: Stream, name: str) -> str:
    return f"{name} is NULL" if name == stream.time else f"{name} is NULL, but declared NOT NULL"


def split_null_columns(stream: Stream, columns: Mapping[str, pa.Array]) -> SplitRows:
    """Like `split_bad_rows` for a stream whose rows get their time on arrival: the times are zeros."""
    times = pa.array(np.zeros(len(columns[stream.time]), np.int64)).cast(stream.time_type)
    return split_bad_rows(stream, {**columns, stream.time: times}, None)


def _filter_rows(columns: Mapping[str, pa.Array], chosen: Mask) -> dict[str, pa.Array]:
    mask = pa.array(chosen)
    return {name: column.filter(mask) for name, column in columns.items()}


def check_required(table: Table, rows: pa.Table) -> None:
    """Refuse rows of a table that have NULL in a NOT NULL column."""
    for name in table.required:
        if nulls := rows.column(name).null_count:
            message = f"table {table.name}: {nulls} rows have NULL in {name}, which is declared NOT NULL"
            raise DataError("NULL_IN_TABLE", message, source=table.name)


def to_tick(time: int | datetime | pa.Scalar, stream: Stream) -> int:
    """A value of the time column's type as an integer."""
    try:
        if isinstance(time, float):
            raise TypeError("a float is not an instant")
        scalar = time if isinstance(time, pa.Scalar) else pa.scalar(time, stream.time_type)
        found = scalar.cast(stream.time_type).cast(pa.int64()).as_py()
    except MemoryError:
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            "TIME_TYPE", f"{time!r} is not a time of {stream.name}, whose {stream.time} is {stream.time_type}"
        ) from error
    if found is None:
        raise DataError("TIME_TYPE", f"NULL is not a time of {stream.name}")
    return int(found)
