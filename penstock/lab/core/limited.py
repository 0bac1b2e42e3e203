"""A run under a memory limit, in a new process: `python -m penstock.lab.core.limited ROWS TEXT LIMIT SPILL`.

The windows hold several times the limit. Results are hashed push by push, so that runs can be compared without holding
them. LIMIT 0 is the run in memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine import Engine
from penstock.lab.core.memory import KIBI, read_peak_kib, reset_peak
from penstock.lab.report import ReportRow

NAMES = ("a", "b")
QUERY = "SELECT a.k, a.note AS x, b.note AS y FROM a [RANGE {window}], b [RANGE {window}] WHERE a.k = b.k"
PUSHES = 60
KEYS = 10
"""Keys for each row of a window: few rows have a partner, so that little of the memory is that of results."""
_MIB = 1 << 20


def measure_limited(rows: int, text: int, share: int) -> list[ReportRow]:
    """The run in memory, and the same run with a limit of 1 / `share` of what its windows hold."""
    with TemporaryDirectory() as folder:
        free = _run_in_fresh_process(rows, text, 0, folder)
        limit = int(free["windows"]) // share
        limited = _run_in_fresh_process(rows, text, limit, folder)
        left = sum(path.is_file() for path in Path(folder).rglob("*"))
    return [
        {
            "run": name,
            "limit_mib": limit / _MIB if found is limited else 0.0,
            "windows_mib": found["windows"] / _MIB,
            "added_peak_mib": found["added_mib"],
            "seconds": found["seconds"],
            "results": found["results"],
            "checksum": found["checksum"],
            "files_left": left,
        }
        for name, found in (("in memory", free), (f"windows {share}x the limit", limited))
    ]


def _run_in_fresh_process(rows: int, text: int, limit: int, folder: str) -> dict[str, Any]:
    arguments = [str(value) for value in (rows, text, limit)]
    command = [sys.executable, "-m", "penstock.lab.core.limited", *arguments, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _draw(order: int, push: int, rows: int, text: int, keys: int) -> pa.Table:
    rng = np.random.default_rng((order, push))
    times = np.arange(push * rows, (push + 1) * rows)
    notes = pa.array([f"{number:0{text}d}" for number in rng.integers(0, 1 << 30, rows)])
    return pa.table({"ts": times, "k": rng.integers(0, keys, rows), "note": notes})


def _build_engine(window: int, limit: int, folder: str) -> Engine:
    engine = Engine(warn=False, memory=limit, spill=folder) if limit else Engine(warn=False)
    for name in NAMES:
        engine.stream(name, {"ts": "bigint", "k": "bigint", "note": "string"}, time="ts")
    engine.query(
        "q", f"SELECT a.k, a.note AS x, b.note AS y FROM a [RANGE {window}], b [RANGE {window}] WHERE a.k = b.k"
    )
    return engine


def _measure(rows: int, text: int, limit: int, folder: str) -> dict[str, Any]:
    """Half of the pushes fill the windows, the other half replace their rows."""
    per_push, checksum, results = 2 * rows // PUSHES, 0, 0
    warm = _build_engine(20, 0, folder)
    for push in range(4):
        found = warm.push({name: _draw(order, push, 10, text, 5) for order, name in enumerate(NAMES)})["q"]
    assert found.num_rows
    reset_peak()
    before, engine, spent, largest = read_peak_kib(), _build_engine(rows, limit, folder), 0.0, 0
    for push in range(PUSHES):
        data = {name: _draw(order, push, per_push, text, KEYS * rows) for order, name in enumerate(NAMES)}
        begun = process_time()
        found = engine.push(data)["q"]
        spent += process_time() - begun
        results += found.num_rows
        checksum = (checksum + _hash_rows(found)) % (1 << 61)
        if not limit:
            memory = engine.metrics()["memory"]
            assert isinstance(memory, dict)
            largest = max(largest, memory["windows"] + memory["indexes"])
    peak = read_peak_kib()
    engine.close()
    return {
        "windows": largest, "added_mib": (peak - before) / KIBI, "seconds": spent, "results": results,
        "checksum": checksum,
    }  # fmt: skip


def _hash_rows(rows: pa.Table) -> int:
    """A sum over rows that does not depend on their order."""
    numbers = [pc.cast(rows.column(name), pa.int64()).to_numpy() for name in ("x", "y")]
    mixed = rows.column("k").to_numpy() * 31 + numbers[0] * 1_000_003 + numbers[1] * 998_244_353
    return int((mixed % (1 << 40)).sum())


if __name__ == "__main__":
    given = [int(value) for value in sys.argv[1:4]]
    print(json.dumps(_measure(given[0], given[1], given[2], sys.argv[4])))
