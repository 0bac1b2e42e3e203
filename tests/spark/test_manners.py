"""Types of `_ts` on Spark, descriptions of pipelines and runs, and runs in `with` blocks."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inspect_spark import list_local_properties
from notebook import show_html
from spark_support import write_file

import penstock as ps
from penstock.spark.run import Run

NAIVE, ZONED = pa.timestamp("us"), pa.timestamp("us", "UTC")
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCRIPT = """
CREATE STREAM z (ts TIMESTAMP, x BIGINT) TIMESTAMP BY ts FROM parquet OPTIONS (path '{0}/z');
CREATE SINK out TO parquet OPTIONS (path '{0}/script');
INSERT INTO out SELECT x FROM z [NOW] WHERE x < 2;
"""


def write_rows(folder: Path) -> None:
    """Three rows of the same instants, as TIMESTAMP (z) and as TIMESTAMP_NTZ (n)."""
    times = pa.array([START + timedelta(seconds=second) for second in range(3)], ZONED)
    for name, kind in (("z", ZONED), ("n", NAIVE)):
        write_file(folder / name / "0.parquet", pa.table({"ts": times.cast(kind), "x": [0, 1, 2]}), 0)


def build_pipeline(spark: Any, folder: Path) -> ps.Pipeline:
    pipe = ps.Pipeline(spark)
    for name, kind in (("z", "timestamp"), ("n", "timestamp_ntz")):
        frame = spark.readStream.schema(f"ts {kind}, x bigint").parquet(str(folder / name))
        pipe.stream(name, frame, "ts")
    pipe.query("zoned", "SELECT x FROM z [NOW] WHERE x < 2", sink=ps.sinks.parquet(str(folder / "zoned")))
    pipe.query("naive", "SELECT x FROM n [NOW] WHERE x < 2", sink=ps.sinks.parquet(str(folder / "naive")))
    pipe.query("both", "SELECT x FROM n UNION ALL SELECT x FROM z", sink=ps.sinks.parquet(str(folder / "both")))
    return pipe


def run_embedded(kind: pa.DataType, rows: pa.Table) -> pa.Table:
    engine = ps.Engine()
    engine.stream("s", pa.schema([("ts", kind), ("x", pa.int64())]), time="ts")
    engine.query("q", "SELECT x FROM s [NOW] WHERE x < 2")
    return engine.push({"s": rows})["q"]


def test_time_types_on_spark(spark: Any, tmp_path: Path) -> None:
    """A pipeline of DataFrames, a script and an embedded engine give the same type for the same time column."""
    write_rows(tmp_path)
    pipe = build_pipeline(spark, tmp_path)
    assert [pipe.queries[name].columns.field("_ts").type for name in pipe.queries] == [ZONED, NAIVE, ZONED]
    with pipe.start(tmp_path / "ck", cells=2) as run:
        run.processAllAvailable()
    script = ps.Pipeline.from_script(_write_script(tmp_path), spark)
    with script.start(tmp_path / "ck2", cells=2) as run:
        run.processAllAvailable()
    found = {name: pq.read_table(tmp_path / name).schema for name in ("zoned", "naive", "both", "script")}
    assert {name: schema.field("_ts").type for name, schema in found.items()} == {
        "zoned": ZONED, "naive": NAIVE, "both": ZONED, "script": ZONED,
    }  # fmt: skip
    for name, kind in (
        ("zoned", "timestamp"),
        ("naive", "timestamp_ntz"),
        ("both", "timestamp"),
        ("script", "timestamp"),
    ):
        assert dict(spark.read.parquet(str(tmp_path / name)).dtypes)["_ts"] == kind
    for name, kind in (("zoned", ZONED), ("naive", NAIVE), ("script", ZONED)):
        rows = pq.read_table(tmp_path / ("n" if name == "naive" else "z"))
        assert pq.read_table(tmp_path / name).sort_by("x").equals(run_embedded(kind, rows))


def _write_script(folder: Path) -> Path:
    path = folder / "script.cql"
    path.write_text(SCRIPT.format(folder))
    return path


def test_descriptions_and_with_block(spark: Any, tmp_path: Path) -> None:
    write_rows(tmp_path)
    pipe = build_pipeline(spark, tmp_path)
    text = "2 streams (z, n), 3 queries (zoned, naive, both)"
    assert repr(pipe) == f"<penstock.Pipeline: {text}>"
    assert pipe.queries["BOTH"].reads == ("n", "z")
    assert "&lt; 2" in show_html(pipe)
    with pipe.start(tmp_path / "ck", cells=2) as run:
        assert list(run.queries) == ["zoned", "naive", "both"]
        run.add("more", "SELECT z.x FROM z [NOW], n [NOW] WHERE z.x = n.x", sink=ps.sinks.memory(), plan="(n z)")
        assert (run.queries["more"].plan, run.queries["more"].state) == ("(n z)", "auto")
        run.drop("both")
        assert "3 queries (zoned, naive, more), 2 cells, running>" in repr(run)
        assert "SELECT z.x" in show_html(run)
    assert not run.isActive
    assert repr(run).endswith("stopped>")


@pytest.mark.parametrize("cls", [ps.Pipeline, Run])
def test_public_methods_are_documented(cls: type) -> None:
    members = [(name, member) for name, member in inspect.getmembers(cls) if not name.startswith("_")]
    assert not [name for name, member in members if not inspect.getdoc(member)]


def test_with_block_stops_after_errors(spark: Any, tmp_path: Path) -> None:
    """The block's own exception passes; without one, the failure of the run is raised."""
    write_rows(tmp_path)
    pipe = ps.Pipeline(spark)
    pipe.stream("z", spark.readStream.schema("ts timestamp, x bigint").parquet(str(tmp_path / "z")), "ts")

    def fail(_rows: pa.Table, _batch: int) -> None:
        raise RuntimeError("the sink is full")

    pipe.query("q", "SELECT x FROM z [NOW]", sink=ps.sinks.foreach(fail))
    runs = []

    def use(raised: type[Exception] | None) -> None:
        with pipe.start(tmp_path / f"ck{raised}", cells=1) as run:
            runs.append(run)
            with pytest.raises(ps.PenstockError):
                run.awaitTermination()
            if raised is not None:
                raise raised

    with pytest.raises(ZeroDivisionError):
        use(ZeroDivisionError)
    with pytest.raises(ps.PenstockError, match="the sink is full"):
        use(None)
    assert not any(run.isActive for run in runs)


def test_session_is_left_as_it_was(spark: Any, tmp_path: Path) -> None:
    """Settings and local properties of the session are the user's own after a start and after a stop."""
    write_rows(tmp_path)
    mine = {"spark.sql.adaptive.enabled": "true", "spark.sql.shuffle.partitions": "7",
            "spark.sql.streaming.metricsEnabled": "true"}  # fmt: skip
    before = {key: spark.conf.get(key, None) for key in mine}
    for key, value in mine.items():
        spark.conf.set(key, value)
    context = spark.sparkContext
    context.setLocalProperty("spark.job.description", "mine")
    try:
        settings, properties = spark.conf.getAll, list_local_properties(spark)
        pipe = build_pipeline(spark, tmp_path)
        with pipe.start(tmp_path / "ck", cells=3) as run:
            assert (spark.conf.getAll, list_local_properties(spark)) == (settings, properties)
            run.processAllAvailable()
            run.add("more", "SELECT x FROM z [NOW]", sink=ps.sinks.memory())
            assert (spark.conf.getAll, list_local_properties(spark)) == (settings, properties)
        assert (spark.conf.getAll, list_local_properties(spark)) == (settings, properties)
        with pytest.raises(ps.PenstockError):
            pipe.start(tmp_path / "ck", {"processingTime": "soon"})
        assert (spark.conf.getAll, list_local_properties(spark)) == (settings, properties)
        assert context.defaultParallelism != 3
        with pipe.start(tmp_path / "ck") as run:
            assert run.cells == 3  # those of the checkpoint
    finally:
        context.setLocalProperty("spark.job.description", None)
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)
