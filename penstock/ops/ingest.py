"""Pushed Arrow data are checked against the declaration of their stream before anything changes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import numpy as np
import pyarrow as pa

from penstock.cql import Stream
from penstock.errors import DataError
from penstock.expr import is_instant, try_cast
from penstock.state import flatten_column


def fit_columns(name: str, data: pa.Table | pa.RecordBatch, schema: pa.Schema) -> dict[str, pa.Array]:
    """The columns of a pushed table in the declared order and types; DataError if they do not fit."""
    if not isinstance(data, (pa.Table, pa.RecordBatch)):
        raise DataError(
            "NOT_A_TABLE", f"{name} got a {type(data).__name__}; push a pyarrow.Table or RecordBatch", stream=name
        )
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
    if column.type == field.type:
        return column
    if pa.types.is_dictionary(column.type) and pa.types.is_string_view(column.type.value_type):
        # a categorical of polars; Arrow cannot decode it
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.string()))
    if is_instant(field.type) and _is_same_kind(column.type, pa.string()) and not pa.types.is_null(column.type):
        return _parse_instants(name, field, column.cast(pa.string()))
    if not _is_same_kind(column.type, field.type):
        raise DataError(
            "COLUMN_TYPE", f"{name}.{field.name} is {field.type}, but the pushed column is {column.type}", stream=name
        )
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            "COLUMN_TYPE", f"{name}.{field.name} is {field.type}; the pushed {column.type} does not fit: {error}",
            stream=name,
        ) from error  # fmt: skip


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
    return pa.types.is_null(given) or any(
        any(is_kind(given) for is_kind in kind) and any(is_kind(declared) for is_kind in kind) for kind in kinds
    )


def split_null_times(columns: Mapping[str, pa.Array], time: str) -> tuple[dict[str, pa.Array], dict[str, pa.Array]]:
    """The rows with a time, and those without."""
    if columns[time].null_count == 0:
        return dict(columns), {}
    timed = columns[time].is_valid()
    bad = pa.array(np.flatnonzero(~timed.to_numpy(zero_copy_only=False)))
    return (
        {name: column.filter(timed) for name, column in columns.items()},
        {name: column.take(bad) for name, column in columns.items()},
    )


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
