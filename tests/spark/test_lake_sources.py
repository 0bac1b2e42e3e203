"""Tables of Delta Lake and Iceberg as streams and as static tables: every row once, whatever limits and restarts."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from iceberg_support import Lake
from pyspark.sql.types import ArrayType, DateType, StringType, StructType, TimestampType

import penstock as ps
from penstock.spark.delta import read_rows
from penstock.spark.iceberg import IcebergTable, read_table
from penstock.spark.sources.table_log import BEGIN, Position
from penstock.spark.sources.table_stream import TABLE_OPTION, TableReader, TableSource, describe_delta, describe_iceberg

ROWS = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.string())])


def make_rows(first: int, size: int = 3) -> pa.Table:
    values = [f"v{at}" if at % 3 else None for at in range(first, first + size)]
    return pa.table([range(first, first + size), [at % 4 for at in range(first, first + size)], values], schema=ROWS)


class DeltaCase:
    """A Delta table, and how to change it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "table"
        self.described = describe_delta(str(self.path), {})
        self.options = f"path '{self.path}'"

    def append(self, rows: pa.Table, **options: Any) -> None:
        write_deltalake(self.path, rows, mode="append", **options)

    def delete(self) -> None:
        DeltaTable(self.path).delete("k = 1")

    def compact(self) -> None:
        DeltaTable(self.path).optimize.compact()

    def open(self, spark: Any, **options: Any) -> Any:
        return ps.sources.delta(spark, self.path, **options)


class IcebergCase:
    """An Iceberg table."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.lake = Lake(folder)
        self.lake.create("table", ROWS)
        self.described = describe_iceberg("db.table", list(self.lake.options.items()))
        self.options = f"table 'db.table', {self.lake.describe_options()}"

    def append(self, rows: pa.Table) -> None:
        self.lake.load("table").append(rows)

    def delete(self) -> None:
        self.lake.load("table").delete("k = 1")

    def compact(self) -> None:
        table = self.lake.load("table")
        table.append(ROWS.empty_table())  # pyiceberg does not compact

    def open(self, spark: Any, **options: Any) -> Any:
        return ps.sources.iceberg(spark, "db.table", **self.lake.options, **options)


CASES = {"delta": DeltaCase, "iceberg": IcebergCase}


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return CASES[request.param](tmp_path / "lake")


class Limit:
    def __init__(self, files: int) -> None:
        self.max_files = files


def read_between(reader: TableReader, start: Mapping[str, int], end: Mapping[str, int]) -> list[int]:
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return sorted(value for batch in batches for value in batch.column("ts").to_pylist())


@pytest.mark.parametrize("seed", range(3))
def test_every_row_once_in_micro_batches(case: Any, seed: int) -> None:
    rng = random.Random(seed)
    case.append(make_rows(0))
    reader, offset, found = TableReader(case.described, ROWS, None), BEGIN.to_offset(), []
    written = 3
    for _ in range(25):
        if rng.random() < 0.6:
            case.append(make_rows(written))
            written += 3
        if rng.random() < 0.2:
            case.compact()
        if rng.random() < 0.3:  # a restart
            reader = TableReader(case.described, ROWS, None)
        end = reader.latestOffset(offset, rng.choice([None, Limit(1), Limit(2)]))
        rows = read_between(reader, offset, end)
        assert rows == read_between(TableReader(case.described, ROWS, None), offset, end)  # a repetition
        found += rows
        offset = end
    found += read_between(reader, offset, reader.latestOffset(offset))
    assert sorted(found) == list(range(written))


def test_rows_that_were_changed_stop_the_stream(case: Any) -> None:
    case.append(make_rows(0, 8))
    case.delete()
    reader = TableReader(case.described, ROWS, None)
    offset = reader.latestOffset(BEGIN.to_offset())
    assert read_between(reader, BEGIN.to_offset(), offset) == [0, 2, 3, 4, 6, 7]  # as the table is at the start
    assert reader.latestOffset(offset) == offset
    case.delete()
    case.append(make_rows(8, 8))
    case.delete()
    end = reader.latestOffset(offset)
    with pytest.raises(ps.DataError, match=r"SOURCE_ROWS_CHANGED.*CREATE TABLE"):
        reader.partitions(offset, end)


def test_lost_versions(tmp_path: Path) -> None:
    delta, iceberg = DeltaCase(tmp_path / "a"), IcebergCase(tmp_path / "b")
    ends = {}
    for case in (delta, iceberg):
        case.append(make_rows(0))
        ends[case] = TableReader(case.described, ROWS, None).latestOffset(BEGIN.to_offset())
        case.append(make_rows(3))
        case.append(make_rows(6))
    DeltaTable(delta.path).create_checkpoint()
    for version in range(2):
        (delta.path / "_delta_log" / f"{version:020d}.json").unlink()
    table = iceberg.lake.load("table")
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots()[:2]]).commit()
    for case, end in ends.items():
        reader = TableReader(case.described, ROWS, None)
        with pytest.raises(ps.DataError, match=r"SOURCE_VERSION_LOST.*new checkpoint"):
            reader.partitions(end, reader.latestOffset(end))
    replaced = Position(0, 9, 0).to_offset()
    with pytest.raises(ps.DataError, match="SOURCE_VERSION_LOST"):
        TableReader(delta.described, ROWS, None).latestOffset(replaced)


def test_partitions_and_later_columns_of_delta(tmp_path: Path) -> None:
    case = DeltaCase(tmp_path)
    case.append(make_rows(0).drop_columns(["v"]), partition_by=["k"])
    case.append(make_rows(3), schema_mode="merge")
    reader = TableReader(case.described, ROWS, None)
    end = reader.latestOffset(BEGIN.to_offset())
    middle = reader.latestOffset(BEGIN.to_offset(), Limit(2))
    expected = [(at, at % 4, None if at < 3 or at % 3 == 0 else f"v{at}") for at in range(6)]
    for steps in ([end], [middle, end]):
        found, offset = [], BEGIN.to_offset()
        for step in steps:
            parts = reader.partitions(offset, step)
            found += [tuple(row.values()) for p in parts for b in reader.read(p) for row in b.to_pylist()]
            offset = step
        assert sorted(found) == expected


SCRIPT = """
CREATE STREAM a (ts BIGINT, k BIGINT, v STRING) TIMESTAMP BY ts FROM {kind} OPTIONS ({options}, maxFilesPerTrigger 1);
CREATE TABLE names (k BIGINT, v STRING) FROM {kind} OPTIONS ({options});
CREATE SINK out TO delta OPTIONS (path '{folder}/out');
INSERT INTO out SELECT a.ts, n.v FROM a [NOW] AS a, names AS n WHERE a.k = n.k AND n.v IS NOT NULL;
"""


def test_stream_and_static_table_on_spark(spark: Any, tmp_path: Path, case: Any) -> None:
    kind = "delta" if isinstance(case, DeltaCase) else "iceberg"
    script = tmp_path / "script.cql"
    script.write_text(SCRIPT.format(kind=kind, options=case.options, folder=tmp_path))
    for first in (0, 6):
        case.append(make_rows(first))
        case.append(make_rows(first + 3))
        run = ps.Pipeline.from_script(script, spark).start(tmp_path / "ck", trigger={"availableNow": True}, cells=2)
        try:
            assert run.awaitTermination(400)
            assert run.exception() is None
        finally:
            run.stop()
    names = {at: f"v{at}" for at in range(12) if at % 3}
    first_names = {at: name for at, name in names.items() if at < 6}
    expected = [(at, name) for at in range(12) for k, name in (first_names if at < 6 else names).items()
                if k % 4 == at % 4]  # fmt: skip
    rows = DeltaTable(tmp_path / "out").to_pyarrow_table(columns=["ts", "v"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == sorted(expected)


def test_frames(spark: Any, case: Any) -> None:
    case.append(make_rows(0, 8))
    frame = case.open(spark)
    assert frame.schema.simpleString() == "struct<ts:bigint,k:bigint,v:string>"
    with pytest.raises(ps.PenstockError, match="SOURCE_UNREADABLE"):
        ps.sources.delta(spark, "/nowhere") if isinstance(case, DeltaCase) else ps.sources.iceberg(
            spark, "db.no", **case.lake.options
        )


def test_declared_columns_that_do_not_fit(tmp_path: Path) -> None:
    case, other = DeltaCase(tmp_path / "a"), IcebergCase(tmp_path / "b")
    table = IcebergTable("db.table", tuple(other.lake.options.items()))
    for each in (case, other):
        each.append(make_rows(1, 2))
    missing, wrong = pa.schema([("nothing", pa.int64())]), pa.schema([("v", pa.int64())])
    for schema, said in ((missing, "has no column nothing; it has ts, k, v"), (wrong, "change the declaration")):
        with pytest.raises(ps.DataError, match=f"SOURCE_SCHEMA.*{said}"):
            read_rows(str(case.path), {}, schema)
        with pytest.raises(ps.DataError, match=f"SOURCE_SCHEMA.*{said}"):
            read_table(table, schema)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_times_and_arrays_of_a_stream(tmp_path: Path, kind: str) -> None:
    """The reader that Spark asks for, with the schema of Spark: it has no session in the process of the source."""
    zoned = pa.timestamp("us", "UTC")
    schema = pa.schema(
        [("ts", zoned), ("a", pa.list_(pa.string())), ("s", pa.struct([("t", zoned), ("d", pa.date32())]))]
    )
    instant = datetime(2026, 3, 1, 8, 0, 0, 123456, UTC)
    rows = [{"ts": instant, "a": ["x", None], "s": {"t": instant, "d": None}}, {"ts": None, "a": None, "s": None}]
    if kind == "delta":
        write_deltalake(tmp_path / "table", pa.Table.from_pylist(rows, schema))
        described = describe_delta(str(tmp_path / "table"), {})
    else:
        lake = Lake(tmp_path)
        lake.create("table", schema)
        lake.load("table").append(pa.Table.from_pylist(rows, schema))
        described = describe_iceberg("db.table", list(lake.options.items()))
    parts = StructType().add("t", TimestampType()).add("d", DateType())
    declared = StructType().add("ts", TimestampType()).add("a", ArrayType(StringType())).add("s", parts)
    reader = TableSource({TABLE_OPTION: described}).streamReader(declared)
    end = reader.latestOffset(BEGIN.to_offset())
    found = [
        row for part in reader.partitions(BEGIN.to_offset(), end) for b in reader.read(part) for row in b.to_pylist()
    ]
    assert found == rows
