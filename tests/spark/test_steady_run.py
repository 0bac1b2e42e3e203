"""A micro-batch a second with an idle stream: what a micro-batch lists, stores and keeps in memory does not grow.

Counters are compared, not times. PENSTOCK_STEADY_SECONDS sets the duration, ten minutes by default.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from inspect_spark import measure_heap

import penstock as ps
from penstock.lab.meters import Meter
from penstock.spark import sinks
from penstock.spark.run import Run

SECONDS = float(os.environ.get("PENSTOCK_STEADY_SECONDS", "600"))
KEPT = "spark.sql.streaming.minBatchesToRetain"
"""Spark keeps the files of the last 100 micro-batches; with ten a short run is steady soon."""
SPARKS_OWN, LONG = ("offsets", "commits", "state"), 200
"""Files that Spark removes once a minute: they are compared if there are at least this many micro-batches."""
MIB = 2**20


@contextmanager
def set_conf(spark: Any, key: str, value: str) -> Iterator[None]:
    before = spark.conf.get(key)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        spark.conf.set(key, before)


def take_sample(spark: Any, run: Run, checkpoint: Path) -> dict[str, int]:
    """The files of the checkpoint by folder, the rows and segments of the cells, and the heap after a collection."""
    folders = ("control", "offsets", "commits", "state", "sources", "late", "dead")
    cells = run.metrics()["cells"].values()
    return {
        **{name: sum(len(files) for _, _, files in os.walk(checkpoint / name)) for name in folders},
        "base rows": sum(cell["base_rows"] for cell in cells),
        "segments": sum(cell["segments"] for cell in cells),
        "heap MiB": measure_heap(spark) // MIB,
    }


@pytest.mark.soak
def test_micro_batches_do_not_grow(spark: Any, tmp_path: Path) -> None:
    with set_conf(spark, KEPT, "10"):
        pipe = ps.Pipeline(spark)
        (tmp_path / "idle").mkdir()
        idle = spark.readStream.schema("ts timestamp, value bigint").parquet(str(tmp_path / "idle"))
        rate = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
        pipe.stream("busy", rate.selectExpr("timestamp AS ts", "value"), "ts")
        pipe.stream("idle", idle, "ts", idle_after="2 seconds")
        counted = sinks.memory()
        pipe.query("pairs", "SELECT b.value FROM busy [RANGE 5 SECONDS] AS b, idle [RANGE 5 SECONDS] AS i "
                   "WHERE b.value = i.value", sink=counted)  # fmt: skip
        pipe.query("ends", "DSTREAM (SELECT value FROM busy [RANGE 5 SECONDS])", sink=sinks.foreach(lambda *_: None))
        samples: list[dict[str, int]] = []
        millis: list[float] = []
        used: list[tuple[int, float]] = []
        meter = Meter()
        with pipe.start(tmp_path / "ck", {"processingTime": "1 second"}, cells=2) as run:
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                time.sleep(min(5.0, SECONDS / 12))
                if run.metrics()["batch"] > 0:
                    samples.append(take_sample(spark, run, tmp_path / "ck"))
                    millis.append(run.lastProgress["durationMs"]["triggerExecution"])
                    used.append((run.metrics()["batch"], meter.read_usage().seconds))
            batches, heartbeat = run.metrics()["batch"], run.status["heartbeat"]
    third = len(samples) // 3
    first = {key: median(sample[key] for sample in samples[third : 2 * third]) for key in samples[0]}
    last = {key: median(sample[key] for sample in samples[2 * third :]) for key in samples[0]}
    sixth = len(millis) // 6  # the first and the last ten minutes of an hour
    times = median(millis[:sixth]), median(millis[third : 2 * third]), median(millis[-sixth:])
    print(f"{batches} micro-batches, heartbeat {heartbeat}\nmiddle third {first}\nlast third   {last}")
    print("milliseconds of a micro-batch: first sixth {:.0f}, middle third {:.0f}, last sixth {:.0f}".format(*times))
    costs = [
        1000 * (seconds - before) / max(batch - batch_before, 1)
        for (batch_before, before), (batch, seconds) in ((used[0], used[sixth]), (used[-1 - sixth], used[-1]))
    ]
    print("processor milliseconds of a micro-batch: first sixth {:.0f}, last sixth {:.0f}".format(*costs))
    assert batches > 12
    assert heartbeat is not None
    assert heartbeat["errors"] == 0
    for key, middle in first.items():
        if key in SPARKS_OWN and batches < LONG:
            continue
        slack = 64 if key == "heap MiB" else 400 if key == "base rows" else 12
        assert last[key] <= 1.2 * middle + slack, f"{key} grew from {middle} to {last[key]}"
