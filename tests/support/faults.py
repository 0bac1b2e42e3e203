"""Faults that happen once: at a stage of a cell's version, in a sink or in a process. Pickled by value."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from penstock.spark.pipeline import Pipeline
from penstock.spark.sinks import Attempt, TaskSink
from penstock.spark.worker.processor import CellProcessor

cloudpickle.register_pickle_by_value(sys.modules[__name__])

STAGES = ("ready", "mutated", "stored", "written", "published")
"""Where a cell may fail: see `CellState.step`."""


def build_faulty_pipeline(stage: str, version: int, mark: Path, how: str = "raise") -> type[Pipeline]:
    """A Pipeline in which the first cell that reaches this stage of this version fails.

    `how`: "raise" an error, "kill" the Python worker, or "jvm": kill the Java process of the worker.
    """
    place, marked = (stage, version), str(mark)

    class FaultyProcessor(CellProcessor):
        def on_stage(self, stage: str, cell: int, version: int) -> None:
            if (stage, version) != place or not _is_first(marked, f"cell {cell}"):
                return
            if how == "jvm":
                os.kill(_read_parent_pid(os.getppid()), signal.SIGKILL)
            if how != "raise":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError(f"injected after {stage}")

    class FaultyPipeline(Pipeline):
        processor = FaultyProcessor

    return FaultyPipeline


def _is_first(mark: str, text: str) -> bool:
    """Whether this is the first call with this mark; cells run in parallel."""
    try:
        with open(mark, "x") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _read_parent_pid(pid: int) -> int:
    """The parent of a process: Spark's workers are children of a daemon, which is the child of the Java process."""
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


class FailingTaskSink(TaskSink):
    """A sink that fails once, in the first commit from a micro-batch on, after part of the messages or after all."""

    def __init__(self, sink: TaskSink, batch: int, part: float = 1.0) -> None:
        self._sink = sink
        self._batch = batch
        self._part = part
        self._failed = False

    def open(self, run: str, name: str, schema: pa.Schema) -> None:
        self._sink.open(run, name, schema)

    def write(self, attempt: Attempt, rows: Iterator[pa.RecordBatch]) -> Any:
        return self._sink.write(attempt, rows)

    def commit(self, batch: int, messages: Sequence[Any]) -> None:
        fails = batch >= self._batch and not self._failed
        if not fails or self._part:
            self._sink.commit(batch, messages[: math.ceil(self._part * len(messages))] if fails else messages)
        if fails:
            self._failed = True
            self.fail()

    def fail(self) -> None:
        raise ValueError("the disk is full")


class EndingTaskSink(FailingTaskSink):
    """A sink whose commit ends the driver: its Python and its Java process."""

    def __init__(self, sink: TaskSink, batch: int, part: float, java: int, mark: Path) -> None:
        super().__init__(sink, batch, part)
        self._java = java
        self._mark = str(mark)

    def fail(self) -> None:
        Path(self._mark).write_text("commit")
        os.kill(self._java, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class KillingTaskSink(FailingTaskSink):
    """A sink whose first task from a micro-batch on is killed while it writes."""

    def __init__(self, sink: TaskSink, batch: int, mark: Path) -> None:
        super().__init__(sink, sys.maxsize)
        self._killed_batch = batch
        self._mark = str(mark)

    def write(self, attempt: Attempt, rows: Iterator[pa.RecordBatch]) -> Any:
        if attempt.batch >= self._killed_batch and _is_first(self._mark, f"cell {attempt.cell}"):
            rows = _kill_after_first(rows)
        return self._sink.write(attempt, rows)


def _kill_after_first(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield next(rows)
    os.kill(os.getpid(), signal.SIGKILL)
