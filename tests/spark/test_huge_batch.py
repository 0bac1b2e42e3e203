"""One micro-batch with very many results, and a driver of 1 GB: tasks write them, and the counts are right.

PENSTOCK_HUGE_RESULTS sets their number, by default 100 million. The files have about ten bytes per result.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from spark_support import drain, read_stream, write_file

import penstock as ps
from penstock.spark import sinks

RESULTS = int(os.environ.get("PENSTOCK_HUGE_RESULTS", "100_000_000"))
KEYS = 64
CELLS = 8
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
TEXT = "SELECT a.v AS l, b.v AS r FROM a [RANGE 1000] AS a, b [RANGE 1000] AS b WHERE a.k = b.k"


def make_rows(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(0, 1000, rows))
    return pa.table({"ts": times, "k": rng.integers(0, KEYS, rows), "v": np.arange(rows)}, SCHEMA)


@pytest.mark.soak
def test_very_many_results_in_one_micro_batch(spark: Any, tmp_path: Path) -> None:
    size = int((RESULTS * KEYS) ** 0.5)
    tables = {name: make_rows(size, number) for number, name in enumerate("ab")}
    pipe = ps.Pipeline(spark)
    for name, table in tables.items():
        write_file(tmp_path / name / "0.parquet", table, 0)
        pipe.stream(name, read_stream(spark, SCHEMA, tmp_path / name), "ts")
    pipe.query("q", TEXT, sink=sinks.parquet(str(tmp_path / "out")))
    run = drain(pipe.start(tmp_path / "ck", cells=CELLS), finish=True)
    left, right = (Counter(table.column("k").to_pylist()) for table in tables.values())
    wanted = sum(left[key] * right[key] for key in left)
    sums = [
        sum(value * others[key] for key, value in zip(table.column("k").to_pylist(), range(size), strict=True))
        for table, others in ((tables["a"], right), (tables["b"], left))
    ]
    assert run.metrics()["queries"]["q"]["written"] == wanted
    found = [0, 0, 0]
    for batch in ds.dataset(tmp_path / "out", format="parquet").to_batches():
        here = (batch.num_rows, *(pc.sum(batch.column(name)).as_py() or 0 for name in "lr"))
        found = [total + value for total, value in zip(found, here, strict=True)]
    assert found == [wanted, *sums]
