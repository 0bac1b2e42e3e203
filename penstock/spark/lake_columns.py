"""Columns of tables of Delta Lake and Iceberg, compared with declared ones."""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import DataError


def check_columns(what: str, found: pa.Schema, wanted: pa.Schema) -> None:
    missing = [name for name in wanted.names if name not in found.names]
    if missing:
        message = f"{what} has no column {', '.join(missing)}; it has {', '.join(found.names)}"
        raise DataError("SOURCE_SCHEMA", message)


def cast_rows(what: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    try:
        return rows.select(schema.names).cast(schema)
    except pa.ArrowException as error:
        message = f"{what} does not have the declared types: {error}; change the declaration"
        raise DataError("SOURCE_SCHEMA", message) from None
