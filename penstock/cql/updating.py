"""Updating tables: a stream of changes, and a view with the newest row of each key.

Law: at every instant the table has, for each key, the row of its newest change, unless that change is a deletion. A
change is an upsert, or, with '-' in `_op`, a deletion. So an updating table is no second kind of state: it is the view
`SELECT … FROM name_changes [PARTITION BY key ROWS 1] WHERE _op <> '-'`, whose rows end when the next change comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.cql.catalog import Stream
from penstock.cql.declarations import Duration, describe_stream
from penstock.cql.errors import suggest_similar
from penstock.cql.types import build_schema, list_required
from penstock.errors import QueryError
from penstock.expr import STRING, quote_name

OPERATION = "_op"
"""The column that says what a change does: NULL or '+' for an upsert, '-' for a deletion."""
_SUFFIX = "_changes"


def name_changes(table: str) -> str:
    """The name of the stream with the changes of an updating table."""
    return table + _SUFFIX


def describe_changes(
    name: str,
    schema: Mapping[str, str] | pa.Schema,
    key: str | Sequence[str] | None,
    time: str | None,
    lateness: Duration = 0,
) -> Stream:
    """The stream with the changes of an updating table; QueryError if its key or time column is missing."""
    columns = build_schema(schema)
    names = [key] if isinstance(key, str) else list(key or ())
    if not names:
        raise QueryError("KEY_NEEDED", f"the updating table {name} needs a key: key= names the columns of a row's key")
    if time is None:
        raise QueryError("TIME_NEEDED", f"the updating table {name} needs a time column: time= names it")
    nullable = pa.schema([pa.field(field.name, field.type) for field in columns])
    return make_changes(describe_stream(name_changes(name), nullable, time, lateness), names, list_required(schema))


def make_changes(stream: Stream, key: Sequence[str], required: Sequence[str] = ()) -> Stream:
    """A stream as that of an updating table: with its key, which is never NULL, and with `_op`."""
    spelling = {column.casefold(): column for column in stream.schema.names}
    for column in key:
        if column.casefold() not in spelling:
            known, hint = ", ".join(stream.schema.names), suggest_similar(column, stream.schema.names)
            raise QueryError("UNKNOWN_COLUMN", f"unknown key column {column}; the columns are {known}{hint}")
    schema = stream.schema
    if OPERATION not in spelling:
        schema = schema.append(pa.field(OPERATION, STRING))
    elif schema.field(OPERATION).type != STRING:
        raise QueryError("OP_TYPE", f"{OPERATION} is a string, '+' or '-', not {schema.field(OPERATION).type}")
    names = tuple(dict.fromkeys(spelling[column.casefold()] for column in key))
    return replace(stream, schema=schema, key=names, required=tuple(dict.fromkeys((*names, *required))))


def write_table_query(changes: Stream) -> str:
    """The query of the view over the changes of an updating table."""
    columns = ", ".join(quote_name(name) for name in changes.schema.names if name != OPERATION)
    key = ", ".join(map(quote_name, changes.key))
    source = f"{quote_name(changes.name)} [PARTITION BY {key} ROWS 1]"
    return f"SELECT {columns} FROM {source} WHERE {OPERATION} IS NULL OR {OPERATION} <> '-'"
