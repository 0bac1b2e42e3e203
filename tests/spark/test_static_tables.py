"""Static tables of any size: they are files of the checkpoint, read by the tasks."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
from spark_support import drain, read_stream, write_file

import penstock as ps
from penstock.spark import sinks

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
ROWS = 200_000
"""About 5 MB: Spark makes closures of more than 1 MB broadcast variables."""
TEXT = "SELECT s.ts, r.name FROM s [NOW], rooms AS r WHERE s.k = r.k"


def make_table(prefix: str) -> pa.Table:
    return pa.table({"k": range(ROWS), "name": [f"{prefix}{k:012d}" for k in range(ROWS)]})


def start(spark: Any, folder: Path, table: pa.Table, number: int) -> list[str]:
    """The names that a run of one more micro-batch finds."""
    keys = [0, 77_777, ROWS - 1, ROWS]
    write_file(folder / "s" / f"{number}.parquet", pa.table([[number] * 4, keys], schema=SCHEMA), number)
    pipe, answers = ps.Pipeline(spark), sinks.memory()
    pipe.stream("s", read_stream(spark, SCHEMA, folder / "s"), "ts", late=sinks.memory(), dead=sinks.memory())
    pipe.table("rooms", table)
    pipe.query("q", TEXT, sink=answers)
    drain(pipe.start(folder / "ck", cells=2), finish=False)
    return sorted(answers.table().column("name").to_pylist())


def list_files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "ck" / "tables").iterdir() if path.suffix == ".arrow")


def test_large_table_survives_restarts(spark: Any, tmp_path: Path) -> None:
    assert start(spark, tmp_path, make_table("a"), 1) == ["a000000000000", "a000000077777", f"a{ROWS - 1:012d}"]
    first = list_files(tmp_path)
    assert start(spark, tmp_path, make_table("a"), 2) == ["a000000000000", "a000000077777", f"a{ROWS - 1:012d}"]
    assert list_files(tmp_path) == first
    assert start(spark, tmp_path, make_table("b"), 3) == ["b000000000000", "b000000077777", f"b{ROWS - 1:012d}"]
    second = list_files(tmp_path)
    assert len(first) == len(second) == 1
    assert first != second  # the old content was removed


def test_stored_table_is_sent_by_reference(tmp_path: Path) -> None:
    from penstock.spark.static_tables import StaticTable
    from penstock.spark.storage import Folder

    table = StaticTable.of(make_table("a"))
    stored = table.store(Folder(str(tmp_path)), print)
    sent = pickle.dumps(stored)
    assert len(sent) < 2_000
    assert pickle.loads(sent).read().equals(make_table("a"))
    assert stored.id == StaticTable.of(make_table("a").slice(0)).id
    assert stored.id != StaticTable.of(make_table("b")).id
    assert StaticTable.of(pa.concat_tables([make_table("a").slice(0, 5), make_table("a").slice(5)])).id == stored.id
