"""Data of other libraries and plain Python values as Arrow tables: what `push` and `table` take.

- A `pyarrow.Table` or `RecordBatch` is used as it is.
- An object that exports Arrow (`__arrow_c_stream__` or `__arrow_c_array__`) is a table: a pandas or polars DataFrame, a
  DuckDB relation, a `RecordBatchReader`. The unnamed index of a DataFrame is left out.
- A dict of columns has lists, numpy arrays, or arrays of any library that exports Arrow.
- A list of dicts has one dict per row. A key that some rows lack is NULL in them.

The types of the columns are those that pyarrow infers; `penstock.ops.fit_columns` casts them to the declared types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.errors import DataError


class ArrowStreamExporter(Protocol):
    """A table of a library that exports Arrow streams."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class ArrowArrayExporter(Protocol):
    """A table of a library that exports Arrow arrays."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object: ...


TableData = (
    pa.Table
    | pa.RecordBatch
    | ArrowStreamExporter
    | ArrowArrayExporter
    | Mapping[str, Iterable[Any]]
    | Sequence[Mapping[str, Any]]
)
"""Rows as `push` and `table` take them."""

ACCEPTED_DATA = (
    "a pyarrow.Table, anything that exports Arrow (pandas, polars, DuckDB), a dict of columns or a list of dicts"
)
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")
_NUMPY_UNITS = ("D", "s", "ms", "us", "ns")
"""The units of numpy times that Arrow has too."""


def read_table(name: str, data: Any, schema: pa.Schema | None = None) -> pa.Table | pa.RecordBatch:
    """The rows as an Arrow table; DataError if they are not rows. `schema` is the declared one, if there is one."""
    if isinstance(data, (pa.Table, pa.RecordBatch)):
        return data
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _import_arrow(name, data)
    if isinstance(data, Mapping):
        return _read_columns(name, data, schema)
    if isinstance(data, (list, tuple)):
        return _read_rows(name, data, schema)
    raise _make_type_error(name, data)


def _make_type_error(name: str, data: object) -> DataError:
    if hasattr(data, "__next__"):
        advice = "a list, as in list(rows)"
    elif hasattr(data, "toArrow"):
        advice = "its toArrow()"  # a DataFrame of Spark
    elif hasattr(data, "collect"):
        advice = "its collect()"  # a LazyFrame of polars
    else:
        advice = ACCEPTED_DATA
    message = f"the rows of {name} are of type {type(data).__name__}; give {advice}"
    return DataError("NOT_A_TABLE", message, relation=name)


def _import_arrow(name: str, data: Any) -> pa.Table:
    """The table of an object that exports Arrow. A stream is read to its end."""
    try:
        table = pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        message = (
            f"the rows of {name} are of type {type(data).__name__}, which is not a table: {error}; give {ACCEPTED_DATA}"
        )
        raise DataError("NOT_A_TABLE", message, relation=name) from error
    unnamed = [column for column in table.column_names if _UNNAMED_INDEX.fullmatch(column)]
    return table.drop_columns(unnamed) if unnamed else table


# ── plain Python values ──────────────────────────────────────────────────────────────────────────────────────────────


def _read_columns(name: str, data: Mapping[Any, Any], schema: pa.Schema | None) -> pa.Table:
    if not data and schema is not None:
        return schema.empty_table()
    columns = {column: _read_column(name, column, values, schema) for column, values in data.items()}
    lengths = {column: len(values) for column, values in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{column} has {length}" for column, length in lengths.items())
        message = f"the columns of {name} differ in length: {listed}"
        raise DataError("COLUMN_LENGTH", message, relation=name, lengths=lengths)
    return pa.table(columns)


def _read_column(name: str, column: object, values: Any, schema: pa.Schema | None) -> pa.Array | pa.ChunkedArray:
    if not isinstance(column, str):
        raise DataError("NOT_A_TABLE", f"{name}: a column is named by a text, not {column!r}", relation=name)
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    if hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values)
    if not isinstance(values, (list, tuple, range, np.ndarray)) and not hasattr(values, "__array__"):
        message = f"{name}.{column} is of type {type(values).__name__}; give a list of values, or one dict per row"
        raise DataError("NOT_A_COLUMN", message, relation=name, column=column)
    try:
        return _build_array(values, _find_type(column, schema))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        message = f"{name}.{column}: the values are not a column of one type: {error}"
        raise DataError("COLUMN_TYPE", message, relation=name, column=column) from error


def _find_type(column: str, schema: pa.Schema | None) -> pa.DataType | None:
    """The declared type of a column; None without one, and for a column that is not declared."""
    declared = [] if schema is None else [field for field in schema if field.name.casefold() == column.casefold()]
    return declared[0].type if declared else None


def _build_array(values: Any, declared: pa.DataType | None) -> pa.Array:
    """An array of the inferred type. If the values have no type in common, the declared type decides.

    Inference comes first because the declared type would also take an integer as a timestamp. NaN stays a number in
    lists and numpy arrays, and is NULL in a pandas Series.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
        unit = np.datetime_data(values.dtype)[0]
        values = values if unit in _NUMPY_UNITS else values.astype(f"{values.dtype.kind}8[us]")
    plain = isinstance(values, (list, tuple, range, np.ndarray))
    if declared is not None and pa.types.is_nested(declared):  # a dict is a struct or a map: only the type says which
        return pa.array(values, declared) if plain else pa.array(values, declared, from_pandas=True)
    if plain:
        with suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
            return _refuse_numbers_as_times(pa.array(values), values)
    try:
        return _refuse_numbers_as_times(pa.array(values, from_pandas=True), values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        if declared is None or pa.types.is_timestamp(declared):
            raise
        return pa.array(values, declared, from_pandas=True)


def _refuse_numbers_as_times(array: pa.Array, values: Any) -> pa.Array:
    """An array built from values; TypeError if pyarrow took a number in a list of datetimes as microseconds."""
    if isinstance(values, (list, tuple)) and pa.types.is_timestamp(array.type) and int in set(map(type, values)):
        raise TypeError("datetimes and integers are mixed")
    return array


def _read_rows(name: str, rows: Sequence[Any], schema: pa.Schema | None) -> pa.Table:
    wrong = next((kind for kind in set(map(type, rows)) if not issubclass(kind, Mapping)), None)
    if wrong is not None:
        message = f"{name} got a list that holds a {wrong.__name__}; give one dict of column values per row"
        raise DataError("NOT_A_TABLE", message, relation=name)
    names = dict.fromkeys(chain.from_iterable(rows))
    return _read_columns(name, {column: [row.get(column) for row in rows] for column in names}, schema)
