"""Joins by PyFlink: PYTHON flink_join.py '{"folder": …, "streams": […], "queries": [{"micros": …, "below": …}]}'.

The interpreter has PyFlink installed; this program does not import Penstock. It prints seconds and results as JSON.
The queries are Flink's interval joins on event time, in SQL, all in one job with state in memory and no checkpoints.
The job runs twice and the second run counts, because Java has compiled its loops by then.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv
from pyarrow import parquet as pq
from pyflink.table import EnvironmentSettings, TableEnvironment

PARALLELISM = 2
SETTINGS = {
    "parallelism.default": str(PARALLELISM),
    # each task adds up its counts before it sends them, so counting costs little
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "5 s",
    "table.exec.mini-batch.size": "100000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
}


def create_table(tables: Any, folder: Path, name: str) -> None:
    """A stream as CSV, because the package of PyFlink has no Parquet: a file for each reader, rows sorted by time."""
    rows = pq.read_table(folder / name).sort_by("ts")
    rows = rows.set_column(0, "t", rows.column("ts").cast(pa.int64()))
    place = folder / f"{name}-csv"
    place.mkdir()
    for reader in range(PARALLELISM):
        part = rows.take(pa.array(range(reader, rows.num_rows, PARALLELISM)))
        csv.write_csv(part, place / f"{reader}.csv", csv.WriteOptions(include_header=False))
    tables.execute_sql(
        f"CREATE TABLE {name} (t BIGINT, k BIGINT, v BIGINT, ts AS TO_TIMESTAMP_LTZ(t / 1000, 3), "
        "WATERMARK FOR ts AS ts - INTERVAL '0.001' SECOND) "
        f"WITH ('connector' = 'filesystem', 'path' = '{place}', 'format' = 'csv')"
    )


def build_join_sql(names: list[str], query: dict[str, Any]) -> str:
    """Flink's event time has milliseconds: the intervals are rounded up, and a filter compares microseconds."""
    minutes, millis = divmod(query["micros"] // 1000 + 1, 60_000)
    window = f"INTERVAL '{minutes:02}:{millis // 1000:02}.{millis % 1000:03}' MINUTE TO SECOND(3)"
    first, *others = names
    sql = f"SELECT {', '.join(f'{name}.v AS v{name}' for name in names)} FROM {first}"
    for number, name in enumerate(others, 1):
        near = " AND ".join(f"ABS({name}.t - {other}.t) < {query['micros']}" for other in names[:number])
        between = f"{name}.ts BETWEEN {first}.ts - {window} AND {first}.ts + {window}"
        sql += f" JOIN {name} ON {first}.k = {name}.k AND {between} AND {near}"
    return sql if query["below"] is None else f"{sql} WHERE {first}.v < {query['below']}"


def count_results(tables: Any, selects: list[str]) -> tuple[float, list[int]]:
    """Run all selects in one job. The last change of a count is its final value."""
    each = " UNION ALL ".join(f"SELECT {number} AS q FROM ({select})" for number, select in enumerate(selects))
    begun = time.perf_counter()
    with tables.execute_sql(f"SELECT q, COUNT(*) FROM ({each}) GROUP BY q").collect() as changes:
        found = {row[0]: row[1] for row in changes}
    return time.perf_counter() - begun, [found.get(number, 0) for number in range(len(selects))]


def main() -> None:
    request = json.loads(sys.argv[1])
    tables, names = TableEnvironment.create(EnvironmentSettings.in_streaming_mode()), request["streams"]
    for key, value in SETTINGS.items():
        tables.get_config().set(key, value)
    for name in names:
        create_table(tables, Path(request["folder"]), name)
    selects = [build_join_sql(names, query) for query in request["queries"]]
    count_results(tables, selects)
    seconds, results = count_results(tables, selects)
    reading, _ = count_results(tables, [f"SELECT v FROM {name}" for name in names])
    print(json.dumps({"seconds": seconds, "reading": reading, "results": results}))


if __name__ == "__main__":
    main()
