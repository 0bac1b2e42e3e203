"""The files of static tables of frames. A frame has no checkpoint until the user starts it, so files are temporary.

They are named after their content and live as long as the driver. Tasks of a local session map them into memory; to
other nodes, and to the server of Spark Connect, Spark sends them.
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

from penstock.spark.environment import is_connect
from penstock.spark.static_tables import StaticTable, write_table_file


def store_tables(spark: SparkSession, tables: Mapping[str, pa.Table]) -> dict[str, StaticTable]:
    """Static tables with files that the tasks of a session can read."""
    return {name: _store_table(spark, StaticTable.of(table)) for name, table in tables.items()}


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
