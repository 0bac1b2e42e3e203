"""DuckDB as the reference: whole streams as tables, joined in one batch."""

from __future__ import annotations

from collections.abc import Mapping

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
