"""Faults that happen once: at a stage of a cell's version, in a sink or in a process. Pickled by value."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pyarrow as pa
from pyspark import cloudpickle

from penstock.spark.pipeline import Pipeline
from penstock.spark.sinks import Sink
from penstock.spark.worker.processor import CellProcessor

cloudpickle.register_pickle_by_value(sys.modules[__name__])

STAGES = ("ready", "mutated", "stored", "published")
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


class FailingSink:
    """A sink that fails once, after it has written a micro-batch."""

    def __init__(self, sink: Sink, batch: int) -> None:
        self._sink = sink
        self._batch = batch
        self.failed = False

    def open(self, run: str, name: str, schema: pa.Schema) -> None:
        self._sink.open(run, name, schema)

    def write(self, batch: int, rows: pa.Table) -> None:
        self._sink.write(batch, rows)
        if batch == self._batch and not self.failed:
            self.failed = True
            raise ValueError("the disk is full")
