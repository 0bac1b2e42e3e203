"""Seeded runs with a fault: every result is written exactly once.

A kind of fault is a function that takes a `FaultCase` through all of its micro-batches. Results go to files, because a
run may end in one process and continue in another. At the end they equal those of the embedded engine.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from faults import STAGES, EndingTaskSink, FailingTaskSink, KillingTaskSink, build_faulty_pipeline
from pyarrow import orc
from spark_support import declare_pipeline, drain, merge_pushes, run_embedded, write_case

import penstock as ps
from penstock.lab.meters import kill_executor, kill_workers
from penstock.spark import sinks
from penstock.spark.pipeline import Pipeline
from penstock.spark.run import Run
from penstock.spark.sinks import Sink, TaskSink
from penstock.spark.sinks.driver import DriverMemorySink
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
    memory: DriverMemorySink = field(default_factory=DriverMemorySink)

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

    def draw_ending_sink(self, java: int) -> TaskSink:
        """A sink of query q that ends its driver in a commit."""
        part = self.rng.choice((0.0, 0.5, 1.0))
        return EndingTaskSink(self.build_file_sink(), self.draw_batch(), part, java, self.marker_path)

    def draw_faulty_pipeline(self, how: str) -> type[Pipeline]:
        """A pipeline that fails in a micro-batch after the first, which may end before others start."""
        return build_faulty_pipeline(
            self.rng.choice(STAGES), self.rng.randint(1, max(1, len(self.case.steps) - 1)), self.marker_path, how
        )

    def start(self, spark: Any, kind: type[Pipeline] = Pipeline, flaky: TaskSink | None = None) -> Run:
        pipe = declare_pipeline(spark, self.case, self.folder, kind)
        files = self.build_file_sink() if flaky is None else flaky
        for name, text in self.queries.items():
            pipe.query(name, text, sink=files if name == "q" else self.build_other_sink())
        return pipe.start(self.folder / "ck", cells=self.cells)

    def run_to_end(
        self, spark: Any, kind: type[Pipeline] = Pipeline, flaky: TaskSink | None = None, *, finish: bool = True
    ) -> None:
        """Start, process everything and, with `finish`, end the streams.

        On a loaded machine a Python worker may miss Spark's limit of ten seconds: then the run starts again.
        """
        for _ in range(_MAX_STARTS):
            try:
                drain(self.start(spark, kind, flaky), finish=finish)
            except ps.PenstockError as error:
                if _WORKER_TIMEOUT not in str(error):
                    raise
            else:
                return
        raise AssertionError(f"not even started in {_MAX_STARTS} times")

    def run_until_commit_fails(
        self, spark: Any, batch: int, part: float = 1.0, begin: Callable[[Run], object] | None = None
    ) -> None:
        """Run until a commit of query q fails, in the first micro-batch with results from this one on, if there is one.

        `part`: how much of it is done before. `begin` is called after the start.
        """
        for _ in range(_MAX_STARTS):
            run = self.start(spark, flaky=FailingTaskSink(self.build_file_sink(), batch, part))
            try:
                if begin is not None:
                    begin(run)
                run.processAllAvailable()
            except ps.PenstockError as error:
                if "the disk is full" in str(error):
                    return
                if _WORKER_TIMEOUT not in str(error):
                    raise
            else:
                return
            finally:
                run.stop()
        raise AssertionError(f"not even started in {_MAX_STARTS} times")

    def draw_batch(self) -> int:
        return self.rng.randrange(len(self.case.steps))

    def build_file_sink(self) -> TaskSink:
        """The sink of query q: Parquet or ORC files."""
        return (sinks.parquet, sinks.orc)[self.seed // 2 % 2](str(self.folder / "out" / "q"))

    def build_other_sink(self) -> Sink:
        """The sink of the other query: a frame, files that tasks write, or a function or memory of the driver.

        A function and a frame write one file or folder for each micro-batch, so a repetition replaces it. Memory would
        be lost with a driver that is killed, so these cases have a function instead.
        """
        folder = self.folder / "out" / "other"
        kind = (self.seed + self.seed // len(KINDS)) % 4
        if kind == 0:
            return sinks.foreachBatch(lambda frame, batch: frame.write.mode("overwrite").parquet(f"{folder}/{batch}"))
        if kind == 1:
            return sinks.parquet(str(folder))
        if kind == 2 or KINDS[self.seed % len(KINDS)] in (kill_jvm, kill_driver_in_commit):
            return sinks.foreach(partial(_write_file, folder))
        return self.memory

    def check(self) -> None:
        """Every result is written exactly once, and nothing is left aside."""
        for name, wanted in run_embedded(self.case, self.queries, finish=True).items():
            fault = difference(self._read(name, wanted.schema), wanted)
            assert fault is None, f"seed {self.seed}, {self.cells} cells, {name}: {self.queries[name]}\n{fault}"

    def _read(self, name: str, schema: pa.Schema) -> pa.Table:
        folder = self.folder / "out" / name
        orcs = [orc.read_table(file) for file in folder.glob("*.orc")]
        parquets = [pq.read_table(file) for file in (*folder.glob("*.parquet"), *folder.glob("[0-9]*/*.parquet"))]
        kept = [self.memory.table()] if name == "other" and self.memory.is_open else []
        return pa.concat_tables([schema.empty_table(), *(_cast(table, schema) for table in (*orcs, *parquets, *kept))])


def _write_file(folder: Path, rows: pa.Table, batch: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, folder / f"{batch}.parquet")


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table.rename_columns(schema.names).cast(schema)


def raise_in_task(spark: Any, fault_case: FaultCase) -> None:
    write_case(fault_case.case, fault_case.folder)
    fault_case.run_to_end(spark, fault_case.draw_faulty_pipeline("raise"))
    assert fault_case.marker_path.exists()


def kill_python_worker(spark: Any, fault_case: FaultCase) -> None:
    write_case(fault_case.case, fault_case.folder)
    fault_case.run_to_end(spark, fault_case.draw_faulty_pipeline("kill"))
    assert fault_case.marker_path.exists()


def fail_after_commit(spark: Any, fault_case: FaultCase) -> None:
    write_case(fault_case.case, fault_case.folder)
    fault_case.run_until_commit_fails(spark, fault_case.draw_batch())
    fault_case.run_to_end(spark)


def fail_within_commit(spark: Any, fault_case: FaultCase) -> None:
    """A commit fails before it begins or half-way, twice."""
    write_case(fault_case.case, fault_case.folder)
    fault_case.run_until_commit_fails(spark, fault_case.draw_batch(), 0.5)
    fault_case.run_until_commit_fails(spark, fault_case.draw_batch(), fault_case.rng.choice((0.0, 0.5)))
    fault_case.run_to_end(spark)


def kill_worker_while_writing(spark: Any, fault_case: FaultCase) -> None:
    write_case(fault_case.case, fault_case.folder)
    sink = KillingTaskSink(fault_case.build_file_sink(), fault_case.draw_batch(), fault_case.marker_path)
    fault_case.run_to_end(spark, flaky=sink)


def kill_driver_in_commit(spark: Any, fault_case: FaultCase) -> None:
    """Kill both processes of a driver before, within or after a commit; this process continues the run."""
    write_case(fault_case.case, fault_case.folder)
    ended = run_driver(fault_case, "local[2,4]", "commit")
    assert (ended.returncode != 0) == fault_case.marker_path.exists(), ended.stderr
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


def lose_executors(spark: Any, fault_case: FaultCase) -> list[int]:
    """Kill an executor while each micro-batch after the first is processed; returns the ids of those killed."""
    killed = []
    run = fault_case.start(spark)
    try:
        for number in range(len(fault_case.case.steps)):
            write_case(fault_case.case, fault_case.folder, range(number, number + 1))
            if number:
                killed.append(kill_executor())
            run.processAllAvailable()
        run.finish()
        run.processAllAvailable()
    finally:
        run.stop()
    return killed


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
    fault_case.run_until_commit_fails(spark, batch + 1)
    fault_case.run_until_commit_fails(spark, batch + 2, begin=Run.finish)
    fault_case.run_to_end(spark, finish=False)


KINDS: tuple[Callable[[Any, FaultCase], None], ...] = (
    raise_in_task, kill_python_worker, fail_after_commit, stop_repeatedly, restart_between_batches, kill_jvm,
    repeat_commands, fail_within_commit, kill_worker_while_writing, kill_driver_in_commit,
)  # fmt: skip


def name_kind(seed: int) -> str:
    return KINDS[seed % len(KINDS)].__name__


def run_seed(spark: Any, seed: int, folder: Path) -> None:
    fault_case = FaultCase(seed, folder)
    KINDS[seed % len(KINDS)](spark, fault_case)
    fault_case.check()
