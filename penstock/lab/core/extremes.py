"""Joins whose cost once exploded: ranges over many rows, with a key of few values beside them, and one hot key.

Ranges are compared with DuckDB's batch join of the same tables. The hot key runs in a new process,
`python -m penstock.lab.core.extremes ROWS PUSHES`, so that its peak memory can be read.
"""

from __future__ import annotations

import json
import subprocess
import sys
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine import Engine
from penstock.errors import ResourceError
from penstock.lab.core.memory import KIBI, read_peak_kib, reset_peak
from penstock.lab.database import load_database
from penstock.lab.report import ReportRow
from penstock.lab.workloads import PushTables

CONDITIONS = {"a range": "B.i BETWEEN R.lo AND R.hi", "a range and two keys": "R.k = B.k AND B.i BETWEEN R.lo AND R.hi"}
_PARTS = 10
_NUMBERS = 1_000_000
_WIDTH = 200
_HOT = "SELECT A.k FROM A [RANGE 1000000], B [RANGE 1000000], C [RANGE 1000000] WHERE A.k = B.k AND B.k = C.k"


def measure_ranges(rows: int) -> list[ReportRow]:
    """Seconds and results of the engine, in pushes, and of DuckDB, for `rows` intervals and as many numbers."""
    pushes = list(_draw_pushes(rows))
    database = load_database({name: pa.concat_tables([push[name] for push in pushes]) for name in "RB"})
    found: list[ReportRow] = []
    for name, condition in CONDITIONS.items():
        _run_ranges(condition, pushes[:1])  # warms up
        begun, used = perf_counter(), process_time()
        results = _run_ranges(condition, pushes)
        own, own_used = perf_counter() - begun, process_time() - used
        begun = perf_counter()
        expected = database.sql(f"SELECT R.lo, B.i FROM R JOIN B ON {condition}").to_arrow_table().num_rows
        theirs = perf_counter() - begun
        found.append({
            "join on": name, "seconds": own, "cpu_s": own_used, "results": results, "duckdb_seconds": theirs,
            "duckdb_results": expected,
        })  # fmt: skip
    database.close()
    return found


def _draw_pushes(rows: int) -> list[PushTables]:
    rng, size = np.random.default_rng(1), rows // _PARTS
    pushes = []
    for part in range(_PARTS):
        times = np.arange(part * size, (part + 1) * size)
        lows, keys = rng.integers(0, _NUMBERS, size), rng.integers(0, 2, (2, size))
        pushes.append({
            "R": pa.table({"ts": times, "k": keys[0], "lo": lows, "hi": lows + _WIDTH}),
            "B": pa.table({"ts": times, "k": keys[1], "i": rng.integers(0, _NUMBERS, size)}),
        })  # fmt: skip
    return pushes


def _run_ranges(condition: str, pushes: list[PushTables]) -> int:
    engine = Engine(warn=False)
    for name, table in pushes[0].items():
        engine.stream(name, table.schema, time="ts")
    engine.query("q", f"SELECT R.lo, B.i FROM R [RANGE 1000000], B [RANGE 1000000] WHERE {condition}")
    found: int = sum(engine.push(push)["q"].num_rows for push in pushes)
    return found + int(engine.flush()["q"].num_rows)


def measure_hot_key(rows: int, pushes: int) -> ReportRow:
    """Three streams whose tuples all have one key: the results of pushes of `rows` tuples each, and the peak memory."""
    command = [sys.executable, "-m", "penstock.lab.core.extremes", str(rows), str(pushes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: ReportRow = json.loads(done.stdout)
    return {"tuples": 3 * rows * pushes, "expected": (rows * pushes) ** 3, **found}


def _run_hot_key(rows: int, pushes: int) -> dict[str, Any]:
    counted = [0]

    def count(results: pa.Table) -> None:
        counted[0] += results.num_rows

    warm = _make_hot_engine()
    warm.subscribe("q", lambda _: None)
    warm.push(_draw_hot(20, 0))
    reset_peak()
    before, engine, begun = read_peak_kib(), _make_hot_engine(), process_time()
    engine.subscribe("q", count)
    for push in range(pushes):
        engine.push(_draw_hot(rows, push))
    engine.flush()
    seconds, peak = process_time() - begun, read_peak_kib()
    try:
        _make_hot_engine(memory="16 MB").push(_draw_hot(rows, 0))
        refused = "nothing"
    except ResourceError as error:
        refused = error.condition
    return {"results": counted[0], "cpu_s": seconds, "added_mib": (peak - before) / KIBI, "with a limit": refused}


def _make_hot_engine(**options: Any) -> Engine:
    engine = Engine(warn=False, **options)
    for name in "ABC":
        engine.stream(name, {"ts": "bigint", "k": "bigint"}, time="ts")
    engine.query("q", _HOT)
    return engine


def _draw_hot(rows: int, push: int) -> PushTables:
    times = np.arange(push * rows, (push + 1) * rows)
    return {name: pa.table({"ts": times, "k": np.full(rows, 7)}) for name in "ABC"}


if __name__ == "__main__":
    print(json.dumps(_run_hot_key(*map(int, sys.argv[1:]))))
