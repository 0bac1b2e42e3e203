"""The files of static tables of frames. A frame has no checkpoint until the user starts it, so files are temporary.

They are named after their content and live as long as the driver. Tasks of a local session map them into memory; to
other nodes, and to the server of Spark Connect, Spark sends them. Streaming queries of Spark Connect do not see such
files (Spark 4.3): their tables are part of the functions that tasks call, and must be small.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.errors import UnsupportedError
from penstock.spark.environment import is_connect
from penstock.spark.static_tables import StaticTable, write_table_file
from penstock.state import format_size

_EMBEDDED_BYTES = 2**19


def store_tables(spark: SparkSession, tables: Mapping[str, pa.Table], *, streaming: bool) -> dict[str, StaticTable]:
    """Static tables that the tasks of a session can read."""
    if streaming and is_connect(spark):
        return {name: _embed_table(name, table) for name, table in tables.items()}
    return {name: _store_table(spark, StaticTable.of(table)) for name, table in tables.items()}


def _embed_table(name: str, table: pa.Table) -> StaticTable:
    if table.nbytes > _EMBEDDED_BYTES:
        raise UnsupportedError(
            "TABLE_TOO_LARGE",
            f"over Spark Connect a streaming frame reads tables up to {format_size(_EMBEDDED_BYTES)}, and {name} "
            f"has {format_size(table.nbytes)}; select fewer columns or rows, or leave it out of the query and join "
            "the result with it: frame.join(df, ...)",
            table=name,
        )
    return StaticTable.of(table.combine_chunks())


def _store_table(spark: SparkSession, table: StaticTable) -> StaticTable:
    path = _create_folder() / table.file_name
    if not path.exists():
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            write_table_file(table.read(), file)
        part.rename(path)
    if is_connect(spark):
        spark.addArtifacts(str(path), file=True)
        return replace(table, path=table.file_name, sent=True)
    context = spark.sparkContext
    if (context.master or "").partition("[")[0] == "local":
        return replace(table, path=str(path))
    context.addFile(str(path))
    return replace(table, path=table.file_name, sent=True)


@cache
def _create_folder() -> Path:
    """The folder of this process; it is removed at its end."""
    folder = tempfile.mkdtemp(prefix="penstock-tables-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
