"""Packed rows in parts, how many rows Spark sends at once, and local files without checksum files."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from inspect_spark import checksum_files, write_local_file
from spark_support import write_file

import penstock as ps
from penstock.cql import Stream
from penstock.spark.layout import Layout
from penstock.spark.pipeline_config import QuerySpec
from penstock.spark.session import (
    BATCH_BYTES,
    NARROW_ROWS,
    WIDE_ROWS,
    apply_query_settings,
    choose_batch_settings,
    local_session,
)
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.batch import read_batch
from penstock.spark.worker.pack import BAD_ROWS, Packer
from penstock.state import SHIPPED, Maintenance

ROWS = 1000
MOST = 500
SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
TEXTS = pa.schema([("ts", pa.int64()), ("x", pa.string())])


def pack(schema: pa.Schema, table: pa.Table, text: str) -> tuple[Layout, list[dict[str, Any]]]:
    stream = Stream("s", schema, "ts")
    layout = Layout(PipelineSpec((stream,), {}, (QuerySpec("q", text),), 1))
    return layout, Packer(layout, stream, MOST).pack(table, 0, 0).to_pylist()


@pytest.mark.parametrize("schema", [SCHEMA, TEXTS])
def test_packed_rows_are_small_and_ordered(schema: pa.Schema) -> None:
    """Equal times in an order of their own: the shuffle may bring the parts in any order."""
    table = pa.table({"ts": [7] * ROWS, "x": pa.array(range(ROWS)).cast(schema.field("x").type)}, schema=schema)
    layout, rows = pack(schema, table, "SELECT x FROM s [ROWS 3]")
    assert len(rows) >= table.nbytes // MOST
    assert len({row["seq"] for row in rows}) == len(rows)
    bare = len(pa.table(schema.empty_table()).schema.serialize()) * 3
    assert max(len(row["data"]) for row in rows) < 2 * MOST + bare
    (read,) = read_batch(layout, 0, {}, 0, [tuple(row.values())[1:] for row in reversed(rows)]).rows.values()
    assert read.column("x").to_pylist() == table.column("x").to_pylist()


def test_dead_rows_travel_in_parts() -> None:
    table = pa.table({"ts": pa.nulls(ROWS, pa.int64()), "x": range(ROWS)}, schema=SCHEMA)
    layout, rows = pack(SCHEMA, table, "SELECT x FROM s [NOW]")
    assert {row["inlet"] for row in rows} == {BAD_ROWS}
    assert len(rows) > 1
    dead = read_batch(layout, 0, {}, 0, [tuple(row.values())[1:] for row in rows]).dead["s"]
    assert dead.column("x").to_pylist() == list(range(ROWS))


def test_later_chunks_continue_the_numbers(spark: Any, tmp_path: Path) -> None:
    """Chunks of ten rows in parts of one: ROWS windows depend on the order of all."""
    table = pa.table({"ts": [7] * ROWS, "x": range(ROWS)}, schema=SCHEMA)
    write_file(tmp_path / "s" / "0.parquet", table, 0)
    pipe = ps.Pipeline(spark, maintenance=Maintenance(chunk_rows=10, packed_bytes=1))
    pipe.stream("s", spark.readStream.schema("ts bigint, x bigint").parquet(str(tmp_path / "s")), "ts")
    sink = ps.sinks.memory()
    pipe.query("q", "SELECT SUM(x) AS total FROM s [ROWS 3]", sink=sink)
    with pipe.start(tmp_path / "ck", cells=1) as run:
        run.finish()
        run.processAllAvailable()
    assert sink.table().column("total").to_pylist() == [997 + 998 + 999]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (pa.int32(), NARROW_ROWS),
        (pa.bool_(), NARROW_ROWS),
        (pa.decimal128(38, 2), NARROW_ROWS),
        (pa.timestamp("us"), NARROW_ROWS),
        (pa.string(), WIDE_ROWS),
        (pa.binary(), WIDE_ROWS),
        (pa.list_(pa.int64()), WIDE_ROWS),
        (pa.struct([("x", pa.int64())]), WIDE_ROWS),
    ],
)
def test_batch_settings_of_types(kind: pa.DataType, settings: dict[str, str]) -> None:
    """Only rows whose size is known may be sent without a limit on their bytes."""
    assert choose_batch_settings([SCHEMA, pa.schema([("v", kind)])]) is settings


def test_local_files_without_checksum_files(spark: Any, tmp_path: Path) -> None:
    """An old checksum file is removed with the content it belonged to, or a reader would refuse the new content."""
    place = tmp_path / "file"
    with checksum_files(spark):
        write_local_file(spark, place, b"old")
    assert (tmp_path / ".file.crc").exists()
    write_local_file(spark, place, b"new")
    assert place.read_bytes() == b"new"
    assert not (tmp_path / ".file.crc").exists()
    spark.range(3).write.parquet(str(tmp_path / "table"))
    assert not list(tmp_path.rglob("*.crc"))


def test_found_session_keeps_checksum_files(spark: Any, tmp_path: Path) -> None:
    """In a thread without an active session, too: `local_session` returns the one that exists."""
    found = []
    with checksum_files(spark):
        thread = threading.Thread(target=lambda: found.append(local_session()))
        thread.start()
        thread.join()
        write_local_file(spark, tmp_path / "file", b"x")
    assert found[0].sparkContext is spark.sparkContext
    assert (tmp_path / ".file.crc").exists()


def test_batch_frame_keeps_order_of_chunks(spark: Any) -> None:
    """Rows of one time, in more than a chunk; those of the second chunk are of one key, so of one cell."""
    sent = int(spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch"))
    size = -(-SHIPPED.chunk_rows // sent) * sent
    rows = spark.range(0, size + 3, 1, 1).selectExpr("7L AS ts", f"IF(id < {size}, id % 4, 2) AS k", "id AS x")
    text = "SELECT t.k, SUM(t.x) AS total FROM t [PARTITION BY k ROWS 2] GROUP BY t.k"
    found = {row.k: row.total for row in ps.sql(spark, text, cells=4, t=ps.timed(rows, "ts")).collect()}
    assert found == {0: 2 * size - 12, 1: 2 * size - 10, 2: 2 * size + 3, 3: 2 * size - 6}


def test_frames_below_keep_the_limit(spark: Any, tmp_path: Path) -> None:
    """A frame of numbers over a stream of texts runs its stages, and those of frames that read it."""
    texts = spark.readStream.schema("ts timestamp, name string").parquet(str(tmp_path))
    numbers = spark.readStream.schema("ts timestamp, x bigint").parquet(str(tmp_path))
    most = NARROW_ROWS[BATCH_BYTES]
    inner = ps.sql(spark, "SELECT 1 AS x FROM t [NOW]", cells=2, t=ps.timed(texts, "ts"))
    outer = ps.sql(spark, "SELECT x FROM i [NOW]", cells=2, i=ps.timed(inner, "_ts"))
    plain = ps.sql(spark, "SELECT x FROM n [NOW]", cells=2, n=ps.timed(numbers, "ts"))
    over = ps.sql(spark, "SELECT x FROM p [NOW]", cells=2, p=ps.timed(plain, "_ts"))
    limits = [frame.sparkSession.conf.get(BATCH_BYTES) == most for frame in (inner, outer, plain, over)]
    assert limits == [False, False, True, True]


def test_limit_of_user_is_kept(spark: Any, tmp_path: Path) -> None:
    numbers = spark.readStream.schema("ts timestamp, x bigint").parquet(str(tmp_path))
    spark.conf.set(BATCH_BYTES, "1000000")
    try:
        frame = ps.sql(spark, "SELECT x FROM n [NOW]", cells=2, n=ps.timed(numbers, "ts"))
        assert frame.sparkSession.conf.get(BATCH_BYTES).startswith("1000000")
        with apply_query_settings(spark, 2, local=True, batches=NARROW_ROWS):
            assert spark.conf.get(BATCH_BYTES).startswith("1000000")
    finally:
        spark.conf.unset(BATCH_BYTES)
    with apply_query_settings(spark, 2, local=True, batches=NARROW_ROWS):
        assert spark.conf.get(BATCH_BYTES).startswith(NARROW_ROWS[BATCH_BYTES])
    assert not spark.conf.get(BATCH_BYTES).startswith(NARROW_ROWS[BATCH_BYTES])
