"""The changes of a micro-batch as one set of rows to delete and insert, for sinks that keep the answer of a query.

Law: rows and their negations cancel out. What is left has at most one row for each key that entered; a row that left is
dropped if a row of its key entered, which replaces it. So the order of cells and of changes does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import DataError, QueryError

OPERATION_COLUMN, TIME_COLUMN, NET_COLUMN = "_op", "_ts", "_penstock_net"


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


def compute_net_changes(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Rows with their number of insertions less deletions, without those that cancel out."""
    values = list_values(changes.schema)
    signs = pc.subtract(pc.multiply(pc.equal(changes.column(OPERATION_COLUMN), "+").cast(pa.int64()), 2), 1)
    signed = changes.drop_columns([OPERATION_COLUMN]).append_column(NET_COLUMN, signs)
    net = signed.group_by(values).aggregate([(TIME_COLUMN, "max"), (NET_COLUMN, "sum")])
    net = net.rename_columns([*values, TIME_COLUMN, NET_COLUMN])
    net = net.filter(pc.not_equal(net.column(NET_COLUMN), 0))
    entered = net.filter(pc.greater(net.column(NET_COLUMN), 0))
    counts = entered.group_by(list(key)).aggregate([(NET_COLUMN, "sum")])
    if counts.num_rows and pc.max(counts.column(f"{NET_COLUMN}_sum")).as_py() > 1:
        row = counts.sort_by([(f"{NET_COLUMN}_sum", "descending")]).slice(0, 1).to_pylist()[0]
        message = (
            f"the answer has several rows with the key {', '.join(str(row[name]) for name in key)}; give `key` the "
            "columns that tell its rows apart, such as those of GROUP BY"
        )
        raise DataError("SINK_KEY_NOT_UNIQUE", message)
    left = net.filter(pc.less(net.column(NET_COLUMN), 0))
    return pa.concat_tables([entered, left.filter(pc.invert(mark_rows(left, entered, key)))])


def mark_rows(rows: pa.Table, others: pa.Table, columns: Sequence[str]) -> pa.Array:
    """Which rows agree with one of the others on some columns; NULL equals NULL."""
    coded = pa.concat_tables([rows.select(columns), others.select(columns)])
    groups = coded.append_column("_place", pa.array(range(coded.num_rows), pa.int64())).group_by(list(columns))
    last = groups.aggregate([("_place", "max"), ("_place", "list")])
    shared = last.filter(pc.greater_equal(last.column("_place_max"), rows.num_rows)).column("_place_list")
    places = pc.list_flatten(shared)
    return pc.is_in(pa.array(range(rows.num_rows), pa.int64()), places.combine_chunks().cast(pa.int64()))


def describe_columns(schema: pa.Schema) -> str:
    """Columns and types for comparison: the spelling of types differs between packages."""
    kinds = {"string_view": "string", "large_string": "string", "utf8": "string", "large_binary": "binary"}
    return ", ".join(f"{field.name} {kinds.get(str(field.type), str(field.type))}" for field in schema)
