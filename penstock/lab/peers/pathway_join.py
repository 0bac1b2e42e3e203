"""Joins of a load by Pathway: PYTHON pathway_join.py '{"folder": …, "streams": […], "queries": [{"micros", "below"}]}'.

It is run by an interpreter in which Pathway is installed, and so knows nothing of Penstock. Prints seconds and results.
Rows have the number of their file as their time of processing, which makes a file a micro-batch.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pathway as pw
from pathway.internals.parse_graph import G


def read_table(folder: Path) -> Any:
    parts = []
    for number, path in enumerate(sorted(folder.glob("*.parquet"))):
        part = pd.read_parquet(path)
        times = part["ts"].astype("datetime64[us]").astype("int64")
        parts.append(
            pd.DataFrame({"t": times, "k": part["k"], "v": part["v"], "__time__": 2 * number + 2, "__diff__": 1})
        )
    return pw.debug.table_from_pandas(pd.concat(parts, ignore_index=True))


def build_join(tables: list[Any], query: dict[str, Any]) -> Any:
    """Pairwise nearer than the window: a chain of interval joins on the first stream's time, the rest as a filter."""
    window = query["micros"]
    near = pw.temporal.interval(-(window - 1), window - 1)
    first, *others = tables
    if query["below"] is not None:
        first = first.filter(pw.this.v < query["below"])
    found = first.select(k=pw.this.k, t0=pw.this.t)
    for number, other in enumerate(others, 1):
        pairs = found.interval_join(other, found.t0, other.t, near, found.k == other.k)
        times = {f"t{i}": found[f"t{i}"] for i in range(number)}
        found = pairs.select(k=found.k, **times, **{f"t{number}": other.t})
        for i in range(1, number):
            gap = found[f"t{i}"] - found[f"t{number}"]
            found = found.filter((gap < window) & (gap > -window))
    return found


def count_results(tables: list[Any]) -> tuple[float, list[int]]:
    """One run for the rows of all tables; a count is told anew after every micro-batch."""
    counts = [0] * len(tables)

    def count(number: int) -> Any:
        def told(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
            del key, time
            if is_addition:
                counts[number] = row["results"]

        return told

    for number, each in enumerate(tables):
        pw.io.subscribe(each.reduce(results=pw.reducers.count()), count(number))
    begun = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds = time.perf_counter() - begun
    G.clear()  # what was run, so that the next run is of its own tables only
    return seconds, counts


def main() -> None:
    told = json.loads(sys.argv[1])

    def streams() -> list[Any]:
        return [read_table(Path(told["folder"]) / name) for name in told["streams"]]

    reading, _ = count_results(streams())
    there = streams()
    seconds, results = count_results([build_join(there, query) for query in told["queries"]])
    print(json.dumps({"seconds": seconds, "reading": reading, "results": results}))


if __name__ == "__main__":
    main()
