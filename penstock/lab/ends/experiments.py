"""Lab `ends`: a three-way join from topics of Kafka, from files, and by Spark's own joins from the same topics.

It needs a broker: `make services`, or its address in PENSTOCK_KAFKA. Without one the report says so. The topics stay at
the broker; their names begin with `penstock-lab-`.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from penstock.errors import ResourceError
from penstock.lab.ends.topics import BROKER_VARIABLE, TopicWorkload, find_broker
from penstock.lab.join_workloads import JoinWorkload, build_one_key
from penstock.lab.meters import BatchCosts
from penstock.lab.report import Report, ReportRow, Section, check_at_least, check_equals
from penstock.lab.spark_runs import run_in_temp_dir, run_penstock, run_pipeline, run_spark, start_session
from penstock.progress import show_progress
from penstock.spark.kafka import add_connector
from penstock.spark.payloads import Payload
from penstock.spark.pipeline import Pipeline


def build_workload(quick: bool) -> JoinWorkload:
    """W3: three streams, windows of 100 seconds; 900,000 rows in 12 micro-batches."""
    part = 2 if quick else 1
    return build_one_key("W3", 3, 300_000 // part, 6000 / part, 10_000, 100, 12 // part)


def run(quick: bool = False, workload: JoinWorkload | None = None) -> Report:
    report = Report("ends", quick)
    servers = find_broker()
    if servers is None:
        report.notes.append(
            f"not measured: there is no broker of Kafka. Start one with make services, or set {BROKER_VARIABLE}"
        )
        return report
    workload = workload or build_workload(quick)
    with show_progress("lab ends", 5) as step:
        step("starting Spark")
        spark = start_session()
        try:
            add_connector(spark)
        except ResourceError as error:
            report.notes.append(f"not measured: {error.message}")
            return report
        topics, small = TopicWorkload.of(workload, servers), TopicWorkload.of(workload.warm_up_workload, servers)
        step("writing topics")
        topics.send(spark)
        small.send(spark)
        (expected,) = workload.count_results()
        rows, rates = [], {}
        for name, run_workload, given, warm_up in (
            ("penstock, topics", run_penstock_topics, topics, small),
            ("penstock, files", run_penstock, workload, workload.warm_up_workload),
            ("spark's own join, topics", run_spark, topics, small),
        ):
            step(name)
            run_in_temp_dir(run_workload, spark, warm_up)  # type: ignore[arg-type]
            cost, (found,) = run_in_temp_dir(run_workload, spark, given)  # type: ignore[arg-type]
            rows.append(_build_row(name, workload, cost, found))
            rates[name] = workload.rows_in_batch * cost.batches / cost.wall
            key = name.replace(", ", "_").replace("'", "").replace(" ", "_")
            report.checks.append(check_equals(f"{key}_wrong_counts", abs(found - expected), 0, "rows"))
    own, files, theirs = rates.values()
    report.checks += [
        check_at_least("topics_rows_vs_files", own / files, 0.5, "times"),
        check_at_least("topics_rows_vs_spark", own / theirs, 1, "times"),
    ]
    report.sections.append(Section("rates", "A three-way join: rows of topics and of files", rows))
    return report


def run_penstock_topics(spark: SparkSession, workload: TopicWorkload, folder: Path) -> tuple[BatchCosts, list[int]]:
    """One pipeline that decodes the records where it packs them."""

    def declare(pipe: Pipeline, name: str) -> None:
        frame = workload.read_records(spark, name)
        pipe.stream(name, frame, "ts", schema=workload.schema(name), packed=Payload("json"))

    return run_pipeline(spark, workload, folder, declare)


def _build_row(name: str, workload: JoinWorkload, cost: BatchCosts, found: int) -> ReportRow:
    rows = workload.rows_in_batch * cost.batches
    return {
        "what": name,
        "rows_per_s": rows / cost.wall,
        "batch_ms": cost.median_ms,
        "cpu_s_per_million": cost.cpu / rows * 1e6,
        "peak_mib": cost.peak_mib,
        "results": found,
    }
