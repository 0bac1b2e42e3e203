"""Packed rows in parts, how many rows Spark sends at once, and local files without checksum files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from inspect_spark import write_local_file
from spark_support import write_file

import penstock as ps
from penstock.cql import Stream
from penstock.spark.layout import Layout
from penstock.spark.pipeline_config import QuerySpec
from penstock.spark.session import NARROW_ROWS, WIDE_ROWS, choose_batch_settings
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.batch import read_batch
from penstock.spark.worker.pack import BAD_ROWS, Packer
from penstock.state import Maintenance

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
    write_local_file(spark, place, b"old", checksum=True)
    assert (tmp_path / ".file.crc").exists()
    write_local_file(spark, place, b"new", checksum=False)
    assert place.read_bytes() == b"new"
    assert not (tmp_path / ".file.crc").exists()
    spark.range(3).write.parquet(str(tmp_path / "table"))
    assert not list(tmp_path.rglob("*.crc"))
