"""Nexmark by PyFlink: PYTHON flink_queries.py '{"folder": …, "schemas": {…}, "queries": {name: SQL}}'.

The interpreter has PyFlink installed; this program does not import Penstock. Each query is a job that reads CSV files
and writes to Flink's `blackhole`, with two tasks, state in memory and no checkpoints. A job runs twice and the second
run counts, because Java has compiled its loops by then. Its time includes the start of the job and reading.
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
from pyflink.table import EnvironmentSettings, Schema, TableDescriptor, TableEnvironment

PARALLELISM = 2
TYPES = {"bigint": "BIGINT", "string": "STRING", "timestamp": "TIMESTAMP(3)"}


def create_table(tables: Any, folder: Path, name: str, schema: dict[str, str]) -> None:
    """A stream as CSV, because the package of PyFlink has no Parquet: a file for each reader, rows in their order."""
    rows = pq.read_table(folder / f"{name}.parquet")
    times = [column for column, kind in schema.items() if kind == "timestamp"]
    for column in times:
        place = rows.schema.get_field_index(column)
        rows = rows.set_column(place, column, rows.column(column).cast(pa.timestamp("ms"), safe=False))
    place = folder / f"{name}-csv"
    place.mkdir()
    for reader in range(PARALLELISM):
        part = rows.take(pa.array(range(reader, rows.num_rows, PARALLELISM)))
        csv.write_csv(part, place / f"{reader}.csv", csv.WriteOptions(include_header=False))
    columns = ", ".join(f"`{column}` {TYPES[kind]}" for column, kind in schema.items())
    watermark = ", WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND" if times else ""
    options = f"'connector' = 'filesystem', 'path' = '{place}', 'format' = 'csv'"
    tables.execute_sql(f"CREATE TABLE {name} ({columns}{watermark}) WITH ({options})")


def run_query(tables: Any, text: str) -> float:
    """The seconds of a job that writes the results of a query to nowhere."""
    query = tables.sql_query(text)
    fields = Schema.new_builder().from_resolved_schema(query.get_resolved_schema()).build()
    sink = TableDescriptor.for_connector("blackhole").schema(fields).build()
    begun = time.perf_counter()
    query.execute_insert(sink).wait()
    return time.perf_counter() - begun


def main() -> None:
    request = json.loads(sys.argv[1])
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("parallelism.default", str(PARALLELISM))
    schemas = {**request["schemas"], "side_input": {"key": "bigint", "value": "string"}}
    for name, schema in schemas.items():
        create_table(tables, Path(request["folder"]), name, schema)
    seconds: dict[str, float] = {}
    refused: dict[str, str] = {}
    for name, text in request["queries"].items():
        try:
            run_query(tables, text)
            seconds[name] = run_query(tables, text)
        except Exception as error:  # Flink's errors are Java's
            lines = [line for line in str(error).splitlines() if "Exception:" in line]
            refused[name] = lines[-1].partition("Exception:")[2].strip()[:200] if lines else str(error)[:200]
    print(json.dumps({"seconds": seconds, "refused": refused}))


if __name__ == "__main__":
    main()
