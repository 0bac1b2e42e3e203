"""Lab `spark`: small and large micro-batches, packed shuffle against rows as columns, a restart, and `ps.sql`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from penstock.engine import Engine
from penstock.lab.join_workloads import JoinWorkload, build_one_key
from penstock.lab.meters import BatchCosts, create_temp_dir, kill_workers, measure_batches, measure_folder_bytes
from penstock.lab.report import Report, ReportRow, Section, check_at_most, check_equals
from penstock.lab.spark.frame_runs import build_frame_workloads, compare_frames
from penstock.lab.spark_runs import CELLS, run_in_temp_dir, run_penstock, run_spark, start_session
from penstock.progress import show_progress
from penstock.spark import sinks
from penstock.spark.pipeline import Pipeline
from penstock.spark.session import NARROW_ROWS, apply_query_settings


@dataclass(frozen=True)
class SparkScale:
    """The number of micro-batches of the small and the large workload, and the base rows of the restart.

    Two thirds of the micro-batches are not measured: meanwhile Java compiles what every micro-batch runs.
    """

    small: int = 96
    large: int = 32
    large_rows: int = 300_000
    base_rows: int = 1_000_000

    @property
    def small_workload(self) -> JoinWorkload:
        """100 rows in a micro-batch, at the rate of W2."""
        return replace(
            build_one_key("100 rows", 2, 50 * self.small, self.small, 10_000, 100, self.small),
            warm_batches=self.small * 2 // 3,
        )

    @property
    def large_workload(self) -> JoinWorkload:
        rows = self.large_rows // 2 * self.large
        workload = build_one_key(f"{self.large_rows} rows", 2, rows, rows / 50, 10_000, 100, self.large)
        return replace(workload, warm_batches=self.large * 2 // 3)

    @property
    def restart_workload(self) -> JoinWorkload:
        """Five streams whose rows all stay in their windows. The last micro-batch arrives after the restart."""
        rows = self.base_rows // 5 * 11 // 10
        return build_one_key("restart", 5, rows, 1100, rows, 100_000, 11)


QUICK = SparkScale(small=24, large=8, base_rows=100_000)


def run(quick: bool = False, scale: SparkScale | None = None) -> Report:
    scale = scale or (QUICK if quick else SparkScale())
    report = Report("spark", quick)
    rows: list[ReportRow] = []
    workloads = build_frame_workloads(quick)
    with show_progress("lab spark", 6 + 2 * len(workloads)) as step:
        step("starting Spark")
        spark = start_session()
        small, large = scale.small_workload, scale.large_workload
        found = {}
        for name, run_workload, workload in (
            ("penstock, 100 rows", run_penstock, small),
            ("spark's own join, 100 rows", run_spark, small),
            ("penstock", run_penstock, large),
            ("rows as columns", run_as_columns, large),
        ):
            step(name)
            found[name], _ = run_in_temp_dir(run_workload, spark, workload)
            rows.append(_build_row(name, workload, found[name]))
        step("restart")
        restarted = _measure_restart(spark, scale.restart_workload)
        frame_rows, frame_checks = compare_frames(spark, workloads, step)
    own, theirs = found["penstock, 100 rows"], found["spark's own join, 100 rows"]
    packed, columns = found["penstock"], found["rows as columns"]
    million = large.rows_in_batch * packed.batches / 1e6
    report.checks += [
        check_at_most("small_batch_vs_spark", own.median_ms / theirs.median_ms, 0.5, "of its time"),
        check_at_most(
            "small_batch_cpu_vs_spark", _cpu_per_batch(own) / _cpu_per_batch(theirs), 0.5, "of its processor time"
        ),
        check_at_most("cpu_s_per_million_rows", packed.cpu / million, 2.5, "s"),
        check_at_most("packed_vs_rows_as_columns", packed.cpu / columns.cpu, 0.5, "of its processor time"),
        check_at_most(
            "checkpoint_vs_base_windows", restarted["state_bytes"] / restarted["base_arrow_bytes"], 1.2, "times"
        ),
        check_equals("cells_rebuilt_from_segments", restarted["cells_rebuilt"], CELLS, "cells"),
        *frame_checks,
    ]
    report.sections.append(Section("batches", "Micro-batches after warm-up", rows))
    report.sections.append(Section("restart", "Restart of a 5-way join", [restarted]))
    report.sections.append(
        Section("frames", "ps.sql and Spark's own joins, written by Spark's Parquet sink", frame_rows)
    )
    return report


def _cpu_per_batch(cost: BatchCosts) -> float:
    return cost.cpu / cost.batches


def _build_row(name: str, workload: JoinWorkload, cost: BatchCosts) -> ReportRow:
    rows = workload.rows_in_batch * cost.batches
    return {
        "what": name,
        "rows_in_batch": workload.rows_in_batch,
        "batch_ms": cost.median_ms,
        "cpu_ms_per_batch": 1000 * cost.cpu / cost.batches,
        "cpu_s_per_million": cost.cpu / rows * 1e6,
        "peak_mib": cost.peak_mib,
    }


# ── rows as columns: the reference of the packed shuffle ─────────────────────────────────────────────────────────────

ENGINES: dict[tuple[str, int], Engine] = {}
"""The engines of the cells, in a worker. The reference stores no state, so it does not pay for exactly-once."""


class ColumnProcessor(StatefulProcessor):
    """Pushes rows that Spark shuffled as columns into an engine."""

    def __init__(self, run: str, workload: JoinWorkload) -> None:
        self._run = run
        self._workload = workload

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", "batches bigint")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        engine = ENGINES.setdefault((self._run, key[0]), self._build_engine())
        workload, frame = self._workload, pd.concat(list(rows))
        found = engine.push({
            name: pa.Table.from_pandas(frame[frame["stream"] == name], workload.schema(name), preserve_index=False)
            for name in workload.names
        })["q"]  # fmt: skip
        self._seen.update((1,))
        yield found.drop_columns(["_ts"]).to_pandas()

    def close(self) -> None:
        pass

    def _build_engine(self) -> Engine:
        engine = Engine()
        for name in self._workload.names:
            engine.stream(name, self._workload.schema(name), time="ts")
        engine.query("q", self._workload.build_cql(self._workload.queries[0]))
        return engine


def run_as_columns(spark: SparkSession, workload: JoinWorkload, folder: Path) -> tuple[BatchCosts, list[int]]:
    """The same join with `transformWithStateInPandas`: rows and results are columns of Spark."""
    counts = [0]
    columns = ", ".join(f"v{name} bigint" for name in workload.names)

    def count(frame: DataFrame, batch: int) -> None:
        del batch
        counts[0] += frame.toArrow().num_rows

    frames = [workload.read(spark, folder / "data", name).withColumn("stream", F.lit(name)) for name in workload.names]
    with apply_query_settings(spark, CELLS, local=True, batches=NARROW_ROWS):
        together = frames[0].unionAll(frames[1]).withColumn("cell", F.expr(f"pmod(hash(k), {CELLS})"))
        joined = together.groupBy("cell").transformWithStateInPandas(
            ColumnProcessor(str(folder), workload), outputStructType=columns, outputMode="Append", timeMode="None"
        )
        writer = joined.writeStream.foreachBatch(count).option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.start()
    try:
        return measure_batches([query], [folder / "checkpoint"], workload.batches, workload.warm_batches), counts
    finally:
        query.stop()


# ── restart ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _measure_restart(spark: SparkSession, workload: JoinWorkload) -> ReportRow:
    """Fill the windows, stop, kill the workers; then start from the checkpoint with one more micro-batch to read."""
    with create_temp_dir() as temp_dir:
        folder = Path(temp_dir)
        workload.write(folder / "data")
        last_files = {name: folder / "data" / name / f"{workload.batches - 1:05}.parquet" for name in workload.names}
        for name, path in last_files.items():
            path.rename(folder / f"{name}.held")
        pipe = Pipeline(spark)
        for name in workload.names:
            pipe.stream(name, workload.read(spark, folder / "data", name), "ts")
        sink = sinks.memory()
        pipe.query("q", workload.build_cql(workload.queries[0]), sink=sink)
        first = pipe.start(folder / "checkpoint", cells=CELLS)
        first.processAllAvailable()
        first.stop()
        base_rows = sum(cell["base_rows"] for cell in first.metrics()["cells"].values())
        state_bytes = measure_folder_bytes(folder / "checkpoint" / "state")
        before = sink.table().num_rows
        for name, path in last_files.items():
            (folder / f"{name}.held").rename(path)
        kill_workers()
        begun = perf_counter()
        second = pipe.start(folder / "checkpoint", cells=CELLS)
        second.processAllAvailable()
        seconds = perf_counter() - begun
        second.stop()
        starts = [cell["how"] for cell in second.metrics()["cells"].values()]
        row = workload.generate_table("a", 0)
        return {
            "base_rows": base_rows,
            "base_arrow_bytes": base_rows * row.nbytes // row.num_rows,
            "state_bytes": state_bytes,
            "cells_rebuilt": starts.count("rebuild"),
            "first_batch_s": seconds,
            "new_results": sink.table().num_rows - before,
        }
