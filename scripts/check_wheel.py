"""Build the wheel, install it in new environments, and measure size, imports and the time to the first result.

    python scripts/check_wheel.py [--python 3.12] [--no-spark]

Seconds are wall time and, in parentheses, processor time, the best of some runs in new processes. "Fresh" compiles the
kernels, "cached" loads them. With Spark, `penstock doctor` starts a session and imports Penstock in a worker.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from interpreters import PYTHONS, ROOT, create_environment, find_interpreter, print_table

REPEATS = 3
FIRST_RESULT = """
import penstock as ps
eng = ps.Engine()
eng.stream("t", {"ts": "bigint", "room": "int", "celsius": "double"}, time="ts")
eng.stream("r", {"ts": "bigint", "room": "int", "tag": "string"}, time="ts")
eng.query("warm", "SELECT r.tag, t.celsius FROM r [RANGE 60], t [RANGE 10] WHERE r.room = t.room AND t.celsius > 5")
import pyarrow as pa
eng.push({"t": pa.table({"ts": [0, 20], "room": [1, 1], "celsius": [3.5, 6.5]}),
          "r": pa.table({"ts": [5, 15], "room": [1, 1], "tag": ["milk", "fish"]})})
assert eng.flush()["warm"].num_rows == 2
"""


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout."""
    shutil.rmtree(folder, ignore_errors=True)
    command = ["-m", "pip", "wheel", "-qq", "--disable-pip-version-check", "--no-deps", "--wheel-dir", str(folder), "."]
    interpreter = next(filter(None, map(find_interpreter, PYTHONS)))
    subprocess.run([interpreter, *command], cwd=ROOT, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def measure(command: list[str], cache: Path | None = None, repeats: int = REPEATS) -> str:
    """The best wall and processor time of a command; without `cache` every run compiles its kernels."""
    best = (float("inf"), float("inf"))
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache or folder), "PYTHONPATH": ""}
            before, begin = os.times(), time.monotonic()
            subprocess.run(command, env=environment, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            wall, after = time.monotonic() - begin, os.times()
            processor = sum(after[2:4]) - sum(before[2:4])
            best = min(best, (wall, processor))
    return f"{best[0]:.2f} ({best[1]:.2f})"


def check_python(version: str, wheel: Path, folder: Path, *, spark: bool) -> tuple[str, ...]:
    """Install the wheel in a new environment of one Python and measure it."""
    interpreter = find_interpreter(version)
    if interpreter is None:
        return (version, *["no interpreter"] * 6)
    place = folder / f"{version}{'-spark' if spark else ''}"
    shutil.rmtree(place, ignore_errors=True)
    python = str(create_environment(place, interpreter, f"{wheel}[spark,java]" if spark else str(wheel)))
    cache = place / "kernels"
    return (
        version,
        "penstock[spark,java]" if spark else "penstock",
        measure([python, "-c", "import penstock"]),
        measure([python, "-m", "penstock", "--version"]),
        measure([python, "-c", FIRST_RESULT], repeats=1),
        measure([python, "-c", FIRST_RESULT], cache, repeats=1 + REPEATS),
        measure([python, "-m", "penstock", "doctor"], cache, repeats=1) if spark else "",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", choices=PYTHONS, help="only this Python")
    parser.add_argument("--no-spark", action="store_true", help="only the embedded engine")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "wheel", help="folder of the environments")
    given = parser.parse_args()
    wheel = build_wheel(given.out / "dist")
    rows = [("python", "installed", "import", "penstock --version", "first result, fresh", "cached", "doctor")]
    for version in given.python or PYTHONS:
        for spark in (False,) if given.no_spark else (False, True):
            print(f"checking Python {version}{' with Spark' if spark else ''} ...", flush=True)
            rows.append(check_python(version, wheel, given.out, spark=spark))
    print(f"{wheel.name}: {wheel.stat().st_size / 1024:.0f} KiB; seconds of wall time (processor time)")
    print_table(rows)
    if any("no interpreter" in row for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
