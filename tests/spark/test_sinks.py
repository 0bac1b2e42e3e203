"""Sinks on Spark: tasks write and the driver commits, sinks in the driver have a limit, empty sinks are skipped."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.json as pa_json
import pyarrow.parquet as pq
import pytest
from inspect_spark import limit_driver_results
from recording_sink import RecordingSink
from spark_support import drain, read_stream, write_file

import penstock as ps
from penstock.spark import sinks
from penstock.spark.run import Run
from penstock.testing import difference

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.string())])
TEXT = "SELECT a.v AS left, b.v AS right FROM a [RANGE 10] AS a, b [RANGE 10] AS b WHERE a.k = b.k"
EMPTY = "SELECT v FROM a [NOW] WHERE k < 0"
LIMIT = 200_000
"""Less than the results of `make_rows`, as Spark compresses them."""


def make_rows(number: int, rows: int = 300) -> pa.Table:
    """Rows whose join is larger than the rows."""
    values = [hashlib.sha256(f"{number} {row}".encode()).hexdigest() for row in range(rows)]
    return pa.table({"ts": [100 * number + row % 5 for row in range(rows)], "k": [row % 3 for row in range(rows)],
                     "v": values}, SCHEMA)  # fmt: skip


def write_rows(folder: Path, *numbers: int) -> None:
    for number in numbers:
        for name in "ab":
            write_file(folder / name / f"{number}.parquet", make_rows(number), number)


def compute_results(*numbers: int, text: str = TEXT) -> pa.Table:
    engine = ps.Engine()
    for name in "ab":
        engine.stream(name, SCHEMA, time="ts")
    engine.query("q", text)
    found = [engine.push(dict.fromkeys("ab", make_rows(number)))["q"] for number in numbers]
    return pa.concat_tables([*found, engine.flush()["q"]])


def declare(spark: Any, folder: Path) -> ps.Pipeline:
    pipe = ps.Pipeline(spark)
    for name in "ab":
        pipe.stream(name, read_stream(spark, SCHEMA, folder / name), "ts")
    return pipe


def start_run(spark: Any, folder: Path, sink: Any, text: str = TEXT) -> Run:
    pipe = declare(spark, folder)
    pipe.query("q", text, sink=sink)
    return pipe.start(folder / "ck", cells=2)


def fail_run(run: Run) -> ps.PenstockError:
    try:
        with pytest.raises(ps.PenstockError) as caught:
            run.processAllAvailable()
    finally:
        run.stop()
    return caught.value


# ── written by tasks ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_results_larger_than_spark_takes_in_the_driver(spark: Any, tmp_path: Path) -> None:
    wanted = compute_results(0)
    assert wanted.nbytes > 10 * LIMIT
    write_rows(tmp_path, 0)
    with limit_driver_results(spark, LIMIT):
        run = drain(start_run(spark, tmp_path, sinks.parquet(str(tmp_path / "out"))), finish=True)
    assert difference(pq.read_table(tmp_path / "out"), wanted) is None
    assert spark.read.parquet(str(tmp_path / "out")).count() == wanted.num_rows
    assert run.metrics()["queries"]["q"]["written"] == wanted.num_rows
    observed = [progress["observedMetrics"].get("penstock") for progress in run.recentProgress]
    assert sum(each["results"] for each in observed if each is not None) == wanted.num_rows


def read_orc(folder: Path) -> pa.Table:
    return ds.dataset(folder, format="orc").to_table()


def read_csv(folder: Path) -> pa.Table:
    return pa.concat_tables(pa_csv.read_csv(file) for file in sorted(folder.glob("*.csv")))


def read_json(folder: Path) -> pa.Table:
    return pa.concat_tables(pa_json.read_json(file) for file in sorted(folder.glob("*.json")))


def test_file_formats_in_temporal_order(spark: Any, tmp_path: Path) -> None:
    """Every format in one run, and two queries into one folder."""
    pipe = declare(spark, tmp_path)
    readers: dict[str, Callable[[Path], pa.Table]] = {"orc": read_orc, "csv": read_csv, "json": read_json}
    for name in readers:
        pipe.query(name, TEXT, sink=getattr(sinks, name)(tmp_path / name))
    for name in ("first", "second"):
        pipe.query(name, TEXT, sink=sinks.parquet(str(tmp_path / "shared")))
    write_rows(tmp_path, 0, 1)
    drain(pipe.start(tmp_path / "ck", cells=2), finish=True)
    wanted = compute_results(0, 1)
    for name, read in readers.items():
        assert difference(read(tmp_path / name).cast(wanted.schema), wanted) is None, name
    for name in ("first", "second"):
        files = sorted((tmp_path / "shared").glob(f"*-{name}-*.parquet"))
        tables = [pq.read_table(file) for file in files]
        times = [table.column("_ts").to_pylist() for table in tables]
        assert len(times) > 2
        assert all(each == sorted(each) for each in times)
        assert difference(pa.concat_tables(tables), wanted) is None


def test_all_late_stream_is_written_by_tasks(spark: Any, tmp_path: Path) -> None:
    """Late rows and rows without a time, more than Spark takes in the driver."""
    write_file(tmp_path / "a" / "0.parquet", make_rows(5, 10), 0)
    rows = make_rows(0, 40_000)
    dead = rows.set_column(0, "ts", pa.nulls(rows.num_rows, pa.int64()))
    write_file(tmp_path / "a" / "1.parquet", rows, 1)
    write_file(tmp_path / "a" / "2.parquet", dead, 2)
    with limit_driver_results(spark, LIMIT):
        run = drain(start_run(spark, tmp_path, sinks.memory(), EMPTY.replace("k < 0", "k = 0")))
    late, bad = (pq.read_table(tmp_path / "ck" / kind / "a") for kind in ("late", "dead"))
    wanted = rows.filter(pa.compute.equal(rows.column("k"), 0))
    assert late.schema.names == bad.schema.names == SCHEMA.names
    assert sorted(late.column("v").to_pylist()) == sorted(wanted.column("v").to_pylist())
    assert sorted(bad.column("v").to_pylist()) == sorted(rows.column("v").to_pylist())
    counted = run.metrics()["streams"]["a"]
    assert (counted["late"], counted["dead"]) == (late.num_rows, bad.num_rows)


def test_task_sink_of_a_user_also_of_an_added_query(spark: Any, tmp_path: Path) -> None:
    write_rows(tmp_path, 0)
    first, second = RecordingSink(tmp_path / "first"), RecordingSink(tmp_path / "second")
    run = start_run(spark, tmp_path, first)
    try:
        run.processAllAvailable()
        run.add("more", TEXT, sink=second)
        write_rows(tmp_path, 1)
        run.processAllAvailable()
        run.finish()
        run.processAllAvailable()
    finally:
        run.stop()
    assert difference(first.table(), compute_results(0, 1)) is None
    assert difference(second.table(), compute_results(1)) is None


def test_shared_sink_is_refused(spark: Any, tmp_path: Path) -> None:
    pipe = declare(spark, tmp_path)
    shared = sinks.parquet(str(tmp_path / "out"))
    pipe.query("q", TEXT, sink=shared)
    pipe.query("p", TEXT, sink=shared)
    with pytest.raises(ps.QueryError, match="SINK_SHARED"):
        pipe.start(tmp_path / "ck", cells=1)


# ── written by Spark ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_spark_writes_frames(spark: Any, tmp_path: Path) -> None:
    """A format by its name, and a function of a frame, beside a sink that tasks write."""
    pipe = declare(spark, tmp_path)
    counts: dict[int, int] = {}
    pipe.query("orc", TEXT, sink=sinks.spark("orc", path=str(tmp_path / "orc"), compression="zlib"))
    pipe.query("frames", TEXT, sink=sinks.foreachBatch(lambda frame, batch: counts.update({batch: frame.count()})))
    pipe.query("files", TEXT, sink=sinks.parquet(str(tmp_path / "files")))
    pipe.query("empty", EMPTY, sink=sinks.foreachBatch(lambda frame, batch: counts.update({-batch - 1: frame.count()})))
    write_rows(tmp_path, 0, 1)
    run = pipe.start(tmp_path / "ck", cells=2)
    with limit_driver_results(spark, LIMIT):
        drain(run, finish=True)
    wanted = compute_results(0, 1)
    written = spark.read.orc(str(tmp_path / "orc")).toArrow()
    assert difference(written.cast(wanted.schema), wanted) is None
    assert difference(pq.read_table(tmp_path / "files"), wanted) is None
    assert sum(counts.values()) == wanted.num_rows
    assert [batch for batch in counts if batch < 0] == [-1]
    assert run.metrics()["queries"]["frames"]["written"] == wanted.num_rows


def test_frame_columns_and_timestamps(spark: Any, tmp_path: Path) -> None:
    times = pa.array([1_700_000_000_000_000, None, 1_700_000_000_500_000], pa.timestamp("us"))
    table = pa.table({"ts": times, "d": [1.5, 2.5, None], "b": [True, None, False]})
    write_file(tmp_path / "t" / "0.parquet", table, 0)
    pipe, kept = ps.Pipeline(spark), []
    frame = spark.readStream.schema("ts timestamp, d double, b boolean").parquet(str(tmp_path / "t"))
    pipe.stream("t", frame, "ts")
    sink = sinks.foreachBatch(lambda frame, _: kept.append((frame.dtypes, frame.toArrow())))
    pipe.query("q", "SELECT ts AS `the.time`, d, b FROM t [NOW]", sink=sink)
    drain(pipe.start(tmp_path / "ck", cells=1), finish=True)
    assert kept[0][0] == [("the.time", "timestamp"), ("d", "double"), ("b", "boolean"), ("_ts", "timestamp")]
    found = pa.concat_tables(rows for _, rows in kept)
    assert found.column("d").to_pylist() == [1.5, None]
    assert found.column("_ts").cast(pa.int64()).to_pylist() == [1_700_000_000_000_000, 1_700_000_000_500_000]


# ── written in the driver ────────────────────────────────────────────────────────────────────────────────────────────


def test_driver_limit_names_query_and_continues_after_raise(spark: Any, tmp_path: Path) -> None:
    write_rows(tmp_path, 0, 1)
    wanted = compute_results(0, 1)
    error = fail_run(start_run(spark, tmp_path, sinks.memory(limit="100 KB")))
    assert error.condition == "RESULTS_TOO_LARGE"
    assert "the result rows of q in micro-batch" in str(error)
    assert "takes 100 KB" in str(error)
    assert "ps.sinks.parquet" in str(error)
    kept = sinks.memory(limit="100 MB")
    drain(start_run(spark, tmp_path, kept), finish=True)
    assert difference(kept.table(), wanted) is None
    assert kept.table().column("_ts").to_pylist() == wanted.column("_ts").to_pylist()


def test_spark_limit_of_the_driver_is_explained(spark: Any, tmp_path: Path) -> None:
    write_rows(tmp_path, 0, 1)
    with limit_driver_results(spark, LIMIT):
        error = fail_run(start_run(spark, tmp_path, sinks.memory()))
    assert error.condition == "RESULTS_TOO_LARGE"
    assert "spark.driver.maxResultSize" in str(error)
    assert "in the driver: q" in str(error)
    assert "no data is lost" not in str(error)
    drain(start_run(spark, tmp_path, sinks.parquet(str(tmp_path / "out"))), finish=True)
    assert difference(pq.read_table(tmp_path / "out"), compute_results(0, 1)) is None


class CountingSink:
    """Counts calls and their threads."""

    def __init__(self, meeting: threading.Barrier | None = None) -> None:
        self.batches: list[int] = []
        self.threads: set[int] = set()
        self._meeting = meeting

    def open(self, run: str, name: str, schema: pa.Schema) -> None:
        pass

    def write(self, batch: int, rows: pa.Table) -> None:
        if rows.num_rows and self._meeting is not None:
            self._meeting.wait(120)
        self.batches.append(batch)
        self.threads.add(threading.get_ident())


def test_empty_sinks_skipped_and_others_parallel(spark: Any, tmp_path: Path) -> None:
    """Two of fifty sinks have rows; they meet in every micro-batch. Empty ones are called in the first only."""
    meeting = threading.Barrier(2)
    busy, empty = [CountingSink(meeting) for _ in range(2)], [CountingSink() for _ in range(48)]
    rejected = [CountingSink() for _ in range(4)]
    pipe = ps.Pipeline(spark)
    for number, name in enumerate("ab"):
        frame = read_stream(spark, SCHEMA, tmp_path / name)
        pipe.stream(name, frame, "ts", late=rejected[2 * number], dead=rejected[2 * number + 1])
    for number, sink in enumerate([*busy, *empty]):
        pipe.query(f"q{number}", "SELECT v FROM a [NOW]" if sink in busy else EMPTY, sink=sink)
    write_rows(tmp_path, 0, 1, 2)
    drain(pipe.start(tmp_path / "ck", cells=1))
    assert [sink.batches for sink in busy] == [[0, 1, 2]] * 2
    assert [sink.batches for sink in [*empty, *rejected]] == [[0]] * 52
    assert all(len(sink.threads) == 1 for sink in busy)
