"""A join of a load by Pathway: PYTHON pathway_join.py FOLDER MICROSECONDS STREAM …; prints seconds and results.

It is run by an interpreter in which Pathway is installed, and so knows nothing of Penstock. Rows have the number of
their file as their time of processing, which makes a file a micro-batch. Only the run is timed, not the reading.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pathway as pw


def table(folder: Path) -> Any:
    parts = []
    for number, path in enumerate(sorted(folder.glob("*.parquet"))):
        part = pd.read_parquet(path)
        times = part["ts"].astype("datetime64[us]").astype("int64")
        parts.append(pd.DataFrame({"t": times, "k": part["k"], "__time__": 2 * number + 2, "__diff__": 1}))
    return pw.debug.table_from_pandas(pd.concat(parts, ignore_index=True))


def joined(tables: list[Any], window: int) -> Any:
    """Pairwise nearer than the window: a chain of interval joins on the first stream's time, the rest as a filter."""
    near = pw.temporal.interval(-(window - 1), window - 1)
    first, *others = tables
    found = first.select(k=pw.this.k, t0=pw.this.t)
    for number, other in enumerate(others, 1):
        pairs = found.interval_join(other, found.t0, other.t, near, found.k == other.k)
        times = {f"t{i}": found[f"t{i}"] for i in range(number)}
        found = pairs.select(k=found.k, **times, **{f"t{number}": other.t})
        for i in range(1, number):
            gap = found[f"t{i}"] - found[f"t{number}"]
            found = found.filter((gap < window) & (gap > -window))
    return found.reduce(results=pw.reducers.count())


def main() -> None:
    folder, window, *names = sys.argv[1:]
    counts: list[int] = []

    def told(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        del key, time
        if is_addition:
            counts.append(row["results"])

    pw.io.subscribe(joined([table(Path(folder) / name) for name in names], int(window)), told)
    begun = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    print(json.dumps({"seconds": time.perf_counter() - begun, "results": counts[-1] if counts else 0}))


if __name__ == "__main__":
    main()
