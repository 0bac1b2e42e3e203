"""Joins by Pathway: PYTHON pathway_join.py '{"folder": …, "streams": […], "queries": [{"micros": …, "below": …}]}'.

The interpreter has Pathway installed; this program does not import Penstock. It prints seconds and results as JSON.
The processing time of a row is the number of its file, so each file is a micro-batch.
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
    """A chain of interval joins on the time of the first stream, and filters for the other pairs of streams."""
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
    """Count the rows of all tables in one run. A count is updated after every micro-batch."""
    counts = [0] * len(tables)

    def count(number: int) -> Any:
        def update(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
            del key, time
            if is_addition:
                counts[number] = row["results"]

        return update

    for number, each in enumerate(tables):
        pw.io.subscribe(each.reduce(results=pw.reducers.count()), count(number))
    begun = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds = time.perf_counter() - begun
    G.clear()  # the next run has only its own tables
    return seconds, counts


def main() -> None:
    request = json.loads(sys.argv[1])

    def streams() -> list[Any]:
        return [read_table(Path(request["folder"]) / name) for name in request["streams"]]

    reading, _ = count_results(streams())
    tables = streams()
    seconds, results = count_results([build_join(tables, query) for query in request["queries"]])
    print(json.dumps({"seconds": seconds, "reading": reading, "results": results}))


if __name__ == "__main__":
    main()
