"""What a pipeline says of its streams: sources that Spark cannot read, and the notices of a run."""

from __future__ import annotations

import logging
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.cql import Stream
from penstock.spark.layout import Layout
from penstock.spark.pipeline_config import QuerySpec
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.batch import read_batch
from penstock.spark.worker.pack import NOW_COLUMN, Packer

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("x", pa.int64())])
NOW = datetime(2026, 1, 1)


@pytest.mark.parametrize("clock", [NOW, NOW - timedelta(hours=1)])
def test_ahead_is_judged_by_the_micro_batch(clock: datetime) -> None:
    stream = Stream("s", SCHEMA, "ts", ahead=86_400_000_000, required=("x",))
    layout = Layout(PipelineSpec((stream,), {}, (QuerySpec("q", "SELECT x FROM s [NOW]"),), 1))
    times = [NOW, NOW + timedelta(days=1), datetime(3026, 1, 1), NOW]
    table = pa.table({"ts": times, "x": [1, 2, 3, None]}, schema=SCHEMA)
    table = table.append_column(NOW_COLUMN, pa.repeat(pa.scalar(clock, pa.timestamp("us", "UTC")), len(times)))
    packed = [Packer(layout, stream).pack(table, 0, 0).to_pylist() for _ in range(2)]
    assert packed[0] == packed[1]
    batch = read_batch(layout, 0, {}, 0, [tuple(row.values())[1:] for row in packed[0]])
    (kept,), (dead,) = batch.rows.values(), batch.dead.values()
    early = clock < NOW
    assert kept.column("x").to_pylist() == ([1] if early else [1, 2])
    assert {*dead.column("x").to_pylist()} == ({None, 2, 3} if early else {None, 3})
    newest = NOW if early else NOW + timedelta(days=1)
    assert batch.frontiers == {"s": (newest - datetime(1970, 1, 1)) // timedelta(microseconds=1)}


@pytest.mark.parametrize(
    ("source", "error", "condition", "says"),
    [
        ("parquett", ps.QueryError, "UNKNOWN_FORMAT", "s cannot be read: Spark has no format parquett; did you mean"),
    ],
)  # fmt: skip
def test_source_that_spark_does_not_know(
    spark: Any, tmp_path: Path, source: str, error: type[ps.PenstockError], condition: str, says: str
) -> None:
    path = tmp_path / "script.cql"
    path.write_text(f"CREATE STREAM s (timestamp TIMESTAMP, value STRING) TIMESTAMP BY timestamp FROM {source};\n"
                    "SELECT value FROM s;")  # fmt: skip
    with pytest.raises(error) as caught:
        ps.Pipeline.from_script(path, spark)
    assert caught.value.condition == condition
    assert says in str(caught.value)


def write_rows(folder: Path, number: int, *times: datetime) -> None:
    folder.mkdir(exist_ok=True)
    table = pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "x": list(range(len(times)))})
    pq.write_table(table, folder / f"{number}.parquet")


def test_notices_of_a_run(spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pipe = ps.Pipeline(spark)
    now = datetime.now(UTC)
    for name, options in (("a", {"ahead": "1 day"}), ("b", {})):
        (tmp_path / name).mkdir()
        frame = (
            spark.readStream.schema("ts TIMESTAMP, x BIGINT")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(tmp_path / name))
        )
        pipe.stream(name, frame, time="ts", **options)
    write_rows(tmp_path / "a", 0, now, now + timedelta(seconds=1), datetime(3026, 1, 1, tzinfo=UTC))
    pairs, all_rows = ps.sinks.memory(), ps.sinks.memory()
    pipe.query("pairs", "SELECT a.x FROM a [RANGE 1 MINUTE], b [RANGE 1 MINUTE] WHERE a.x = b.x", sink=pairs)
    with pytest.warns(ps.PenstockWarning, match="UNBOUNDED_STATE") as warned:
        pipe.query("all", "SELECT DISTINCT x FROM a", sink=all_rows)
    assert [each.filename for each in warned] == [__file__]
    caplog.set_level(logging.WARNING, "penstock")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ps.PenstockWarning)
        run = pipe.start(checkpointLocation=tmp_path / "ck", cells=2)
    try:
        run.processAllAvailable()
        (held,) = run.status["notices"]
        assert held.startswith("[STREAM_HOLDS_BACK] b holds back pairs: ")
        assert "b has had no rows since 20" in held
        assert run.metrics()["streams"]["a"]["dead"] == 1
        write_rows(tmp_path / "b", 1, now - timedelta(minutes=5))
        run.processAllAvailable()
        write_rows(tmp_path / "a", 2, now - timedelta(hours=1), now - timedelta(hours=2))
        run.processAllAvailable()
        late = [each for each in run.status["notices"] if "MOSTLY_LATE" in each]
        assert len(late) == 1
        assert "2 of the last 2 rows of a are late and not joined" in late[0]
    finally:
        run.stop()
    assert sorted(all_rows.table().column("x").to_pylist()) == [0]  # the last instant is not complete
    logged = [record.getMessage() for record in caplog.records if record.name == "penstock"]
    assert sum("STREAM_HOLDS_BACK" in each for each in logged) == 1
