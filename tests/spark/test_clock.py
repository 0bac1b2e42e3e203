"""Rows that the pipeline stamps and streams that become idle: no result is held back, and batches are repeatable."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cell_support import Cluster
from spark_support import read_stream, wait_until, write_file

import penstock as ps
from penstock.spark import sinks
from penstock.spark.layout import Layout
from penstock.spark.pipeline_config import QuerySpec
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.batch import read_batch
from penstock.spark.worker.cell_state import METRICS, CellCache
from penstock.spark.worker.pack import Packer
from penstock.state import encode_table
from penstock.testing import Push

X = pa.schema([("x", pa.int64())])
TICKS = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
TIMED = pa.schema([("ts", pa.timestamp("us")), ("x", pa.int64())])


def test_backward_clock_is_ignored() -> None:
    stream = ps.cql.catalog.Stream("s", TIMED, "ts", timestamps="internal")
    layout = Layout(PipelineSpec((stream,), {}, (QuerySpec("q", "SELECT x FROM s [NOW]"),), 1))
    rows = Packer(layout, stream).pack(pa.table({"ts": [5, 9], "x": [1, 2]}, schema=TIMED), 0, 0).to_pylist()
    batch = read_batch(layout, 0, {"s": 7}, 0, [tuple(row.values())[1:] for row in rows])
    (table,) = batch.rows.values()
    assert table.column("ts").cast(pa.int64()).to_pylist() == [7, 9]
    assert batch.late == {}
    assert batch.frontiers == {"s": 9}


def test_largest_timestamp_to_dead_letters() -> None:
    """Such a time would end its stream, and all later rows would be late."""
    stream = ps.cql.catalog.Stream("s", TICKS, "ts")
    layout = Layout(PipelineSpec((stream,), {}, (QuerySpec("q", "SELECT x FROM s [NOW]"),), 1))
    table = pa.table({"ts": [5, 2**63 - 1, None], "x": [1, 2, 3]}, schema=TICKS)
    rows = Packer(layout, stream).pack(table, 0, 0).to_pylist()
    batch = read_batch(layout, 0, {}, 0, [tuple(row.values())[1:] for row in rows])
    assert [each.column("x").to_pylist() for each in batch.rows.values()] == [[1]]
    assert [sorted(each.column("x").to_pylist()) for each in batch.dead.values()] == [[2, 3]]
    assert batch.frontiers == {"s": 5}


class FailingCallback:
    """Keeps rows by micro-batch and compares repeated ones; while `failing`, it raises once after it kept rows."""

    def __init__(self) -> None:
        self.batches: dict[int, pa.Table] = {}
        self.failing = False

    def __call__(self, rows: pa.Table, batch: int) -> None:
        again = self.batches.get(batch)
        assert again is None or again.equals(rows), "a repeated micro-batch has other stamps"
        self.batches[batch] = rows
        if self.failing and rows.num_rows:
            self.failing = False
            raise RuntimeError("the sink is full")

    @property
    def rows(self) -> list[int]:
        return [x for batch in sorted(self.batches) for x in self.batches[batch].column("x").to_pylist()]


def build_pipeline(spark: Any, folder: Path, kept: FailingCallback, pairs: Any, counts: Any) -> ps.Pipeline:
    """`a` is internal, `b` latent and packed, `c` external with a skew; all become idle."""
    pipe = ps.Pipeline(spark)
    pipe.stream("a", read_stream(spark, X, folder / "a"), "ts", timestamps="internal")
    blobs = pa.schema([("data", pa.binary())])
    frame = spark.readStream.schema("data binary").option("maxFilesPerTrigger", 1).parquet(str(folder / "b"))
    assert blobs.names == frame.columns
    pipe.stream("b", frame, "ts", timestamps="latent", packed=True, schema=X)
    pipe.stream("c", read_stream(spark, TIMED, folder / "c"), "ts", skew="1 second")
    pipe.query("kept", "SELECT x FROM a [NOW]", sink=sinks.foreach(kept))
    pipe.query(
        "pairs",
        "SELECT a.x, c.x AS cx FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR], c [RANGE 1 HOUR] WHERE a.x = b.x AND b.x = c.x",
        sink=pairs,
    )
    pipe.query("counts", "SELECT COUNT(*) AS n FROM b [ROWS 10]", sink=counts)
    return pipe


def write_rows(folder: Path, name: str, number: int, xs: list[int]) -> None:
    if name == "b":
        rows = pa.table(
            {"data": [encode_table(pa.table({"x": xs}, schema=X))]}, schema=pa.schema([("data", pa.binary())])
        )
    elif name == "c":
        now = datetime.now(UTC).replace(tzinfo=None)
        rows = pa.table({"ts": [now - timedelta(milliseconds=500)] * len(xs), "x": xs}, schema=TIMED)
    else:
        rows = pa.table({"x": xs}, schema=X)
    write_file(folder / name / f"{number}.parquet", rows, number)


def test_idle_streams_and_repeatable_timestamps(spark: Any, tmp_path: Path) -> None:
    kept, pairs, counts = FailingCallback(), sinks.memory(), sinks.memory()
    for name in "abc":
        write_rows(tmp_path, name, 0, [1, 2])
    pipe = build_pipeline(spark, tmp_path, kept, pairs, counts)
    run = pipe.start(tmp_path / "ck", cells=2)
    try:
        wait_until(lambda: pairs.table().num_rows == 2 and counts.table().num_rows)  # by the clock alone
        kept.failing = True
        write_rows(tmp_path, "a", 1, [2, 3])
        with pytest.raises(ps.PenstockError, match="the sink is full"):
            run.awaitTermination()
    finally:
        run.stop()
    again, more = sinks.memory(), sinks.memory()
    run = build_pipeline(spark, tmp_path, kept, again, more).start(tmp_path / "ck", cells=2)
    try:
        wait_until(lambda: again.table().num_rows == 1)
    finally:
        run.stop()
    assert Counter(kept.rows) == Counter([1, 2, 2, 3])
    assert again.table().column("x").to_pylist() == [2]
    assert counts.table().column("n").to_pylist()[-1] == 2
    stamps = [t for batch in sorted(kept.batches) for t in kept.batches[batch].column("_ts").to_pylist()]
    assert stamps == sorted(stamps)
    assert abs(stamps[-1] - datetime.now(UTC)) < timedelta(minutes=10)


def test_results_that_leave_late_on_cells() -> None:
    """FRESHNESS BY CLOCK: a cell leaves out what is too old by the clock, and counts it once, also when rebuilt."""
    text = "SELECT a.x FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.x = b.x FRESHNESS a 1 HOUR BY CLOCK"
    streams = tuple(ps.cql.catalog.Stream(name, TIMED, "ts") for name in "ab")
    cluster = Cluster(PipelineSpec(streams, {}, (QuerySpec("q", text),), 1))
    now, found, stale = datetime.now(UTC).replace(tzinfo=None), [], 0.0
    for age in (timedelta(hours=2), timedelta(minutes=5), timedelta(0)):
        rows = pa.table({"ts": [now - age], "x": [7]}, schema=TIMED)
        cluster.caches[0] = CellCache()
        out = cluster.push(Push({"a": rows, "b": rows}))
        found.append(sum(table.num_rows for table in cluster.decode_tables(out, "result", "q")))
        stale += sum(json.loads(data)["cell"]["q"]["stale"] for _, kind, _, _, data in out if kind == METRICS)
    assert found == [0, 1, 3]
    assert stale == 1


@pytest.mark.parametrize(("kind", "derived", "error"), [
    (TICKS, False, "CLOCK_NEEDED"), (TIMED, True, "CLOCK_WOULD_DISTORT"),
])  # fmt: skip
def test_freshness_by_clock_is_refused(kind: pa.Schema, derived: bool, error: str) -> None:
    bound = "9" if kind is TICKS else "9 SECONDS"
    query = QuerySpec("q", f"SELECT x FROM s FRESHNESS s {bound} BY CLOCK", derived=derived)
    spec = PipelineSpec((ps.cql.catalog.Stream("s", kind, "ts"),), {}, (query,), 1)
    with pytest.raises(ps.PenstockError, match=error):
        spec.bind(query)
