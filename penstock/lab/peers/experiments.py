"""Lab `peers`: Penstock's pipeline compared with Spark's own stream–stream joins, on the same files and micro-batches.

Both run in one session; `penstock.lab.spark_runs` says how. "Reading only" reads the files and drops the rows: it is
the cost of Spark's micro-batches without any join, and the highest rate that a pipeline on these sources can reach.
Other engines are compared with the embedded engine: see `penstock.lab.peers.peer_engines`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from penstock.lab.join_workloads import JoinWorkload, build_clique, build_one_key, build_twelve
from penstock.lab.meters import BatchCosts
from penstock.lab.peers.peer_engines import PEERS, compare_engines, count_wrong_results, find_interpreters
from penstock.lab.report import Check, Report, ReportRow, Section, check_at_least, check_equals
from penstock.lab.spark_runs import CELLS, run_in_temp_dir, run_penstock, run_reading_only, run_spark, start_session
from penstock.progress import ProgressStep, show_progress

GOALS = {"W2": 2.0, "W3": 4.0, "W5": 6.0, "W12": 5.0}
"""The goals for the rows per second of Penstock over those of Spark's own joins, by workload."""
EMBEDDED_WORKLOADS = ("W2", "W3", "W12")
"""The workloads that the embedded engine and the engines other than Spark run too."""
WINDOWS = tuple(range(2500, 32500, 2500))


def build_workloads(quick: bool) -> list[JoinWorkload]:
    """The workloads. `quick` has half of the micro-batches at the same size; its W12 has a quarter of the rows."""
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
    embedded = [workload for workload in workloads if workload.name in EMBEDDED_WORKLOADS]
    others = find_interpreters()
    report.notes += [peer.install_hint for peer in PEERS if peer not in others]
    rows: list[ReportRow] = []
    embedded_rows: list[ReportRow] = []
    with show_progress("lab peers", 3 * len(workloads) + (len(others) + 1) * len(embedded) + 1) as step:
        step("starting Spark")
        spark = start_session()
        for workload in workloads:
            measured, checks = _compare_with_spark(spark, workload, step)
            rows += measured
            report.checks += checks
        for workload in embedded:
            measured, checks = compare_engines(workload, others, step)
            embedded_rows += measured
            report.checks += checks
    report.sections.append(Section("peers", f"Micro-batches after warm-up, {CELLS} cells", rows))
    report.sections.append(Section("embedded", "The embedded engine compared with other engines", embedded_rows))
    return report


def _compare_with_spark(
    spark: SparkSession, workload: JoinWorkload, step: ProgressStep
) -> tuple[list[ReportRow], list[Check]]:
    """A workload by Penstock, by Spark's own joins and reading only. A tenth of the rows warms up both joins."""
    rows: list[ReportRow] = []
    checks: list[Check] = []
    expected = workload.count_results()
    for engine, run_workload in (("penstock", run_penstock), ("spark", run_spark)):
        step(f"{workload.name}: {engine}")
        run_in_temp_dir(run_workload, spark, workload.warm_up_workload)
        cost, counts = run_in_temp_dir(run_workload, spark, workload)
        rows.append(_build_row(workload, engine, cost, sum(counts)))
        wrong = count_wrong_results(counts, expected)
        checks.append(check_equals(f"{workload.name.lower()}_{engine}_wrong_counts", wrong, 0, "rows"))
    own, theirs = (row["rows_s"] for row in rows)
    goal = GOALS.get(workload.name, 1.0)
    checks.append(check_at_least(f"{workload.name.lower()}_rows_vs_spark", own / theirs, goal, "times"))
    step(f"{workload.name}: reading only")
    cost, _ = run_in_temp_dir(run_reading_only, spark, workload)
    rows.append(_build_row(workload, "reading only", cost, 0))
    return rows, checks


def _build_row(workload: JoinWorkload, engine: str, cost: BatchCosts, results: int) -> ReportRow:
    rows = workload.rows_in_batch * cost.batches
    return {
        "load": workload.name,
        "engine": engine,
        "rows_s": rows / cost.wall,
        "cpu_s_per_million": cost.cpu / rows * 1e6,
        "batch_ms": cost.median_ms,
        "peak_mib": cost.peak_mib,
        "checkpoint_kib": cost.checkpoint_bytes / 1024,
        "results": results,
    }
