"""The changes of a micro-batch as one set of rows to delete and insert, for sinks that keep the answer of a query.

Law: rows and their negations cancel out. What is left has at most one row for each key that entered; a row that left is
dropped if a row of its key entered, which replaces it. So the order of cells and of changes does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import DataError, QueryError, UnsupportedError
from penstock.spark.sinks.keys import check_key_columns

OPERATION_COLUMN, TIME_COLUMN, NET_COLUMN = "_op", "_ts", "_penstock_net"
_PLACE = "_penstock_place"


def list_values(schema: pa.Schema) -> list[str]:
    """The columns by which rows of an answer are told apart: the time of a change is not one."""
    return [name for name in schema.names if name not in (OPERATION_COLUMN, TIME_COLUMN)]


def select_stored(schema: pa.Schema, key: Sequence[str]) -> pa.Schema:
    """The columns of a table that has the answer (with a key) or all results."""
    return pa.schema([field for field in schema if not (key and field.name == OPERATION_COLUMN)])


def check_key(name: str, schema: pa.Schema, key: Sequence[str]) -> None:
    """Refuse a key that is no part of the columns, or of a query without EMIT CHANGES."""
    values = list_values(schema)
    if any(each not in values for each in key) or (key and OPERATION_COLUMN not in schema.names):
        message = f"the key {', '.join(key)} of {name} needs EMIT CHANGES, and columns of {values}"
        raise QueryError("SINK_KEY", message)
    check_key_columns(name, schema, key)


def compute_net_changes(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Rows with their number of insertions less deletions, without those that cancel out."""
    values = list_values(changes.schema)
    changes = changes.combine_chunks()
    signs = pc.subtract(pc.multiply(pc.equal(changes.column(OPERATION_COLUMN), "+").cast(pa.int64()), 2), 1)
    coded = encode_values(changes, values).append_column(NET_COLUMN, signs)
    coded = coded.append_column(TIME_COLUMN, changes.column(TIME_COLUMN)).append_column(_PLACE, _count(changes))
    net = coded.group_by(values).aggregate([(TIME_COLUMN, "max"), (NET_COLUMN, "sum"), (_PLACE, "min")])
    net = net.filter(pc.not_equal(net.column(f"{NET_COLUMN}_sum"), 0))
    rows = changes.take(net.column(f"{_PLACE}_min")).drop_columns([OPERATION_COLUMN, TIME_COLUMN])
    rows = rows.append_column(TIME_COLUMN, net.column(f"{TIME_COLUMN}_max"))
    rows = rows.append_column(NET_COLUMN, net.column(f"{NET_COLUMN}_sum"))
    entered = rows.filter(pc.greater(rows.column(NET_COLUMN), 0))
    _check_unique(entered, key)
    left = rows.filter(pc.less(rows.column(NET_COLUMN), 0))
    return pa.concat_tables([entered, left.filter(pc.invert(mark_rows(left, entered, key)))])


def _check_unique(entered: pa.Table, key: Sequence[str]) -> None:
    coded = encode_values(entered, key).append_column(NET_COLUMN, entered.column(NET_COLUMN))
    counts = coded.group_by(list(key)).aggregate([(NET_COLUMN, "sum")])
    if counts.num_rows and pc.max(counts.column(f"{NET_COLUMN}_sum")).as_py() > 1:
        row = counts.sort_by([(f"{NET_COLUMN}_sum", "descending")]).slice(0, 1).to_pylist()[0]
        message = (
            f"the answer has several rows with the key {', '.join(str(row[name]) for name in key)}; give `key` the "
            "columns that tell its rows apart, such as those of GROUP BY"
        )
        raise DataError("SINK_KEY_NOT_UNIQUE", message)


def mark_rows(rows: pa.Table, others: pa.Table, columns: Sequence[str]) -> pa.Array:
    """Which rows agree with one of the others on some columns; NULL equals NULL."""
    coded = pa.concat_tables([encode_values(rows, columns), encode_values(others, columns)])
    groups = coded.append_column(_PLACE, _count(coded)).group_by(list(columns))
    last = groups.aggregate([(_PLACE, "max"), (_PLACE, "list")])
    shared = last.filter(pc.greater_equal(last.column(f"{_PLACE}_max"), rows.num_rows)).column(f"{_PLACE}_list")
    places = pc.list_flatten(shared)
    return pc.is_in(_count(rows), places.combine_chunks().cast(pa.int64()))


def _count(table: pa.Table) -> pa.Array:
    return pa.array(range(table.num_rows), pa.int64())


# ── values and types ─────────────────────────────────────────────────────────────────────────────────────────────────


def encode_values(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Columns whose values are equal, and can be sorted, where those of the table are equal.

    Arrow neither groups nor sorts arrays, maps and structs, and it tells -0.0 from 0.0.
    """
    return pa.table([_encode_column(table.column(name)) for name in columns], names=list(columns))


def _encode_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_nested(column.type):
        texts = [None if value is None else repr(value) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_floating(column.type):
        nan = pa.scalar(float("nan"), column.type)
        return pc.if_else(pc.is_nan(column), nan, pc.add(column, pa.scalar(0.0, column.type)))
    return column


def choose_stored_type(kind: pa.DataType, *, small_integers: bool = True) -> pa.DataType:
    """The type that a table of Delta or Iceberg has for a type: times have microseconds, and all zones are UTC."""
    choose = partial(choose_stored_type, small_integers=small_integers)
    if not small_integers and (pa.types.is_int8(kind) or pa.types.is_int16(kind)):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        if kind.unit == "ns":
            message = "tables of Delta and Iceberg have times of microseconds; CAST the column of nanoseconds"
            raise UnsupportedError("SINK_TYPE", message)
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_map(kind):
        return pa.map_(choose(kind.key_type), choose(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(choose(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(choose(field.type)) for field in kind])
    return kind


def describe_columns(schema: pa.Schema) -> str:
    """Columns and types for comparison: the spelling of types differs between packages."""
    return ", ".join(f"{field.name} {_describe_type(field.type)}" for field in schema)


def _describe_type(kind: pa.DataType) -> str:
    if pa.types.is_map(kind):
        return f"map<{_describe_type(kind.key_type)}, {_describe_type(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{_describe_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{describe_columns(kind)}>"
    return {"string_view": "string", "large_string": "string", "large_binary": "binary"}.get(str(kind), str(kind))
