"""The pipeline on Spark by itself: small and large micro-batches, packed shuffle against rows as columns, a restart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from penstock.engine import Engine
from penstock.lab.join_workloads import JoinWorkload, build_one_key
from penstock.lab.meters import BatchCosts, create_temp_dir, kill_workers, measure_batches, measure_folder_bytes
from penstock.lab.peers.experiments import CELLS, run_penstock, run_spark
from penstock.lab.report import Report, Section, check_at_most, check_equals
from penstock.progress import show_progress
from penstock.spark import sinks
from penstock.spark.pipeline import Pipeline
from penstock.spark.session import apply_query_settings, create_log_file, local_session


@dataclass(frozen=True)
class SparkScale:
    """Micro-batches of the small and the large load, and the base rows of the restart."""

    small: int = 60
    large: int = 16
    large_rows: int = 300_000
    base_rows: int = 1_000_000

    @property
    def small_load(self) -> JoinWorkload:
        """100 rows a micro-batch, at the rate of W2."""
        return replace(
            build_one_key("100 rows", 2, 50 * self.small, self.small, 10_000, 100, self.small),
            warm_batches=self.small // 2,
        )

    @property
    def large_load(self) -> JoinWorkload:
        rows = self.large_rows // 2 * self.large
        load = build_one_key(f"{self.large_rows} rows", 2, rows, rows / 50, 10_000, 100, self.large)
        return replace(load, warm_batches=self.large // 2)

    @property
    def base_load(self) -> JoinWorkload:
        """Five streams whose rows all stay in their windows; the last micro-batch comes after the restart."""
        rows = self.base_rows // 5 * 11 // 10
        return build_one_key("restart", 5, rows, 1100, rows, 100_000, 11)


QUICK = SparkScale(small=24, large=8, base_rows=100_000)


def run(quick: bool = False, scale: SparkScale | None = None) -> Report:
    scale = scale or (QUICK if quick else SparkScale())
    report = Report("spark", quick)
    rows: list[dict[str, Any]] = []
    with show_progress("lab spark", 6) as step:
        step("starting Spark")
        spark = local_session("local[2,4]", {"spark.driver.memory": "3g"}, create_log_file())
        small, large = scale.small_load, scale.large_load
        found = {}
        for name, measure, load in (
            ("penstock, 100 rows", run_penstock, small),
            ("spark's own join, 100 rows", run_spark, small),
            ("penstock", run_penstock, large),
            ("rows as columns", run_as_columns, large),
        ):
            step(name)
            with create_temp_dir() as place:
                load.write(Path(place) / "data")
                found[name], _ = measure(spark, load, Path(place))
            rows.append(_build_row(name, load, found[name]))
        step("restart")
        restarted = _measure_restart(spark, scale.base_load)
    own, theirs = found["penstock, 100 rows"], found["spark's own join, 100 rows"]
    packed, columns = found["penstock"], found["rows as columns"]
    million = large.rows_in_batch * packed.batches / 1e6
    report.checks += [
        check_at_most("small_batch_vs_spark", own.median_ms / theirs.median_ms, 1, "of its time"),
        check_at_most("cpu_s_per_million_rows", packed.cpu / million, 6, "s"),
        check_at_most("packed_vs_rows_as_columns", packed.cpu / columns.cpu, 0.5, "of its processor time"),
        check_at_most(
            "checkpoint_vs_base_windows", restarted["state_bytes"] / restarted["base_arrow_bytes"], 1.2, "times"
        ),
        check_equals("cells_rebuilt_from_segments", restarted["cells_rebuilt"], CELLS, "cells"),
    ]
    report.sections.append(Section("batches", "Micro-batches, warm", rows))
    report.sections.append(Section("restart", "Restart of a 5-way join", [restarted]))
    return report


def _build_row(name: str, load: JoinWorkload, cost: BatchCosts) -> dict[str, Any]:
    rows = load.rows_in_batch * cost.batches
    return {
        "what": name,
        "rows_in_batch": load.rows_in_batch,
        "batch_ms": cost.median_ms,
        "cpu_ms_per_batch": 1000 * cost.cpu / cost.batches,
        "cpu_s_per_million": cost.cpu / rows * 1e6,
        "peak_mib": cost.peak_mib,
    }


# ── rows as columns: what the packed shuffle is compared with ────────────────────────────────────────────────────────

ENGINES: dict[tuple[str, int], Engine] = {}
"""In a worker: the engines of the cells. The reference stores nothing: it is spared what exactly-once costs."""


class ColumnProcessor(StatefulProcessor):
    """The engine fed with rows that came through Spark as columns."""

    def __init__(self, run: str, load: JoinWorkload) -> None:
        self._run = run
        self._load = load

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", "batches bigint")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        engine = ENGINES.setdefault((self._run, key[0]), self._build_engine())
        frame = pd.concat(list(rows))
        found = engine.push({
            name: pa.Table.from_pandas(frame[frame["stream"] == name], self._load.schema(name), preserve_index=False)
            for name in self._load.names
        })["q"]  # fmt: skip
        self._seen.update((1,))
        yield found.drop_columns(["_ts"]).to_pandas()

    def close(self) -> None:
        pass

    def _build_engine(self) -> Engine:
        engine = Engine()
        for name in self._load.names:
            engine.stream(name, self._load.schema(name), time="ts")
        engine.query("q", self._load.build_cql(self._load.queries[0]))
        return engine


def run_as_columns(spark: SparkSession, load: JoinWorkload, place: Path) -> tuple[BatchCosts, list[int]]:
    """The same join, rows sent as columns to `transformWithStateInPandas`, and results back as columns."""
    counts = [0]
    columns = ", ".join(f"v{name} bigint" for name in load.names)

    def count(frame: DataFrame, batch: int) -> None:
        del batch
        counts[0] += frame.toArrow().num_rows

    frames = [load.read(spark, place / "data", name).withColumn("stream", F.lit(name)) for name in load.names]
    with apply_query_settings(spark, CELLS, local=True):
        together = frames[0].unionAll(frames[1]).withColumn("cell", F.expr(f"pmod(hash(k), {CELLS})"))
        joined = together.groupBy("cell").transformWithStateInPandas(
            ColumnProcessor(str(place), load), outputStructType=columns, outputMode="Append", timeMode="None"
        )
        writer = joined.writeStream.foreachBatch(count).option("checkpointLocation", str(place / "checkpoint"))
        query = writer.start()
    try:
        return measure_batches([query], [place / "checkpoint"], load.batches, load.warm_batches), counts
    finally:
        query.stop()


# ── restart ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _measure_restart(spark: SparkSession, load: JoinWorkload) -> dict[str, Any]:
    """Fill the windows, stop, kill the workers; then start on the checkpoint with one more micro-batch to read."""
    with create_temp_dir() as folder:
        place = Path(folder)
        load.write(place / "data")
        held = {name: place / "data" / name / f"{load.batches - 1:05}.parquet" for name in load.names}
        for name, path in held.items():
            path.rename(place / f"{name}.held")
        pipe = Pipeline(spark)
        for name in load.names:
            pipe.stream(name, load.read(spark, place / "data", name), "ts")
        sink = sinks.memory()
        pipe.query("q", load.build_cql(load.queries[0]), sink=sink)
        first = pipe.start(place / "checkpoint", cells=CELLS)
        first.processAllAvailable()
        first.stop()
        base = sum(cell["base_rows"] for cell in first.metrics()["cells"].values())
        stored = measure_folder_bytes(place / "checkpoint" / "state")
        before = sink.table().num_rows
        for name, path in held.items():
            (place / f"{name}.held").rename(path)
        kill_workers()
        begun = perf_counter()
        second = pipe.start(place / "checkpoint", cells=CELLS)
        second.processAllAvailable()
        seconds = perf_counter() - begun
        second.stop()
        ways = [cell["how"] for cell in second.metrics()["cells"].values()]
        row = load.generate_table("a", 0)
        return {
            "base_rows": base,
            "base_arrow_bytes": base * row.nbytes // row.num_rows,
            "state_bytes": stored,
            "cells_rebuilt": ways.count("rebuild"),
            "first_batch_s": seconds,
            "new_results": sink.table().num_rows - before,
        }
