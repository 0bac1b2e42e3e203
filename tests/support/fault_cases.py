"""Seeded runs with a fault: every result is written exactly once.

A kind of fault is a function that takes a `FaultCase` through all of its micro-batches. Results go to Parquet files,
because a run may end in one process and continue in another. At the end they equal those of the embedded engine.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from faults import STAGES, FailingSink, build_faulty_pipeline
from spark_support import declare_pipeline, drain, merge_pushes, run_embedded, write_case

import penstock as ps
from penstock.lab.meters import kill_workers
from penstock.spark import sinks
from penstock.spark.pipeline import Pipeline
from penstock.spark.run import Run
from penstock.testing import Case, another_query, difference, random_case

BATCHES = 4
_TIMEOUT = 600
_MAX_STARTS = 5
_WORKER_TIMEOUT = "Python worker failed to connect back"


@dataclass
class FaultCase:
    """A random case, a folder for its files, and the choices drawn from its seed."""

    seed: int
    folder: Path
    rng: random.Random = field(init=False)
    case: Case = field(init=False)
    queries: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"adventure {self.seed}")
        self.case = merge_pushes(random_case(self.seed, sources=self.rng.randint(2, 4), full=True, rows=30, emit=""),
                               BATCHES)  # fmt: skip
        self.queries = {"q": self.case.query, "other": another_query(self.case, self.seed)}

    @property
    def cells(self) -> int:
        return 1 + self.seed % 3

    @property
    def marker_path(self) -> Path:
        return self.folder / "mark"

    def draw_faulty_pipeline(self, how: str) -> type[Pipeline]:
        """A pipeline that fails in a micro-batch after the first, which may end before others start."""
        return build_faulty_pipeline(
            self.rng.choice(STAGES), self.rng.randint(1, max(1, len(self.case.steps) - 1)), self.marker_path, how
        )

    def start(self, spark: Any, kind: type[Pipeline] = Pipeline, flaky: FailingSink | None = None) -> Run:
        pipe = declare_pipeline(spark, self.case, self.folder, kind)
        for name, text in self.queries.items():
            pipe.query(name, text, sink=flaky if flaky is not None and name == "q" else self.build_sink(name))
        return pipe.start(self.folder / "ck", cells=self.cells)

    def run_to_end(self, spark: Any, kind: type[Pipeline] = Pipeline, *, finish: bool = True) -> None:
        """Start, process everything and, with `finish`, end the streams.

        On a loaded machine a Python worker may miss Spark's limit of ten seconds: then the run starts again.
        """
        for _ in range(_MAX_STARTS):
            try:
                drain(self.start(spark, kind), finish=finish)
            except ps.PenstockError as error:
                if _WORKER_TIMEOUT not in str(error):
                    raise
            else:
                return
        raise AssertionError(f"not even started in {_MAX_STARTS} times")

    def run_until_sink_fails(self, spark: Any, batch: int, begin: Callable[[Run], object] | None = None) -> None:
        """Run until the sink of query q fails in a micro-batch; `begin` is called after the start."""
        for _ in range(_MAX_STARTS):
            run = self.start(spark, flaky=FailingSink(self.build_sink("q"), batch))
            try:
                if begin is not None:
                    begin(run)
                run.processAllAvailable()
            except ps.PenstockError as error:
                if "the disk is full" in str(error):
                    return
                if _WORKER_TIMEOUT not in str(error):
                    raise
            finally:
                run.stop()
        raise AssertionError(f"the sink did not fail in micro-batch {batch}")

    def build_sink(self, name: str) -> Any:
        return sinks.parquet(str(self.folder / "out" / name))

    def check(self) -> None:
        """Every result is written exactly once."""
        for name, wanted in run_embedded(self.case, self.queries, finish=True).items():
            files = sorted((self.folder / "out" / name).glob("*.parquet"))
            parts = [pq.read_table(file).cast(wanted.schema) for file in files]
            fault = difference(pa.concat_tables([wanted.schema.empty_table(), *parts]), wanted)
            assert fault is None, f"seed {self.seed}, {self.cells} cells, {name}: {self.queries[name]}\n{fault}"


def raise_in_task(spark: Any, fault_case: FaultCase) -> None:
    write_case(fault_case.case, fault_case.folder)
    fault_case.run_to_end(spark, fault_case.draw_faulty_pipeline("raise"))
    assert fault_case.marker_path.exists()


def kill_python_worker(spark: Any, fault_case: FaultCase) -> None:
    write_case(fault_case.case, fault_case.folder)
    fault_case.run_to_end(spark, fault_case.draw_faulty_pipeline("kill"))
    assert fault_case.marker_path.exists()


def fail_sink(spark: Any, fault_case: FaultCase) -> None:
    write_case(fault_case.case, fault_case.folder)
    fault_case.run_until_sink_fails(spark, fault_case.rng.randrange(len(fault_case.case.steps)))
    fault_case.run_to_end(spark)


def stop_repeatedly(spark: Any, fault_case: FaultCase) -> None:
    """Stop the run at random moments, three times."""
    write_case(fault_case.case, fault_case.folder)
    for _ in range(3):
        run = fault_case.start(spark)
        time.sleep(fault_case.rng.uniform(0, 1.5))
        run.stop()
    fault_case.run_to_end(spark)


def restart_between_batches(spark: Any, fault_case: FaultCase) -> None:
    """Stop between micro-batches and kill the workers with their engines."""
    cut = fault_case.rng.randint(1, max(1, len(fault_case.case.steps) - 1))
    write_case(fault_case.case, fault_case.folder, range(0, cut))
    fault_case.run_to_end(spark, finish=False)
    kill_workers()
    write_case(fault_case.case, fault_case.folder, range(cut, len(fault_case.case.steps)))
    fault_case.run_to_end(spark)


def kill_jvm(spark: Any, fault_case: FaultCase) -> None:
    """Kill the Java process of a driver in another process; this process continues the run."""
    write_case(fault_case.case, fault_case.folder)
    ended = run_driver(fault_case, "local[2,4]", "jvm")
    assert ended.returncode != 0
    assert fault_case.marker_path.exists(), ended.stderr
    fault_case.run_to_end(spark)


def run_driver(fault_case: FaultCase, master: str, *faults: str) -> subprocess.CompletedProcess[str]:
    """Run a fault case by a driver in a separate process."""
    program = str(Path(__file__).with_name("driver.py"))
    command = [sys.executable, program, str(fault_case.seed), str(fault_case.folder), master, *faults]
    return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)


def repeat_commands(spark: Any, fault_case: FaultCase) -> None:
    """Micro-batches with commands (a plan, the schedule, the end of the streams) fail and are repeated."""
    last = len(fault_case.case.steps) - 1
    write_case(fault_case.case, fault_case.folder, range(0, last))
    fault_case.run_to_end(spark, fault_case.draw_faulty_pipeline("raise"), finish=False)
    run = fault_case.start(spark)
    try:
        run.migrate("q", fault_case.case.plan)
        run.schedule(fault_case.rng.choice(("bfs", "rr")))
        batch = int(run.metrics()["batch"])
    finally:
        run.stop()
    write_case(fault_case.case, fault_case.folder, range(last, last + 1))
    fault_case.run_until_sink_fails(spark, batch + 1)
    fault_case.run_until_sink_fails(spark, batch + 2, Run.finish)
    fault_case.run_to_end(spark, finish=False)


KINDS: tuple[Callable[[Any, FaultCase], None], ...] = (
    raise_in_task, kill_python_worker, fail_sink, stop_repeatedly, restart_between_batches, kill_jvm, repeat_commands,
)  # fmt: skip


def name_kind(seed: int) -> str:
    return KINDS[seed % len(KINDS)].__name__


def run_seed(spark: Any, seed: int, folder: Path) -> None:
    fault_case = FaultCase(seed, folder)
    KINDS[seed % len(KINDS)](spark, fault_case)
    fault_case.check()
