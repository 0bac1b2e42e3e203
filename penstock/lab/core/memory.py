"""Peak memory of a run in a new process: `python -m penstock.lab.core.memory ROWS KEYS SECONDS PARTS HISTORY`.

The history is generated push by push and results are dropped, so growth shows what the engine keeps.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

from penstock.lab.meters import read_status_kib
from penstock.lab.workloads import build_w3

KIBI = 1024
RESET_FILE = Path("/proc/self/clear_refs")


def read_peak_kib() -> int:
    """The peak resident size of this process.

    On Linux this is VmHWM, because getrusage of a child process includes the peak of its parent.
    """
    peak = read_status_kib("VmHWM")
    return peak if peak is not None else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def reset_peak() -> None:
    """Set the peak to the present size, where the system supports it: loading compiled loops must not hide growth."""
    if RESET_FILE.exists():
        RESET_FILE.write_text("5")


def measure_in_fresh_process(rows: int, keys: int, seconds: int, parts: int, history: int) -> dict[str, float]:
    """MiB before the first push (libraries and compiled loops are loaded) and at the peak of `history` histories."""
    arguments = [str(value) for value in (rows, keys, seconds, parts, history)]
    command = [sys.executable, "-m", "penstock.lab.core.memory", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def _measure(rows: int, keys: int, seconds: int, parts: int, history: int) -> dict[str, float]:
    warm = build_w3(rows=parts * 10, keys=4, seconds=parts)
    engine = warm.build_engine()
    for push in warm.generate_pushes(parts):
        engine.push(push)
    engine.flush()
    reset_peak()
    before = read_peak_kib()

    streams = build_w3(rows, keys, seconds)
    engine = streams.build_engine()
    results = 0
    for push in streams.generate_pushes(parts, history):
        results += engine.push(push)["q"].num_rows
    results += engine.flush()["q"].num_rows
    return {"before_mib": before / KIBI, "peak_mib": read_peak_kib() / KIBI, "results": results}


if __name__ == "__main__":
    print(json.dumps(_measure(*(int(value) for value in sys.argv[1:]))))
