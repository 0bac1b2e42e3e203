"""Shared by the tests of frames: the streams and tables of a case as DataFrames, and runs of streaming frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from spark_support import read_stream, to_ddl

import penstock as ps
from penstock.testing import Case


def stream_case(spark: Any, case: Case, folder: Path) -> dict[str, Any]:
    """The frames of a case whose pushes are files in a folder, as streaming DataFrames."""
    streams = {
        each.name: ps.timed(read_stream(spark, each.schema, folder / each.name), each.time, each.lateness)
        for each in case.declarations
    }
    return {**streams, **case.tables}


def batch_case(spark: Any, case: Case, folder: Path, files: int) -> dict[str, Any]:
    """The frames of a case as batch DataFrames of several partitions, with late rows and rows without a time."""
    found: dict[str, Any] = dict(case.tables)
    for each in case.declarations:
        place, table = folder / each.name, case.streams[each.name]
        place.mkdir()
        for number in range(files):
            first, last = (table.num_rows * part // files for part in (number, number + 1))
            pq.write_table(table.slice(first, last - first), place / f"{number}.parquet")
        frame = spark.read.schema(to_ddl(each.schema)).parquet(str(place))
        found[each.name] = ps.timed(frame if files == 1 else frame.repartition(files), each.time, each.lateness)
    return found


def write_results(frame: DataFrame, folder: Path, query: str = "q") -> Any:
    """Run a streaming frame into Spark's Parquet sink until all input is processed; returns the last progress."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / f"{query}-out"))
    started = writer.option("checkpointLocation", str(folder / f"{query}-ck")).start()
    try:
        started.processAllAvailable()
        return started.recentProgress
    finally:
        started.stop()


def read_results(spark: Any, folder: Path, schema: pa.Schema, query: str = "q") -> pa.Table:
    """What Spark's Parquet sink has, as Spark reads it."""
    return as_results(spark.read.parquet(str(folder / f"{query}-out")), schema)


def as_results(frame: DataFrame, schema: pa.Schema) -> pa.Table:
    """A frame as a table with the types of a query's results; Spark's TIMESTAMP has the zone of the session."""
    assert frame.columns == schema.names
    return pa.table(
        [column.cast(field.type) for column, field in zip(frame.toArrow().columns, schema, strict=True)], schema=schema
    )


def explain_frame(frame: DataFrame) -> str:
    """Spark's optimised plan of a frame."""
    return str(frame._jdf.queryExecution().optimizedPlan().toString())
