"""Streams of frames that are idle: the time of the micro-batches advances them, the same in every cell and attempt."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from frame_support import write_results
from spark_support import write_file

import penstock as ps
from penstock.cql import describe_stream
from penstock.errors import QueryError
from penstock.spark.layout import Layout
from penstock.spark.pipeline_config import QuerySpec
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.batch import read_batch
from penstock.spark.worker.cell_state import StateHeader
from penstock.spark.worker.pack import NOW_COLUMN, Packer

SECOND = 1_000_000
START = datetime(2020, 1, 1, tzinfo=UTC)
DDL = "ts timestamp, k int"
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.int32())])
PAIRS = "SELECT a.k FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k"


def pack(layout: Layout, stream: str, tick: int, now: int) -> list[Any]:
    """One row of a stream in a micro-batch at the time `now`, packed for a cell."""
    found = next(each for each in layout.spec.streams if each.name == stream)
    columns = {"ts": pa.array([tick], pa.timestamp("us", "UTC")), "k": pa.array([1], pa.int32())}
    rows = pa.table({**columns, NOW_COLUMN: pa.array([now], pa.timestamp("us", "UTC"))})
    return [tuple(row.values())[1:] for row in Packer(layout, found).pack(rows, 0, 0).to_pylist()]


def build_layout(*, clocked: bool) -> Layout:
    schema = {"ts": "timestamp with time zone", "k": "int"}
    streams = (
        describe_stream("a", schema, "ts"),
        describe_stream("b", schema, "ts", idle_after="10 seconds", lateness="2 seconds"),
    )
    return Layout(PipelineSpec(streams, {}, (QuerySpec("q", PAIRS),), 1, clocked=clocked))


@pytest.mark.parametrize("clocked", [True, False])
def test_idle_stream_advances_with_micro_batches(clocked: bool) -> None:
    """`b` has a row in the first micro-batch only. It is idle 10 seconds later, and not before."""
    layout = build_layout(clocked=clocked)
    header = StateHeader()
    seen = []
    for now, rows in (
        (100, [("a", 50), ("b", 40)]),
        (109, [("a", 60)]),
        (110, [("a", 70)]),
        (115, [("a", 80)]),
    ):
        packed = [row for name, tick in rows for row in pack(layout, name, tick * SECOND, now * SECOND)]
        batch = read_batch(layout, 0, header.frontiers, -1, packed, header.arrivals)
        header = StateHeader.decode(replace(header, frontiers=batch.frontiers, arrivals=dict(batch.arrivals)).encode())
        seen.append(batch.frontiers["b"] // SECOND)
    assert seen == ([38, 38, 100, 105] if clocked else [38] * 4)


def test_header_of_earlier_checkpoint_is_read() -> None:
    assert StateHeader.decode(b'[3, "t", {"a": 5}, [[2, "s"]], [], 7]').arrivals == {}


def test_stream_without_rows_is_idle_from_first_batch() -> None:
    layout = build_layout(clocked=True)
    first = read_batch(layout, 0, {}, -1, pack(layout, "a", 50 * SECOND, 100 * SECOND))
    assert "b" not in first.frontiers
    second = read_batch(layout, 0, first.frontiers, -1, pack(layout, "a", 60 * SECOND, 110 * SECOND), first.arrivals)
    assert second.frontiers["b"] == 100 * SECOND


def test_frame_releases_results_of_idle_stream(spark: Any, tmp_path: Path) -> None:
    """The result waits for `b` until a later micro-batch finds that it is idle, with a restart in between."""

    def read(name: str, **rule: Any) -> Any:
        (tmp_path / name).mkdir(exist_ok=True)
        return ps.timed(spark.readStream.schema(DDL).parquet(str(tmp_path / name)), "ts", **rule)

    def run(**rule: Any) -> int:
        frame = ps.sql(spark, PAIRS, cells=2, a=read("a"), b=read("b", **rule))
        write_results(frame, tmp_path, f"q{len(rule)}")
        return int(spark.read.schema("k int").parquet(str(tmp_path / f"q{len(rule)}-out")).count())

    idle = {"idle_after": "1 second"}
    write_file(tmp_path / "b" / "0.parquet", pa.table([[START], [1]], schema=SCHEMA), 0)
    write_file(tmp_path / "a" / "0.parquet", pa.table([[START.replace(minute=1)], [1]], schema=SCHEMA), 0)
    assert (run(**idle), run()) == (0, 0)
    time.sleep(1.1)  # longer than the idle time; a slower machine only makes it longer
    write_file(tmp_path / "a" / "1.parquet", pa.table([[START.replace(minute=2)], [2]], schema=SCHEMA), 1)
    assert (run(**idle), run()) == (1, 0)


def test_bad_idle_time_is_refused(spark: Any) -> None:
    frame = spark.createDataFrame([], DDL)
    with pytest.raises(QueryError, match="a: "):
        ps.sql(spark, "SELECT k FROM a [NOW]", a=ps.timed(frame, "ts", idle_after="soon"))
