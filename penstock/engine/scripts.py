"""A CQL script in an engine: its streams, tables and queries. Sources are not read and sinks are not written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from penstock.cql import NameMap, Query, Script, Stream, Table, bind_script_text, read_script, zone_columns
from penstock.engine.inputs import TableData, read_table
from penstock.engine.table_files import read_table_file
from penstock.errors import QueryError
from penstock.ops import check_required, fit_columns

_STATEMENT = re.compile(r"\s*(--|/\*|\(|(create|insert|select|with|istream|dstream|rstream)\b)", re.IGNORECASE)
"""How the text of a script begins, in contrast to a path."""


class ScriptedEngine(Protocol):
    """The methods of an engine that a script calls."""

    def declare(self, stream: Stream) -> None: ...
    def table(self, name: str, data: TableData) -> None: ...
    def query(self, name: str, text: str | Query) -> None: ...
    def derive(self, name: str, text: str | Query) -> None: ...
    def view(self, name: str, text: str | Query) -> None: ...


def find_script(source: str | Path | Script) -> Script:
    """A script that is bound already, or the script in a file, or in a text that begins with a statement."""
    if isinstance(source, Script):
        return source
    if isinstance(source, str) and (";" in source or _STATEMENT.match(source)):
        return bind_script_text(source, "the script")
    if not isinstance(source, (str, Path)):
        raise QueryError("NOT_A_SCRIPT", f"a script is a text or a path, not a {type(source).__name__}")
    return read_script(Path(source))


def declare_script(engine: ScriptedEngine, script: Script, tables: Mapping[str, TableData]) -> None:
    """Declare streams, tables and queries. `tables` has the rows of tables that are not read from their files."""
    declared: NameMap[Table] = NameMap()
    for table in script.tables:
        declared.add(table)
    unknown = [name for name in tables if name not in declared]
    if unknown:
        message = f"the script has no table {unknown[0]}; it declares {', '.join(declared) or 'none'}"
        raise QueryError("UNKNOWN_TABLE", message, table=unknown[0])
    given = {declared[name].name: data for name, data in tables.items()}
    for stream in script.streams:
        engine.declare(replace(stream, schema=zone_columns(stream.schema)))
    for table in script.tables:
        zoned = replace(table, schema=zone_columns(table.schema))
        rows = _fit(zoned, given[table.name]) if table.name in given else read_table_file(zoned)
        check_required(zoned, rows)
        engine.table(table.name, rows)
    for name, query in script.queries.items():
        if name in script.views:
            engine.view(name, query.text)
        else:
            (engine.derive if name in script.derived_streams else engine.query)(name, query.text)


def _fit(table: Table, data: TableData) -> pa.Table:
    """Rows in the declared types of a table."""
    columns = fit_columns(table.name, read_table(table.name, data, table.schema), table.schema)
    return pa.table(columns, schema=table.schema)
