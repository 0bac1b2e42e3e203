"""Generated, packed streams: offsets, repeatable rows, and a run that is stopped and continued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition

import penstock as ps
from penstock.demo import streams
from penstock.lab.join_workloads import build_one_key
from penstock.lab.spark_runs import run_penstock, run_spark
from penstock.spark import sinks
from penstock.spark.generated import ChunkReader, generate_stream
from penstock.state import decode_table
from penstock.testing import difference


def test_one_generated_batch_per_micro_batch() -> None:
    source = ChunkReader(streams.build_generator("gate"), 3, 0.0)
    at = source.initialOffset()
    seen = []
    for _ in range(5):
        end = source.latestOffset(at, source.getDefaultReadLimit())
        seen.append([part.value for part in source.partitions(at, end)])
        at = end
    assert seen == [[0], [1], [2], [], []]


def test_generation_rate_and_monotonic_offset() -> None:
    source = ChunkReader(streams.build_generator("gate"), 100, 3600.0)
    assert source.latestOffset({"stretch": 7}) == {"stretch": 8}
    assert source.latestOffset({"stretch": 8}) == {"stretch": 8}


@pytest.mark.parametrize("name", streams.STREAMS)
def test_rows_depend_on_batch_number(name: str) -> None:
    source = ChunkReader(streams.build_generator(name), 9, 0.0)
    blobs = [next(source.read(InputPartition(5))).column(0)[0].as_py() for _ in range(2)]
    assert blobs[0] == blobs[1]
    found = decode_table(blobs[0])
    assert found.schema == streams.build_schema(name)
    assert found.num_rows == streams.STREAMS[name][0]
    assert not found.equals(streams.generate_minute(name, 6))


def test_pipeline_over_packed_streams(spark: Any, tmp_path: Path) -> None:
    query = ("SELECT r.tag, r.room, g.dock FROM reader [RANGE 40 SECONDS] AS r, gate [RANGE 40 SECONDS] AS g "
             "WHERE r.tag = g.tag")  # fmt: skip
    found: list[pa.Table] = []
    for minutes in (2, 4):  # the second run continues where the first one stopped
        pipe = ps.Pipeline(spark)
        for name in ("reader", "gate"):
            rows = generate_stream(spark, streams.build_generator(name), minutes)
            pipe.stream(name, rows, "ts", schema=streams.build_schema(name), packed=True)
        with pytest.raises(ps.DataError, match="NOT_PACKED"):
            pipe.stream("other", rows, "ts", packed=True)
        sink = sinks.memory()
        pipe.query("q", query, sink=sink)
        run = pipe.start(tmp_path / "ck", cells=2)
        try:
            run.processAllAvailable()
            assert run.metrics()["batch"] >= 1
        finally:
            run.stop()
        found.append(sink.table())
    engine = ps.Engine()
    for name in ("reader", "gate"):
        engine.stream(name, streams.build_schema(name), time="ts")
    engine.query("q", query)
    wanted = [engine.push({n: streams.generate_minute(n, m) for n in ("reader", "gate")})["q"] for m in range(4)]
    assert difference(pa.concat_tables(found), pa.concat_tables(wanted)) is None


def test_lab_counts_agree(spark: Any, tmp_path: Path) -> None:
    """A three-way join by Penstock, by Spark's own joins and by DuckDB."""
    load = build_one_key("tiny", 3, 600, 60, 20, 4, 4)
    load.write(tmp_path / "data")
    wanted = load.count_results()
    assert wanted[0]
    for measure in (run_penstock, run_spark):
        cost, counts = measure(spark, load, tmp_path)
        assert counts == wanted
        assert cost.batches == 2
        assert cost.cpu >= 0  # none, if this process slept while the last micro-batches ended
        assert cost.checkpoint_bytes > 0
