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

from penstock.lab.join_workloads import Load, clique, one_key, twelve
from penstock.lab.meters import Metered, metered, scratch
from penstock.lab.peers.peer_engines import PEERS, compared, interpreters
from penstock.lab.report import Check, Report, Section, at_least, equals
from penstock.progress import steps
from penstock.spark import sinks
from penstock.spark.pipeline import Pipeline
from penstock.spark.session import local_session, log_file, query_settings, sourced

CELLS = 2
GOALS = {"W2": 1.0, "W3": 3.0, "W5": 10.0, "W12": 5.0}
"""How many times the rows per second of Spark's own joins."""
EMBEDDED = ("W2", "W3", "W12")
"""Loads that the embedded engine and the engines other than Spark run too."""
WINDOWS = tuple(range(2500, 32500, 2500))


def loads(quick: bool) -> list[Load]:
    """The workloads. `quick` has half of the micro-batches, as large as in the whole; a quarter of W12, halved."""
    part = 2 if quick else 1
    batches = 12 // part
    return [
        one_key("W2", 2, 300_000 // part, 6000 / part, 10_000, 100, batches),
        one_key("W3", 3, 300_000 // part, 6000 / part, 10_000, 100, batches),
        one_key("W5", 5, 100_000 // part, 2000 / part, 5_000, 60, batches),
        twelve(36_000 // part**2, 600 / part**2, 40, batches, WINDOWS),
        clique(100_000 // part, 2000 / part, 100, 20, batches),
    ]


def run(quick: bool = False, chosen: Sequence[Load] | None = None) -> Report:
    report = Report("peers", quick)
    chosen = loads(quick) if chosen is None else chosen
    alone = [load for load in chosen if load.name in EMBEDDED]
    others = interpreters()
    report.notes += [peer.missing for peer in PEERS if peer not in others]
    rows: list[dict[str, Any]] = []
    embedded: list[dict[str, Any]] = []
    with steps("lab peers", 3 * len(chosen) + (len(others) + 1) * len(alone) + 1) as step:
        step("starting Spark")
        spark = local_session("local[2,4]", {"spark.driver.memory": "3g"}, log_file())
        for load in chosen:
            wanted = load.counts()
            found: dict[str, float] = {}
            for engine, measure in (("penstock", with_penstock), ("spark", with_spark)):
                step(f"{load.name}: {engine}")
                _measured(measure, spark, load.warm_up)
                cost, counts = _measured(measure, spark, load)
                rows.append(_row(load, engine, cost, sum(counts)))
                found[engine] = rows[-1]["rows_s"]
                wrong = sum(abs(count - right) for count, right in zip(counts, wanted, strict=True))
                report.checks.append(equals(f"{load.name.lower()}_{engine}_wrong_counts", wrong, 0, "rows"))
            report.checks.append(_faster(load.name, found["penstock"] / found["spark"]))
            step(f"{load.name}: reading only")
            cost, _ = _measured(reading_only, spark, load)
            rows.append(_row(load, "reading only", cost, 0))
        for load in alone:
            measured, checks = compared(load, others, step)
            embedded += measured
            report.checks += checks
    report.sections.append(Section("peers", f"Micro-batches, warm, {CELLS} cells", rows))
    report.sections.append(Section("embedded", "The engine alone, beside other engines", embedded))
    return report


Measure = Callable[[SparkSession, Load, Path], tuple[Metered, list[int]]]


def _measured(measure: Measure, spark: SparkSession, load: Load) -> tuple[Metered, list[int]]:
    with scratch() as place:
        load.write(Path(place) / "data")
        return measure(spark, load, Path(place))


def _faster(name: str, ratio: float) -> Check:
    return at_least(f"{name.lower()}_rows_vs_spark", ratio, GOALS.get(name, 1.0), "times")


def _row(load: Load, engine: str, cost: Metered, results: int) -> dict[str, Any]:
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


def with_penstock(spark: SparkSession, load: Load, place: Path) -> tuple[Metered, list[int]]:
    """One pipeline for all queries of the load."""
    counts = [0] * len(load.asked)
    pipe = Pipeline(spark)
    for name in load.names:
        pipe.stream(name, load.read(spark, place / "data", name), "ts")
    for number, asked in enumerate(load.asked):
        pipe.query(f"q{number}", load.cql(asked), sink=sinks.foreach(_counting(counts, number)))
    run = pipe.start(place / "checkpoint", cells=CELLS)
    try:
        cost = metered([run], [place / "checkpoint"], load.batches, load.warm)
        run.finish()
        run.processAllAvailable()
    finally:
        run.stop()
    return cost, counts


def _counting(counts: list[int], number: int) -> Any:
    def count(rows: Any, batch: int) -> None:
        del batch
        counts[number] += rows.num_rows

    return count


def with_spark(spark: SparkSession, load: Load, place: Path) -> tuple[Metered, list[int]]:
    """Spark's own joins, one streaming query for each query of the load."""
    spark.conf.set("spark.sql.shuffle.partitions", str(CELLS))
    queries, checkpoints = [], []
    try:
        for number, asked in enumerate(load.asked):
            checkpoints.append(place / f"checkpoint{number}")
            joined = load.spark_join(spark, place / "data", asked).observe("all", F.count(F.lit(1)).alias("n"))
            writer = joined.writeStream.format("noop").option("checkpointLocation", str(checkpoints[-1]))
            queries.append(writer.start())
        cost = metered(queries, checkpoints, load.batches, load.warm)
        for query in queries:
            query.processAllAvailable()
        counts = [sum(p["observedMetrics"]["all"]["n"] for p in query.recentProgress if p["observedMetrics"])
                  for query in queries]  # fmt: skip
    finally:
        for query in queries:
            query.stop()
    return cost, counts


def reading_only(spark: SparkSession, load: Load, place: Path) -> tuple[Metered, list[int]]:
    """The sources of the load and nothing else, with the settings of a pipeline."""
    with query_settings(spark, CELLS, local=True):
        frames = [load.read(spark, place / "data", name) for name in load.names]
        rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(place / "checkpoint"))
        query = sourced(writer.start())
    try:
        return metered([query], [place / "checkpoint"], load.batches, load.warm), []
    finally:
        query.stop()
