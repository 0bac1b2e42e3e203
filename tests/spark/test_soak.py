"""A long run under load with a fault every twenty seconds: results are exact and memory does not grow.

PENSTOCK_SOAK_SECONDS sets the duration, ten minutes by default.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from spark_support import read_stream, write_file

import penstock as ps
from penstock.lab.meters import Meter, kill_workers
from penstock.spark import sinks
from penstock.spark.pipeline import Pipeline
from penstock.spark.run import Run
from penstock.spark.worker.processor import CellProcessor
from penstock.testing import difference

SECONDS = float(os.environ.get("PENSTOCK_SOAK_SECONDS", "600"))
BETWEEN_FAULTS = 20.0
PAUSE = 0.5
ROWS = KEYS = 400
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
STREAMS = ("a", "b", "c")
QUERIES = {
    "joined": "SELECT a.v AS x, b.v AS y, c.v AS z FROM a [RANGE 1000], b [RANGE 1000], c [RANGE 1000] "
    "WHERE a.k = b.k AND b.k = c.k",
    "newest": "SELECT a.v AS x, b.v AS y FROM a [NOW], b [PARTITION BY k ROWS 2] WHERE a.k = b.k",
    "counted": "SELECT k, COUNT(*) AS n FROM c [RANGE 2000 SLIDE 2000] GROUP BY k",
}
MIB = 2**20

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def make_batch(stream: str, number: int) -> pa.Table:
    """The rows of a stream in a second, a function of its number; no two rows have the same time."""
    rng = np.random.default_rng((STREAMS.index(stream), number))
    times = number * 1000 + np.sort(rng.choice(1000, ROWS, replace=False))
    return pa.table({"ts": times, "k": rng.integers(0, KEYS, ROWS), "v": number * ROWS + np.arange(ROWS)}, SCHEMA)


class KillableProcessor(CellProcessor):
    """A processor that fails when a file orders it to."""

    place = ""

    def on_stage(self, stage: str, cell: int, version: int) -> None:
        del cell, version
        if stage != "stored":
            return
        try:
            os.unlink(self.place)
        except FileNotFoundError:
            return
        raise RuntimeError("injected")


class SoakRun:
    """The pipeline, its feeder, and its faults."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._rng = random.Random(1)
        self._sink_fails = threading.Event()
        self.pushed = 0
        self.faults: list[str] = []
        self.resident: list[tuple[float, int]] = []

    def start(self) -> Run:
        place = str(self._folder / "order")
        victim = type("Ordered", (KillableProcessor,), {"place": place})
        pipe = type("VictimPipeline", (Pipeline,), {"processor": victim})(self._spark)
        for name in STREAMS:
            frame = self._spark.readStream.schema("ts bigint, k bigint, v bigint").parquet(str(self._folder / name))
            pipe.stream(name, frame, "ts")
        for name, text in QUERIES.items():
            pipe.query(name, text, sink=sinks.parquet(str(self._folder / "out" / name)))
        pipe.query("watched", "SELECT v FROM a [NOW] WHERE k = 0", sink=sinks.foreach(self._watch))
        return pipe.start(self._folder / "ck", cells=2)

    def _watch(self, rows: pa.Table, batch: int) -> None:
        del rows, batch
        if self._sink_fails.is_set():
            self._sink_fails.clear()
            raise ValueError("the disk is full")

    def write(self) -> None:
        for name in STREAMS:
            write_file(self._folder / name / f"{self.pushed:06}.parquet", make_batch(name, self.pushed), self.pushed)
        self.pushed += 1

    @contextmanager
    def run_feeder(self) -> Iterator[None]:
        """Write files of each stream at a steady rate and record the memory."""
        over = threading.Event()

        def feed() -> None:
            while not over.wait(PAUSE):
                self.write()
                self.resident.append((time.monotonic(), Meter().read_usage().resident_bytes))

        thread = threading.Thread(target=feed, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def inject_fault(self, run: Run) -> Run:
        """Cause a fault; returns the run that continues after it."""
        kind = self._rng.choice(("task", "workers", "sink", "stop"))
        self.faults.append(kind)
        if kind == "task":
            (self._folder / "order").touch()
        elif kind == "workers":
            kill_workers()
        elif kind == "stop":
            run.stop()
            return self.start()
        else:
            self._sink_fails.set()
            with pytest.raises(ps.PenstockError):
                run.awaitTermination(600)
            return self.start()
        return run if run.isActive else self.start()  # a loaded machine may fail a start: one more fault

    def finish(self, run: Run) -> None:
        """Process the remaining rows and end the streams."""
        for _ in range(5):
            try:
                run.processAllAvailable()
                run.finish()
                run.processAllAvailable()
            except ps.PenstockError:
                self.faults.append("at the end")
                run = self.start()
            else:
                break
        run.stop()

    def answers(self) -> dict[str, pa.Table]:
        return {name: pq.read_table(self._folder / "out" / name) for name in QUERIES}


def run_embedded(pieces: int) -> dict[str, pa.Table]:
    engine = ps.Engine()
    for name in STREAMS:
        engine.stream(name, SCHEMA, time="ts")
    for name, text in QUERIES.items():
        engine.query(name, text)
    found: dict[str, list[pa.Table]] = {name: [] for name in QUERIES}
    for number in range(pieces):
        for name, table in engine.push({stream: make_batch(stream, number) for stream in STREAMS}).items():
            found[name].append(table)
    for name, table in engine.flush().items():
        found[name].append(table)
    return {name: pa.concat_tables(tables) for name, tables in found.items()}


@pytest.mark.soak
def test_soak_exact_with_flat_memory(spark: Any, tmp_path: Path) -> None:
    soak = SoakRun(spark, tmp_path)
    for name in STREAMS:
        read_stream(spark, SCHEMA, tmp_path / name)  # creates the folder
    soak.write()
    run = soak.start()
    end = time.monotonic() + SECONDS
    try:
        with soak.run_feeder():
            while time.monotonic() < end:
                time.sleep(BETWEEN_FAULTS)
                run = soak.inject_fault(run)
        soak.finish(run)
    finally:
        run.stop()
    resident = [held for _, held in soak.resident]
    print(f"{soak.pushed} pieces, faults {soak.faults}, resident MiB "
          f"{[held // MIB for held in resident[:: max(1, len(resident) // 20)]]}")  # fmt: skip
    found = soak.answers()
    for name, wanted in run_embedded(soak.pushed).items():
        assert difference(found[name].cast(wanted.schema), wanted) is None, name
    assert set(soak.faults) >= {"task", "sink", "stop", "workers"} or SECONDS < 200
    third = len(resident) // 3
    early, late = np.median(resident[third : 2 * third]), np.median(resident[2 * third :])
    assert late < 1.15 * early + 64 * MIB, f"memory grew from {early / MIB:.0f} to {late / MIB:.0f} MiB"
