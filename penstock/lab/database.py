"""DuckDB as the reference: whole streams as tables, joined in one batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa


def load_database(tables: Mapping[str, pa.Table]) -> duckdb.DuckDBPyConnection:
    """A database in memory with two threads that holds these tables. Times, the first column, become integers."""
    database = duckdb.connect(config={"threads": 2})
    database.execute("SET enable_progress_bar = false")
    for name, table in tables.items():
        database.register("whole", table.set_column(0, "ts", table.column("ts").cast(pa.int64())))
        database.execute(f"CREATE TABLE {name} AS SELECT * FROM whole")
        database.unregister("whole")
    return database


def list_rounded_rows(table: pa.Table, digits: int) -> list[tuple[Any, ...]]:
    """The rows of an answer; doubles are rounded to so many digits, because sums are added in different orders."""
    columns = [
        [None if value is None else float(f"{value:.{digits}g}") for value in column.to_pylist()]
        if pa.types.is_floating(column.type)
        else column.to_pylist()
        for column in table.columns
    ]
    return list(zip(*columns, strict=True))
