"""Static tables of a script, read from files by pyarrow: CSV, JSON lines and Parquet.

Files are read as Spark reads them, so that a script means the same embedded and on Spark: the columns of a CSV file are
taken by position, those of other formats by name; an empty CSV field is NULL; a folder stands for its files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pa_parquet

from penstock.cql import Table
from penstock.errors import DataError, UnsupportedError
from penstock.ops import fit_columns

_READABLE_OPTIONS = {
    "csv": ("path", "header", "sep", "delimiter", "quote"),
    "json": ("path",),
    "parquet": ("path",),
}
"""The options of each format that can be read without Spark."""


def read_table_file(table: Table) -> pa.Table:
    """The rows of a table that a script declares, in its declared types."""
    format_, options = _check_connector(table)
    try:
        parts = [_read_file(path, format_, options, table.schema) for path in _list_files(table, options["path"])]
    except (OSError, pa.ArrowException) as error:
        message = f"{table.name} cannot be read from {options['path']}: {error}"
        raise DataError("TABLE_UNREADABLE", message, table=table.name) from error
    fitted = [pa.table(fit_columns(table.name, part, table.schema), schema=table.schema) for part in parts]
    return pa.concat_tables([table.schema.empty_table(), *fitted])


def _check_connector(table: Table) -> tuple[str, dict[str, str]]:
    """The format and options of a table, if it can be read without Spark."""
    remedy = f'give its rows: Engine.from_script(..., tables={{"{table.name}": rows}})'
    if table.connector is None:
        raise DataError("NO_SOURCE", f"{table.name} has no FROM; {remedy}", table=table.name)
    format_ = table.connector.format.casefold()
    options = {name.casefold(): value for name, value in table.connector.options}
    if format_ not in _READABLE_OPTIONS:
        known = ", ".join(_READABLE_OPTIONS)
        message = f"{table.name} is read from {format_}, which needs Spark (without it: {known}); {remedy}"
        raise UnsupportedError("TABLE_FORMAT", message, table=table.name, format=format_)
    unknown = [name for name in options if name not in _READABLE_OPTIONS[format_]]
    if unknown:
        message = f"{table.name}: the option {unknown[0]} of {format_} needs Spark; {remedy}"
        raise UnsupportedError("TABLE_OPTION", message, table=table.name, option=unknown[0])
    return format_, options


def _list_files(table: Table, path: str) -> list[Path]:
    """The file of a path, or the files of a folder, without hidden ones."""
    place = Path(path.removeprefix("file:"))
    if not place.is_dir():
        return [place]
    files = sorted(each for each in place.iterdir() if each.is_file() and each.name[0] not in "._")
    if not files:
        raise DataError("TABLE_UNREADABLE", f"{table.name}: the folder {path} has no files", table=table.name)
    return files


def _read_file(path: Path, format_: str, options: dict[str, str], schema: pa.Schema) -> pa.Table:
    if format_ == "parquet":
        table = pa_parquet.read_table(path)
        wanted = {name.casefold() for name in schema.names}
        return table.select([name for name in table.column_names if name.casefold() in wanted])
    types = {field.name: _choose_file_type(field.type) for field in schema}
    if format_ == "json":
        parsing = pa_json.ParseOptions(explicit_schema=pa.schema(types), unexpected_field_behavior="ignore")
        return pa_json.read_json(path, parse_options=parsing)
    return _read_csv(path, options, types)


def _read_csv(path: Path, options: dict[str, str], types: dict[str, pa.DataType]) -> pa.Table:
    header = options.get("header", "false").casefold() == "true"
    separator = options.get("sep", options.get("delimiter", ","))
    reading: Any = pa_csv.ReadOptions(column_names=list(types), skip_rows=1 if header else 0)
    parsing = pa_csv.ParseOptions(delimiter=separator, quote_char=options.get("quote", '"'))
    converting = pa_csv.ConvertOptions(
        column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    return pa_csv.read_csv(path, reading, parsing, converting)


def _choose_file_type(type_: pa.DataType) -> pa.DataType:
    """The type in which a column of a text file is read. Times are read as text, because only some have an offset."""
    return pa.string() if pa.types.is_timestamp(type_) else type_
