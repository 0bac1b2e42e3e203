"""The commit protocol of file sinks, without Spark: whatever attempts there were, the committed rows are there once."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.spark import sinks
from penstock.spark.sinks import Attempt, check_folders, clear_folders, describe_sink, from_connector, sink_connector
from penstock.spark.sinks.driver_files import DriverFileSink
from penstock.spark.sinks.formats import PARQUET

RUN = "0123456789abcdef"
CELLS = 3


def open_sink(folder: Path, name: str = "q", **options: Any) -> sinks.TaskSink:
    sink = sinks.parquet(str(folder), **options)
    sink.open(RUN, name, pa.schema([("x", pa.int64())]))
    return sink


def make_batches(batch: int, cell: int, rows: int = 5) -> Iterator[pa.RecordBatch]:
    values = [1000 * batch + 100 * cell + row for row in range(rows)]
    yield from pa.table({"x": values}).to_batches(2)


def write(sink: sinks.TaskSink, batch: int, cell: int, token: str, rows: int = 5) -> Any:
    """As a task writes: with a pickled sink."""
    return pickle.loads(pickle.dumps(sink)).write(Attempt(batch, cell, token), make_batches(batch, cell, rows))


def read(folder: Path) -> list[int]:
    return sorted(ds.dataset(folder, format="parquet").to_table().column("x").to_pylist())


def list_values(*batches: int, rows: int = 5) -> list[int]:
    return [1000 * batch + 100 * cell + row for batch in batches for cell in range(CELLS) for row in range(rows)]


def list_staged(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and "_penstock" in path.parts]


def test_attempts_and_zombies_leave_one_copy(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    for batch in range(3):
        write(sink, batch, 1, "failed")
        messages = [write(sink, batch, cell, f"good{cell}") for cell in range(CELLS)]
        write(sink, batch, 0, "speculative")
        if batch:
            write(sink, batch - 1, 0, "zombie")
        sink.commit(batch, messages)
    assert read(tmp_path) == list_values(0, 1, 2)
    assert pq.read_table(tmp_path).num_rows == 3 * CELLS * 5
    names = sorted(path.name for path in tmp_path.glob("*.parquet"))
    assert names[0] == "part-01234567-q-00000000-00000-000.parquet"
    assert {path.name.split("-")[1] for path in list_staged(tmp_path)} == {"zombie"}
    again = open_sink(tmp_path)  # the next start removes what zombies left
    again.commit(3, [write(again, 3, cell, "x") for cell in range(CELLS)])
    assert not list_staged(tmp_path)
    assert read(tmp_path) == list_values(0, 1, 2, 3)


@pytest.mark.parametrize("done", range(CELLS + 1))
def test_repeated_batch_after_part_of_a_commit(tmp_path: Path, done: int) -> None:
    """The driver ends before, within or after the commit; the repeated micro-batch has fewer files, or no rows."""
    for rows in (5, 3, 0):
        sink = open_sink(tmp_path / str(rows), file_size=1)
        sink.commit(0, [write(sink, 0, cell, "a") for cell in range(CELLS)])
        crashed = pickle.loads(pickle.dumps(sink))
        crashed.commit(1, [write(sink, 1, cell, "a") for cell in range(CELLS)][:done])
        write(sink, 1, 0, "left")
        again = open_sink(tmp_path / str(rows), file_size=1)
        again.commit(1, [write(again, 1, cell, "b", rows) for cell in range(CELLS)] if rows else [])
        assert read(tmp_path / str(rows)) == sorted([*list_values(0), *list_values(1, rows=rows)])
        assert not list_staged(tmp_path / str(rows))


def test_random_attempts_and_restarts(tmp_path: Path) -> None:
    rng = random.Random(7)
    sink, batch = open_sink(tmp_path, file_size=1), 0
    for step in range(200):
        messages = []
        for cell in range(CELLS):
            for attempt in range(rng.randint(1, 3)):
                message = write(sink, batch, cell, f"{step}-{attempt}", rows=5)
            messages.append(message)
        outcome = rng.choice(("committed", "committed", "failed", "half", "unrecorded"))
        if outcome != "failed":
            sink.commit(batch, messages[: CELLS // 2] if outcome == "half" else messages)
        if outcome == "committed":
            batch += 1
        else:
            sink = open_sink(tmp_path, file_size=1)
    sink.commit(batch, [write(sink, batch, cell, "end") for cell in range(CELLS)])
    assert read(tmp_path) == list_values(*range(batch + 1))


def test_queries_and_runs_share_a_folder(tmp_path: Path) -> None:
    first, second = open_sink(tmp_path, "q-00000000"), open_sink(tmp_path, "q")
    for sink in (first, second):
        sink.commit(0, [write(sink, 0, cell, "a") for cell in range(CELLS)])
    other = sinks.parquet(str(tmp_path))
    other.open("another run", "q", pa.schema([("x", pa.int64())]))
    other.commit(0, [])
    assert read(tmp_path) == sorted(list_values(0) * 2)


def test_file_of_another_machine_is_explained(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    with pytest.raises(ps.DataError, match=r"SINK_NOT_SHARED.*all executors reach"):
        sink.commit(0, [{"cell": 0, "files": ["00000-elsewhere-000.parquet"]}])


def test_local_uri(tmp_path: Path) -> None:
    sink = sinks.parquet(f"file://{tmp_path}/out")
    sink.open(RUN, "q", pa.schema([("x", pa.int64())]))
    sink.commit(0, [write(sink, 0, cell, "a") for cell in range(CELLS)])
    assert read(tmp_path / "out") == list_values(0)


def test_files_written_by_the_driver(tmp_path: Path) -> None:
    """For URIs that pyarrow does not know; a repeated micro-batch replaces its file."""
    sink = DriverFileSink(str(tmp_path), PARQUET)
    sink.open(RUN, "q", pa.schema([("x", pa.int64())]))
    for batch, rows in ((0, 5), (1, 5), (1, 3), (2, 5), (2, 0)):
        sink.write(batch, pa.Table.from_batches(list(make_batches(batch, 0, rows)), pa.schema([("x", pa.int64())])))
    assert read(tmp_path) == [0, 1, 2, 3, 4, 1000, 1001, 1002]
    with pytest.raises(ps.DataError, match="FOLDER_IN_USE"):
        check_folders([sink], "another run")


def test_files_end_at_a_size(tmp_path: Path) -> None:
    sink = open_sink(tmp_path, file_size=1)
    message = write(sink, 0, 0, "a")
    sink.commit(0, [message])
    parts = [pq.read_table(path).column("x").to_pylist() for path in sorted(tmp_path.glob("*.parquet"))]
    assert parts == [[0, 1], [2, 3], [4]]


def test_folder_with_results_of_another_run(tmp_path: Path) -> None:
    """Refused, added to or replaced; files that are no results stay."""
    other = open_sink(tmp_path)
    other.commit(0, [write(other, 0, 0, "a")])
    (tmp_path / "notes.parquet").touch()
    for mode, count in (("append", 2), ("overwrite", 1)):
        sink = sinks.parquet(str(tmp_path), mode=mode)
        check_folders([sink])
        clear_folders([sink], "another run")
        assert len(list(tmp_path.iterdir())) == count + 1  # with the folder of staged files
    other.commit(0, [write(other, 0, 0, "a")])
    check_folders([sinks.parquet(str(tmp_path))], RUN)
    with pytest.raises(ps.DataError, match="FOLDER_IN_USE"):
        check_folders([sinks.parquet(str(tmp_path))])
    with pytest.raises(ps.QueryError, match="BAD_MODE"):
        sinks.parquet(str(tmp_path), mode="sometimes")  # type: ignore[arg-type]
    assert describe_sink(sinks.parquet(str(tmp_path))) == f"parquet files in {tmp_path}"


def test_sizes_and_options() -> None:
    assert sinks.memory(limit="1.5 KB").limit == 1536
    assert from_connector("s", "memory", {"limit": "2 MB"}).limit == 2 * 2**20  # type: ignore[union-attr]
    assert isinstance(from_connector("s", "orc", {"path": "out", "fileSize": "1 GB"}), sinks.FileSink)
    assert isinstance(from_connector("s", "delta", {"path": "out"}), sinks.TaskSink)
    assert isinstance(from_connector("s", "jdbc", {"url": "jdbc:x"}), sinks.FrameSink)
    for made in (sinks.csv("out", header=False, mode="append", file_size=5), sinks.parquet("out"), sinks.console()):
        connector = sink_connector(made)
        assert connector is not None
        assert sink_connector(from_connector("s", connector.format, dict(connector.options))) == connector
    assert sink_connector(sinks.memory()) is None
    for size in ("much", 0, -1, True, "5 XB"):
        with pytest.raises(ps.QueryError, match="BAD_SIZE"):
            sinks.memory(limit=size)
    for function in (sinks.foreach, sinks.foreachBatch):
        with pytest.raises(ps.QueryError, match="NOT_CALLABLE"):
            function(3)  # type: ignore[operator]
