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
import pytest
from faults import STAGES, Flaky, failing
from sparkkit import declared, drained, embedded, in_batches, write

import penstock as ps
from penstock.lab.meters import kill_workers
from penstock.spark import sinks
from penstock.spark.pipeline import Pipeline
from penstock.spark.run import Run
from penstock.testing import Case, another_query, difference, random_case

BATCHES = 4
_PATIENCE = 180


@dataclass
class Story:
    """A random case, a folder for its files, and what is drawn from its seed."""

    seed: int
    folder: Path
    rng: random.Random = field(init=False)
    case: Case = field(init=False)
    queries: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"adventure {self.seed}")
        self.case = in_batches(random_case(self.seed, sources=self.rng.randint(2, 4), full=True, rows=30, emit=""),
                               BATCHES)  # fmt: skip
        self.queries = {"q": self.case.query, "other": another_query(self.case, self.seed)}

    @property
    def cells(self) -> int:
        return 1 + self.seed % 3

    @property
    def mark(self) -> Path:
        return self.folder / "mark"

    def faulty(self, how: str) -> type[Pipeline]:
        """A pipeline that fails in some micro-batch but the first, which may come to an end before others begin."""
        return failing(self.rng.choice(STAGES), self.rng.randint(1, len(self.case.steps) - 1), self.mark, how)

    def started(self, spark: Any, kind: type[Pipeline] = Pipeline, flaky: Flaky | None = None) -> Run:
        pipe = declared(spark, self.case, self.folder, kind)
        for name, text in self.queries.items():
            pipe.query(name, text, sink=flaky if flaky is not None and name == "q" else self.sink(name))
        return pipe.start(self.folder / "ck", cells=self.cells)

    def sink(self, name: str) -> Any:
        return sinks.parquet(str(self.folder / "out" / name))

    def check(self) -> None:
        """Every result is there once."""
        for name, wanted in embedded(self.case, self.queries, finish=True).items():
            files = sorted((self.folder / "out" / name).glob("*.parquet"))
            parts = [pq.read_table(file).cast(wanted.schema) for file in files]
            fault = difference(pa.concat_tables([wanted.schema.empty_table(), *parts]), wanted)
            assert fault is None, f"seed {self.seed}, {self.cells} cells, {name}: {self.queries[name]}\n{fault}"


def task_raises(spark: Any, story: Story) -> None:
    write(story.case, story.folder)
    drained(story.started(spark, story.faulty("raise")), finish=True)
    assert story.mark.exists()


def worker_killed(spark: Any, story: Story) -> None:
    write(story.case, story.folder)
    drained(story.started(spark, story.faulty("kill")), finish=True)
    assert story.mark.exists()


def sink_fails(spark: Any, story: Story) -> None:
    write(story.case, story.folder)
    flaky = Flaky(story.sink("q"), story.rng.randrange(len(story.case.steps)))
    _fails(story.started(spark, flaky=flaky))
    drained(story.started(spark), finish=True)


def stopped(spark: Any, story: Story) -> None:
    """Stopped at any moment, again and again."""
    write(story.case, story.folder)
    for _ in range(3):
        run = story.started(spark)
        time.sleep(story.rng.uniform(0, 1.5))
        run.stop()
    drained(story.started(spark), finish=True)


def restarted(spark: Any, story: Story) -> None:
    """Stopped between micro-batches; the workers with their engines are gone meanwhile."""
    cut = story.rng.randint(1, max(1, len(story.case.steps) - 1))
    write(story.case, story.folder, range(0, cut))
    drained(story.started(spark))
    kill_workers()
    write(story.case, story.folder, range(cut, len(story.case.steps)))
    drained(story.started(spark), finish=True)


def jvm_killed(spark: Any, story: Story) -> None:
    """The driver is another process; when its Java process is killed, this one goes on."""
    write(story.case, story.folder)
    command = [sys.executable, str(Path(__file__).with_name("driver.py")), str(story.seed), str(story.folder)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    assert ended.returncode != 0
    assert story.mark.exists(), ended.stderr
    drained(story.started(spark), finish=True)


def commands_repeated(spark: Any, story: Story) -> None:
    """A query's plan, the schedule and the end of the streams: micro-batches with commands fail and are repeated."""
    last = len(story.case.steps) - 1
    write(story.case, story.folder, range(0, last))
    run = story.started(spark, story.faulty("raise"))
    try:
        run.processAllAvailable()
        run.migrate("q", story.case.plan)
        run.schedule(story.rng.choice(("bfs", "rr")))
        batch = int(run.metrics()["batch"])
    finally:
        run.stop()
    run = story.started(spark, flaky=Flaky(story.sink("q"), batch + 1))
    write(story.case, story.folder, range(last, last + 1))
    _fails(run)
    run = story.started(spark, flaky=Flaky(story.sink("q"), batch + 2))
    run.processAllAvailable()
    run.finish()
    _fails(run)
    drained(story.started(spark))


def _fails(run: Run) -> None:
    """The sink of the run fails, and says so."""
    try:
        with pytest.raises(ps.PenstockError, match="the disk is full"):
            run.processAllAvailable()
    finally:
        run.stop()


KINDS: tuple[Callable[[Any, Story], None], ...] = (
    task_raises, worker_killed, sink_fails, stopped, restarted, jvm_killed, commands_repeated,
)  # fmt: skip


def kind_of(seed: int) -> str:
    return KINDS[seed % len(KINDS)].__name__


def play(spark: Any, seed: int, folder: Path) -> None:
    story = Story(seed, folder)
    KINDS[seed % len(KINDS)](spark, story)
    story.check()
