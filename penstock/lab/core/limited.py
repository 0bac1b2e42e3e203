"""A run under a memory limit, in a new process: `python -m penstock.lab.core.limited ROWS LIMIT SPILL PUSHES`.

The windows hold several times the limit. The rows are written to files in the folder PUSHES before, because making them
takes as much memory as a small limit. Results are hashed push by push, so that runs can be compared with each other and
with DuckDB without holding them. LIMIT 0 is the run in memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine import Engine
from penstock.lab.core.memory import KIBI, read_peak_kib, reset_peak
from penstock.lab.database import load_database
from penstock.lab.report import ReportRow
from penstock.state import SHIPPED, Maintenance

NAMES = ("a", "b")
QUERY = "SELECT a.k, a.note AS x, b.note AS y FROM a [RANGE {window}], b [RANGE {window}] WHERE a.k = b.k"
PUSHES = 60
KEYS = 10
"""Keys for each row of a window: few rows have a partner, so that little of the memory is that of results."""
_MIB = 1 << 20


def measure_limited(rows: int, text: int, share: int) -> list[ReportRow]:
    """The run in memory, and the same run with a limit of 1 / `share` of what its windows hold; and the answer."""
    with TemporaryDirectory() as folder, TemporaryDirectory() as pushes:
        expected = _write_pushes(Path(pushes), rows, text)
        free = _run_in_fresh_process(rows, 0, folder, pushes)
        limit = int(free["windows"]) // share
        limited = _run_in_fresh_process(rows, limit, folder, pushes)
        left = sum(path.is_file() for path in Path(folder).rglob("*"))
    reference: ReportRow = {"run": "DuckDB", **expected}
    return [reference] + [
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


def _run_in_fresh_process(rows: int, limit: int, folder: str, pushes: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "penstock.lab.core.limited", str(rows), str(limit), folder, pushes]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _write_pushes(folder: Path, rows: int, text: int) -> dict[str, int]:
    """Write the rows of every push; returns how many results DuckDB finds, and their checksum."""
    parts: dict[str, list[pa.Table]] = {name: [] for name in NAMES}
    for push in range(PUSHES):
        for order, name in enumerate(NAMES):
            table = _draw(order, push, 2 * rows // PUSHES, text, KEYS * rows)
            with (
                pa.OSFile(str(_name_file(folder, name, push)), "wb") as sink,
                pa.ipc.new_file(sink, table.schema) as out,
            ):
                out.write_table(table)
            parts[name].append(table.set_column(2, "note", pc.cast(table.column("note"), pa.int64())))
    database = load_database({name: pa.concat_tables(tables) for name, tables in parts.items()})
    within = f"a.ts - b.ts BETWEEN {1 - rows} AND {rows - 1}"
    found = database.sql(
        f"SELECT a.k, a.note AS x, b.note AS y FROM a JOIN b ON a.k = b.k WHERE {within}"
    ).to_arrow_table()
    return {"results": found.num_rows, "checksum": _hash_rows(found) % (1 << 61)}


def _name_file(folder: Path, name: str, push: int) -> Path:
    return folder / f"{name}{push}.arrow"


def _read_push(folder: Path, push: int) -> dict[str, pa.Table]:
    return {name: pa.ipc.open_file(pa.OSFile(str(_name_file(folder, name, push)))).read_all() for name in NAMES}


def _draw(order: int, push: int, rows: int, text: int, keys: int) -> pa.Table:
    rng = np.random.default_rng((order, push))
    times = np.arange(push * rows, (push + 1) * rows)
    notes = pa.array([f"{number:0{text}d}" for number in rng.integers(0, 1 << 30, rows)])
    return pa.table({"ts": times, "k": rng.integers(0, keys, rows), "note": notes})


def _build_engine(window: int, limit: int, folder: str, maintenance: Maintenance = SHIPPED) -> Engine:
    options: dict[str, Any] = {"memory": limit, "spill": folder} if limit else {}
    engine = Engine(warn=False, maintenance=maintenance, **options)
    for name in NAMES:
        engine.stream(name, {"ts": "bigint", "k": "bigint", "note": "string"}, time="ts")
    engine.query("q", QUERY.format(window=window))
    return engine


def _measure(rows: int, limit: int, folder: str, pushes: Path) -> dict[str, Any]:
    """Half of the pushes fill the windows, the other half replace their rows."""
    checksum = results = 0
    for warm in (_build_engine(20, 0, folder), _build_engine(20, 1 << 30, folder, replace(SHIPPED, relief_share=0.0))):
        for push in range(4):  # the second engine writes and reads files at every push
            found = warm.push({name: _draw(order, push, 10, 9, 5) for order, name in enumerate(NAMES)})["q"]
        assert found.num_rows
        warm.close()
    reset_peak()
    before, engine, spent, largest = read_peak_kib(), _build_engine(rows, limit, folder), 0.0, 0
    for push in range(PUSHES):
        data = _read_push(pushes, push)
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
    print(json.dumps(_measure(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))))
