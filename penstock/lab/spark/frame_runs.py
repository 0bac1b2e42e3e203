"""`ps.sql` compared with Spark's own stream–stream joins: the same files, micro-batches and sink.

Both write to Spark's Parquet sink, so both pay for it and for its commits. A frame holds back the results of the last
instants, because earlier rows could still come: they are counted in the batch answer of the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.lab.join_workloads import JoinWorkload, build_one_key
from penstock.lab.meters import BatchCosts, measure_batches
from penstock.lab.report import Check, ReportRow, check_at_least, check_equals
from penstock.lab.spark_runs import CELLS, run_in_temp_dir
from penstock.progress import ProgressStep
from penstock.spark.frames import sql, timed

GOALS = {"W2": 2.0, "W3": 4.0, "W5": 6.0}
"""The goals for the rows per second of a frame over those of Spark's own join, by workload."""


def build_frame_workloads(quick: bool) -> list[JoinWorkload]:
    """The joins of `lab peers` with more micro-batches. Java compiles for some dozens of them, on both sides."""
    batches, warm = (16, 10) if quick else (48, 36)
    return [
        replace(build_one_key(name, ways, rows * batches, seconds * batches, keys, window, batches), warm_batches=warm)
        for name, ways, rows, seconds, keys, window in (
            ("W2", 2, 25_000, 500.0, 10_000, 100),
            ("W3", 3, 25_000, 500.0, 10_000, 100),
            ("W5", 5, 8_333, 500 / 3, 5_000, 60),
        )
    ]


def compare_frames(
    spark: SparkSession, workloads: Sequence[JoinWorkload], step: ProgressStep
) -> tuple[list[ReportRow], list[Check]]:
    """Every workload by `ps.sql` and by Spark's own joins."""
    rows: list[ReportRow] = []
    checks: list[Check] = []
    for workload in workloads:
        rates = []
        (expected,) = workload.count_results()
        for engine, run_workload in (("ps.sql", run_frame), ("spark's own join", run_spark_join)):
            step(f"{workload.name} to Parquet: {engine}")
            cost, (found,) = run_in_temp_dir(run_workload, spark, workload)
            rows.append(_build_row(workload, engine, cost, found))
            rates.append(workload.rows_in_batch * cost.batches / cost.wall)
            name = f"{workload.name.lower()}_{'frame' if run_workload is run_frame else 'spark'}_wrong_counts"
            checks.append(check_equals(name, abs(found - expected), 0, "rows"))
        own, theirs = rates
        name = f"{workload.name.lower()}_frame_rows_vs_spark"
        checks.append(check_at_least(name, own / theirs, GOALS[workload.name], "times"))
    return rows, checks


def run_frame(spark: SparkSession, workload: JoinWorkload, folder: Path) -> tuple[BatchCosts, list[int]]:
    """The query of a workload by `ps.sql`, written by Spark's Parquet sink."""
    text = workload.build_cql(workload.queries[0])
    frames: dict[str, Any] = {name: timed(workload.read(spark, folder / "data", name), "ts") for name in workload.names}
    cost = _measure(sql(spark, text, cells=CELLS, **frames), workload, folder)
    files: dict[str, Any] = {name: spark.read.parquet(str(folder / "data" / name)) for name in workload.names}
    frontier = min(frame.agg({"ts": "max"}).first()[0] for frame in files.values())
    timed_files: dict[str, Any] = {name: timed(frame, "ts") for name, frame in files.items()}
    answer = sql(spark, text, cells=CELLS, **timed_files)
    held = answer.filter(answer["_ts"] > frontier).count()
    return cost, [_count_written(spark, folder) + held]


def run_spark_join(spark: SparkSession, workload: JoinWorkload, folder: Path) -> tuple[BatchCosts, list[int]]:
    """Spark's own joins, written by its Parquet sink."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", str(CELLS))
    try:
        joined = workload.build_spark_join(spark, folder / "data", workload.queries[0])
        cost = _measure(joined, workload, folder)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before or str(CELLS))
    return cost, [_count_written(spark, folder)]


def _measure(frame: DataFrame, workload: JoinWorkload, folder: Path) -> BatchCosts:
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        cost = measure_batches([query], [folder / "checkpoint"], workload.batches, workload.warm_batches)
        query.processAllAvailable()
        return cost
    finally:
        query.stop()


def _count_written(spark: SparkSession, folder: Path) -> int:
    return spark.read.parquet(str(folder / "out")).count()


def _build_row(workload: JoinWorkload, engine: str, cost: BatchCosts, results: int) -> ReportRow:
    rows = workload.rows_in_batch * cost.batches
    return {
        "load": workload.name,
        "engine": engine,
        "rows_s": rows / cost.wall,
        "cpu_s_per_million": cost.cpu / rows * 1e6,
        "batch_ms": cost.median_ms,
        "peak_mib": cost.peak_mib,
        "results": results,
    }
