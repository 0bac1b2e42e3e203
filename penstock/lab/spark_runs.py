"""Runs of a `JoinWorkload` on local Spark: by Penstock's pipeline, by Spark's own joins, and reading only.

Spark's joins write to its `noop` sink, the cheapest one; Penstock's tasks count their results. Spark's state is in
memory (its default provider), Penstock's in RocksDB. A workload of twelve queries is twelve streaming queries for
Spark, and one for Penstock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from penstock.lab.join_workloads import JoinWorkload
from penstock.lab.meters import BatchCosts, create_temp_dir, measure_batches
from penstock.spark.pipeline import Pipeline
from penstock.spark.session import apply_query_settings, create_log_file, local_session, wait_for_sources
from penstock.spark.sinks import Attempt, TaskSink

CELLS = 2

RunWorkload = Callable[[SparkSession, JoinWorkload, Path], tuple[BatchCosts, list[int]]]
"""Runs a workload whose files are in the folder `data`: its cost, and the number of results of each query."""


def start_session() -> SparkSession:
    """A local session with two threads for the runs of a lab."""
    return local_session("local[2,4]", {"spark.driver.memory": "3g"}, create_log_file())


def run_in_temp_dir(
    run_workload: RunWorkload, spark: SparkSession, workload: JoinWorkload
) -> tuple[BatchCosts, list[int]]:
    """Write the files of a workload and run it, in a folder that is removed afterwards."""
    with create_temp_dir() as folder:
        workload.write(Path(folder) / "data")
        return run_workload(spark, workload, Path(folder))


def run_penstock(spark: SparkSession, workload: JoinWorkload, folder: Path) -> tuple[BatchCosts, list[int]]:
    """One pipeline for all queries of the workload."""

    def declare(pipe: Pipeline, name: str) -> None:
        pipe.stream(name, workload.read(spark, folder / "data", name), "ts")

    return run_pipeline(spark, workload, folder, declare)


def run_pipeline(
    spark: SparkSession, workload: JoinWorkload, folder: Path, declare: Callable[[Pipeline, str], object]
) -> tuple[BatchCosts, list[int]]:
    """One pipeline for all queries of the workload. `declare` declares a stream by its name."""
    counters = [CountingSink() for _ in workload.queries]
    pipe = Pipeline(spark)
    for name in workload.names:
        declare(pipe, name)
    for number, query in enumerate(workload.queries):
        pipe.query(f"q{number}", workload.build_cql(query), sink=counters[number])
    run = pipe.start(folder / "checkpoint", cells=CELLS)
    try:
        cost = measure_batches([run], [folder / "checkpoint"], workload.batches, workload.warm_batches)
        run.finish()
        run.processAllAvailable()
    finally:
        run.stop()
    return cost, [counter.rows for counter in counters]


class CountingSink(TaskSink):
    """Counts rows and writes nothing."""

    def __init__(self) -> None:
        self.rows = 0

    def write(self, attempt: Attempt, rows: Iterator[pa.RecordBatch]) -> int:
        del attempt
        return sum(batch.num_rows for batch in rows)

    def commit(self, batch: int, messages: Sequence[int]) -> None:
        del batch
        self.rows += sum(messages)


def run_spark(spark: SparkSession, workload: JoinWorkload, folder: Path) -> tuple[BatchCosts, list[int]]:
    """Spark's own joins, one streaming query for each query of the workload."""
    spark.conf.set("spark.sql.shuffle.partitions", str(CELLS))
    running, checkpoints = [], []
    try:
        for number, query in enumerate(workload.queries):
            checkpoints.append(folder / f"checkpoint{number}")
            joined = workload.build_spark_join(spark, folder / "data", query)
            counted = joined.observe("all", F.count(F.lit(1)).alias("n"))
            writer = counted.writeStream.format("noop").option("checkpointLocation", str(checkpoints[-1]))
            running.append(writer.start())
        cost = measure_batches(running, checkpoints, workload.batches, workload.warm_batches)
        for each in running:
            each.processAllAvailable()
        counts = [sum(p["observedMetrics"]["all"]["n"] for p in each.recentProgress if p["observedMetrics"])
                  for each in running]  # fmt: skip
    finally:
        for each in running:
            each.stop()
    return cost, counts


def run_reading_only(spark: SparkSession, workload: JoinWorkload, folder: Path) -> tuple[BatchCosts, list[int]]:
    """Read the files with the settings of a pipeline and drop the rows: the highest rate any pipeline can reach."""
    with apply_query_settings(spark, CELLS, local=True):
        frames = [workload.read(spark, folder / "data", name) for name in workload.names]
        rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
        query = wait_for_sources(writer.start())
    try:
        return measure_batches([query], [folder / "checkpoint"], workload.batches, workload.warm_batches), []
    finally:
        query.stop()
