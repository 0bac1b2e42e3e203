"""Penstock's pipeline beside Spark's own stream–stream joins: the same files and micro-batches, one session, one run.

Spark's joins write to its `noop` sink, the cheapest there is; Penstock's results pass through the driver. Spark's state
is in memory (its default provider), Penstock's in RocksDB. Twelve queries are twelve streaming queries for Spark.
"Reading only" reads the files and throws the rows away: what Spark's micro-batches cost whatever is done with them, and
so the most that any pipeline on these sources could reach. Other engines stand beside the embedded engine (`others`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from penstock.lab.join_workloads import JoinWorkload, build_clique, build_one_key, build_twelve
from penstock.lab.meters import BatchCosts, create_temp_dir, measure_batches
from penstock.lab.peers.peer_engines import PEERS, compare_engines, find_interpreters
from penstock.lab.report import Check, Report, Section, check_at_least, check_equals
from penstock.progress import show_progress
from penstock.spark import sinks
from penstock.spark.pipeline import Pipeline
from penstock.spark.session import apply_query_settings, create_log_file, local_session, wait_for_sources

CELLS = 2
GOALS = {"W2": 1.0, "W3": 3.0, "W5": 10.0, "W12": 5.0}
"""How many times the rows per second of Spark's own joins."""
EMBEDDED_WORKLOADS = ("W2", "W3", "W12")
"""Loads that the embedded engine and the engines other than Spark run too."""
WINDOWS = tuple(range(2500, 32500, 2500))


def build_workloads(quick: bool) -> list[JoinWorkload]:
    """The workloads. `quick` has half of the micro-batches, as large as in the whole; a quarter of W12, halved."""
    part = 2 if quick else 1
    batches = 12 // part
    return [
        build_one_key("W2", 2, 300_000 // part, 6000 / part, 10_000, 100, batches),
        build_one_key("W3", 3, 300_000 // part, 6000 / part, 10_000, 100, batches),
        build_one_key("W5", 5, 100_000 // part, 2000 / part, 5_000, 60, batches),
        build_twelve(36_000 // part**2, 600 / part**2, 40, batches, WINDOWS),
        build_clique(100_000 // part, 2000 / part, 100, 20, batches),
    ]


def run(quick: bool = False, workloads: Sequence[JoinWorkload] | None = None) -> Report:
    report = Report("peers", quick)
    workloads = build_workloads(quick) if workloads is None else workloads
    alone = [load for load in workloads if load.name in EMBEDDED_WORKLOADS]
    others = find_interpreters()
    report.notes += [peer.install_hint for peer in PEERS if peer not in others]
    rows: list[dict[str, Any]] = []
    embedded: list[dict[str, Any]] = []
    with show_progress("lab peers", 3 * len(workloads) + (len(others) + 1) * len(alone) + 1) as step:
        step("starting Spark")
        spark = local_session("local[2,4]", {"spark.driver.memory": "3g"}, create_log_file())
        for load in workloads:
            wanted = load.count_results()
            found: dict[str, float] = {}
            for engine, measure in (("penstock", run_penstock), ("spark", run_spark)):
                step(f"{load.name}: {engine}")
                _measure(measure, spark, load.warm_up_workload)
                cost, counts = _measure(measure, spark, load)
                rows.append(_build_row(load, engine, cost, sum(counts)))
                found[engine] = rows[-1]["rows_s"]
                wrong = sum(abs(count - right) for count, right in zip(counts, wanted, strict=True))
                report.checks.append(check_equals(f"{load.name.lower()}_{engine}_wrong_counts", wrong, 0, "rows"))
            report.checks.append(_check_speedup(load.name, found["penstock"] / found["spark"]))
            step(f"{load.name}: reading only")
            cost, _ = _measure(run_reading_only, spark, load)
            rows.append(_build_row(load, "reading only", cost, 0))
        for load in alone:
            measured, checks = compare_engines(load, others, step)
            embedded += measured
            report.checks += checks
    report.sections.append(Section("peers", f"Micro-batches, warm, {CELLS} cells", rows))
    report.sections.append(Section("embedded", "The engine alone, beside other engines", embedded))
    return report


RunWorkload = Callable[[SparkSession, JoinWorkload, Path], tuple[BatchCosts, list[int]]]


def _measure(measure: RunWorkload, spark: SparkSession, load: JoinWorkload) -> tuple[BatchCosts, list[int]]:
    with create_temp_dir() as place:
        load.write(Path(place) / "data")
        return measure(spark, load, Path(place))


def _check_speedup(name: str, ratio: float) -> Check:
    return check_at_least(f"{name.lower()}_rows_vs_spark", ratio, GOALS.get(name, 1.0), "times")


def _build_row(load: JoinWorkload, engine: str, cost: BatchCosts, results: int) -> dict[str, Any]:
    rows = load.rows_in_batch * cost.batches
    return {
        "load": load.name,
        "engine": engine,
        "rows_s": rows / cost.wall,
        "cpu_s_per_million": cost.cpu / rows * 1e6,
        "batch_ms": cost.median_ms,
        "peak_mib": cost.peak_mib,
        "checkpoint_kib": cost.checkpoint_bytes / 1024,
        "results": results,
    }


def run_penstock(spark: SparkSession, load: JoinWorkload, place: Path) -> tuple[BatchCosts, list[int]]:
    """One pipeline for all queries of the load."""
    counts = [0] * len(load.queries)
    pipe = Pipeline(spark)
    for name in load.names:
        pipe.stream(name, load.read(spark, place / "data", name), "ts")
    for number, asked in enumerate(load.queries):
        pipe.query(f"q{number}", load.build_cql(asked), sink=sinks.foreach(_make_counter(counts, number)))
    run = pipe.start(place / "checkpoint", cells=CELLS)
    try:
        cost = measure_batches([run], [place / "checkpoint"], load.batches, load.warm_batches)
        run.finish()
        run.processAllAvailable()
    finally:
        run.stop()
    return cost, counts


def _make_counter(counts: list[int], number: int) -> Any:
    def count(rows: Any, batch: int) -> None:
        del batch
        counts[number] += rows.num_rows

    return count


def run_spark(spark: SparkSession, load: JoinWorkload, place: Path) -> tuple[BatchCosts, list[int]]:
    """Spark's own joins, one streaming query for each query of the load."""
    spark.conf.set("spark.sql.shuffle.partitions", str(CELLS))
    queries, checkpoints = [], []
    try:
        for number, asked in enumerate(load.queries):
            checkpoints.append(place / f"checkpoint{number}")
            joined = load.build_spark_join(spark, place / "data", asked).observe("all", F.count(F.lit(1)).alias("n"))
            writer = joined.writeStream.format("noop").option("checkpointLocation", str(checkpoints[-1]))
            queries.append(writer.start())
        cost = measure_batches(queries, checkpoints, load.batches, load.warm_batches)
        for query in queries:
            query.processAllAvailable()
        counts = [sum(p["observedMetrics"]["all"]["n"] for p in query.recentProgress if p["observedMetrics"])
                  for query in queries]  # fmt: skip
    finally:
        for query in queries:
            query.stop()
    return cost, counts


def run_reading_only(spark: SparkSession, load: JoinWorkload, place: Path) -> tuple[BatchCosts, list[int]]:
    """The sources of the load and nothing else, with the settings of a pipeline."""
    with apply_query_settings(spark, CELLS, local=True):
        frames = [load.read(spark, place / "data", name) for name in load.names]
        rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(place / "checkpoint"))
        query = wait_for_sources(writer.start())
    try:
        return measure_batches([query], [place / "checkpoint"], load.batches, load.warm_batches), []
    finally:
        query.stop()
