"""One seeded run with a fault: whatever fails, wherever, every result is there once.

A kind is a function that takes a `Story` through all of its micro-batches. Results go to Parquet files, for a run may
end in one process and go on in another; at the end they are those of the embedded engine.
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
    """A random case, a folder for its files, and what is drawn from its seed."""

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
        """A pipeline that fails in some micro-batch but the first, which may come to an end before others begin."""
        return build_faulty_pipeline(
            self.rng.choice(STAGES), self.rng.randint(1, max(1, len(self.case.steps) - 1)), self.marker_path, how
        )

    def start(self, spark: Any, kind: type[Pipeline] = Pipeline, flaky: FailingSink | None = None) -> Run:
        pipe = declare_pipeline(spark, self.case, self.folder, kind)
        for name, text in self.queries.items():
            pipe.query(name, text, sink=flaky if flaky is not None and name == "q" else self.build_sink(name))
        return pipe.start(self.folder / "ck", cells=self.cells)

    def run_to_end(self, spark: Any, kind: type[Pipeline] = Pipeline, *, finish: bool = True) -> None:
        """Start, work on everything and, with `finish`, end the streams.

        A machine under load may not even let Python begin in the ten seconds that Spark gives it: then start again.
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
        """The sink of a query fails in a micro-batch. `begin`: what is done after the start."""
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
        """Every result is there once."""
        for name, wanted in run_embedded(self.case, self.queries, finish=True).items():
            files = sorted((self.folder / "out" / name).glob("*.parquet"))
            parts = [pq.read_table(file).cast(wanted.schema) for file in files]
            fault = difference(pa.concat_tables([wanted.schema.empty_table(), *parts]), wanted)
            assert fault is None, f"seed {self.seed}, {self.cells} cells, {name}: {self.queries[name]}\n{fault}"


def raise_in_task(spark: Any, story: FaultCase) -> None:
    write_case(story.case, story.folder)
    story.run_to_end(spark, story.draw_faulty_pipeline("raise"))
    assert story.marker_path.exists()


def kill_python_worker(spark: Any, story: FaultCase) -> None:
    write_case(story.case, story.folder)
    story.run_to_end(spark, story.draw_faulty_pipeline("kill"))
    assert story.marker_path.exists()


def fail_sink(spark: Any, story: FaultCase) -> None:
    write_case(story.case, story.folder)
    story.run_until_sink_fails(spark, story.rng.randrange(len(story.case.steps)))
    story.run_to_end(spark)


def stop_repeatedly(spark: Any, story: FaultCase) -> None:
    """Stopped at any moment, again and again."""
    write_case(story.case, story.folder)
    for _ in range(3):
        run = story.start(spark)
        time.sleep(story.rng.uniform(0, 1.5))
        run.stop()
    story.run_to_end(spark)


def restart_between_batches(spark: Any, story: FaultCase) -> None:
    """Stopped between micro-batches; the workers with their engines are gone meanwhile."""
    cut = story.rng.randint(1, max(1, len(story.case.steps) - 1))
    write_case(story.case, story.folder, range(0, cut))
    story.run_to_end(spark, finish=False)
    kill_workers()
    write_case(story.case, story.folder, range(cut, len(story.case.steps)))
    story.run_to_end(spark)


def kill_jvm(spark: Any, story: FaultCase) -> None:
    """The driver is another process; when its Java process is killed, this one goes on."""
    write_case(story.case, story.folder)
    ended = run_driver(story, "local[2,4]", "jvm")
    assert ended.returncode != 0
    assert story.marker_path.exists(), ended.stderr
    story.run_to_end(spark)


def run_driver(story: FaultCase, master: str, *faults: str) -> subprocess.CompletedProcess[str]:
    """A story played by a driver in a process of its own."""
    program = str(Path(__file__).with_name("driver.py"))
    command = [sys.executable, program, str(story.seed), str(story.folder), master, *faults]
    return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)


def repeat_commands(spark: Any, story: FaultCase) -> None:
    """A query's plan, the schedule and the end of the streams: micro-batches with commands fail and are repeated."""
    last = len(story.case.steps) - 1
    write_case(story.case, story.folder, range(0, last))
    story.run_to_end(spark, story.draw_faulty_pipeline("raise"), finish=False)
    run = story.start(spark)
    try:
        run.migrate("q", story.case.plan)
        run.schedule(story.rng.choice(("bfs", "rr")))
        batch = int(run.metrics()["batch"])
    finally:
        run.stop()
    write_case(story.case, story.folder, range(last, last + 1))
    story.run_until_sink_fails(spark, batch + 1)
    story.run_until_sink_fails(spark, batch + 2, Run.finish)
    story.run_to_end(spark, finish=False)


KINDS: tuple[Callable[[Any, FaultCase], None], ...] = (
    raise_in_task, kill_python_worker, fail_sink, stop_repeatedly, restart_between_batches, kill_jvm, repeat_commands,
)  # fmt: skip


def name_kind(seed: int) -> str:
    return KINDS[seed % len(KINDS)].__name__


def run_seed(spark: Any, seed: int, folder: Path) -> None:
    story = FaultCase(seed, folder)
    KINDS[seed % len(KINDS)](spark, story)
    story.check()
