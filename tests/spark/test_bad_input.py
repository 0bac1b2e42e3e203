"""Bad input and failing sinks: the error has a condition, and no row is lost or duplicated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults import FailingTaskSink
from inspect_spark import wait_for_listeners
from pyspark.sql.streaming import StreamingQueryListener
from spark_support import read_stream, write_file

import penstock as ps
from penstock.spark import sinks
from penstock.spark.driver.failures import translate_error
from penstock.spark.run import Run

SCHEMA = pa.schema([("ts", pa.int64()), ("v", pa.float64())])


def make_rows(number: int) -> pa.Table:
    return pa.table({"ts": [10 * number + i for i in range(10)], "v": [float(number)] * 10}, SCHEMA)


def write_corrupt_file(path: Path, number: int) -> None:
    write_file(path, make_rows(number), number)
    path.write_bytes(b"this is not a Parquet file")


def write_other_schema(path: Path, number: int) -> None:
    write_file(path, pa.table({"ts": [10 * number], "v": ["a text"]}), number)


def start_run(spark: Any, folder: Path, sink: Any = None) -> Run:
    pipe = ps.Pipeline(spark)
    pipe.stream("t", read_stream(spark, SCHEMA, folder / "t"), "ts")
    pipe.query("q", "SELECT v FROM t [NOW]", sink=sink or sinks.parquet(str(folder / "out")))
    return pipe.start(folder / "ck", cells=1)


def wait_for_failure(run: Run) -> ps.PenstockError:
    try:
        with pytest.raises(ps.PenstockError) as caught:
            run.processAllAvailable()
    finally:
        run.stop()
    assert run.exception() is not None
    return caught.value


@pytest.mark.parametrize("spoil", [write_corrupt_file, write_other_schema])
def test_unreadable_file_is_named(spark: Any, tmp_path: Path, spoil: Callable[[Path, int], None]) -> None:
    write_file(tmp_path / "t" / "0.parquet", make_rows(0), 0)
    bad = tmp_path / "t" / "1.parquet"
    spoil(bad, 1)
    error = wait_for_failure(start_run(spark, tmp_path))
    assert isinstance(error, ps.DataError)
    assert error.condition == "SOURCE_UNREADABLE"
    assert str(bad) in str(error)
    write_file(bad, make_rows(1), 1)
    run = start_run(spark, tmp_path)
    run.processAllAvailable()
    run.stop()
    assert sorted(pq.read_table(tmp_path / "out").column("v").to_pylist()) == [0.0] * 10 + [1.0] * 10


def test_failing_sink_is_named_and_batch_repeated(spark: Any, tmp_path: Path) -> None:
    """Spark's query listeners receive the id, the run id and the name of the pipeline."""
    heard: list[tuple[str, str, str]] = []

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            heard.append(("started", str(event.id), event.name))

        def onQueryProgress(self, event: Any) -> None:
            heard.append(("progress", str(event.progress.runId), event.progress.name))

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            heard.append(("terminated", str(event.runId), str(event.exception)))

    for number in range(3):
        write_file(tmp_path / "t" / f"{number}.parquet", make_rows(number), number)
    listener = Listener()
    spark.streams.addListener(listener)
    try:
        run = start_run(spark, tmp_path, FailingTaskSink(sinks.parquet(str(tmp_path / "out")), 1))
        error = wait_for_failure(run)
        again = start_run(spark, tmp_path)
        again.processAllAvailable()
        again.stop()
        wait_for_listeners(spark)
    finally:
        spark.streams.removeListener(listener)
    assert error.condition == "SINK_FAILED"
    assert "sink of q failed in micro-batch 1: ValueError: the disk is full" in str(error)
    assert pq.read_table(tmp_path / "out").num_rows == 30
    assert run.id == again.id
    assert run.runId != again.runId
    assert ("started", run.id, run.name) in heard
    assert ("progress", again.runId, again.name) in heard
    assert any(what == "terminated" and run_id == run.runId and "disk is full" in said for what, run_id, said in heard)


class UnopenableSink:
    """A sink that cannot be opened."""

    def open(self, run: str, name: str, schema: pa.Schema) -> None:
        del run, schema
        raise ValueError(f"no door for {name}")

    def write(self, batch: int, rows: pa.Table) -> None:
        del batch, rows
        raise AssertionError("it was never opened")


def test_sink_failing_to_open_changes_nothing(spark: Any, tmp_path: Path) -> None:
    """A sink that cannot be opened raises in `add` and does not end the run."""
    write_file(tmp_path / "t" / "0.parquet", make_rows(0), 0)
    with pytest.raises(ps.PenstockError, match=r"SINK_FAILED.*sink of q cannot be opened: ValueError: no door for q"):
        start_run(spark, tmp_path, UnopenableSink())
    kept = sinks.memory()
    run = start_run(spark, tmp_path, kept)
    try:
        for sink, condition in ((UnopenableSink(), "SINK_FAILED"), ("out/folder", "NOT_A_SINK"), (3, "NOT_A_SINK")):
            with pytest.raises(ps.PenstockError, match=condition):
                run.add("more", "SELECT ts FROM t [NOW]", sink=sink)
        with pytest.raises(ps.QueryError, match="BAD_BUDGET"):
            run.budget(True)
        more = sinks.memory()
        run.add("more", "SELECT ts FROM t [NOW]", sink=more)
        write_file(tmp_path / "t" / "1.parquet", make_rows(1), 1)
        run.processAllAvailable()
    finally:
        run.stop()
    assert kept.table().num_rows == 20
    assert more.table().num_rows == 10


def test_invalid_checkpoint_folder_left_unchanged(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "ck").write_text("a file")
    with pytest.raises(ps.DataError, match="FOLDER_UNREACHABLE"):
        start_run(spark, tmp_path)
    (tmp_path / "ck").unlink()
    write_file(tmp_path / "t" / "0.parquet", make_rows(0), 0)
    writer = read_stream(spark, SCHEMA, tmp_path / "t").writeStream.format("noop")
    other = writer.option("checkpointLocation", str(tmp_path / "ck")).start()
    other.processAllAvailable()
    other.stop()
    with pytest.raises(ps.QueryError, match=r"CHECKPOINT_DIFFERS.*another streaming query"):
        start_run(spark, tmp_path)
    assert not (tmp_path / "ck" / "penstock.json").exists()


def test_memory_sink_keeps_rows_of_several_runs(spark: Any, tmp_path: Path) -> None:
    """Every checkpoint counts its micro-batches from 0."""
    kept = sinks.memory()
    for number in range(2):
        write_file(tmp_path / str(number) / "t" / "0.parquet", make_rows(number), 0)
        run = start_run(spark, tmp_path / str(number), kept)
        run.processAllAvailable()
        run.stop()
    assert kept.table().column("v").to_pylist() == [0.0] * 10 + [1.0] * 10


def test_spark_error_without_class_is_kept() -> None:
    said = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: It broke. SQLSTATE: XXKST\n=== plan"
    assert str(translate_error(RuntimeError(said))).startswith("[RUN_FAILED] It broke.; fix the cause")
