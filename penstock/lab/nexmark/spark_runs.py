"""The queries of Nexmark by the pipeline on local Spark, from files of one micro-batch each to Parquet."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet as pq
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import PenstockWarning
from penstock.lab.meters import create_temp_dir, measure_batches
from penstock.lab.nexmark.answers import Rows, make_side_input, read_answer, write_text
from penstock.lab.nexmark.events import SCHEMAS, NexmarkEvents
from penstock.lab.nexmark.queries import NexmarkQuery
from penstock.lab.spark_runs import CELLS
from penstock.spark import sinks
from penstock.spark.pipeline import Pipeline


def write_events(events: NexmarkEvents, folder: Path, batches: int) -> None:
    """Write the files. Their modification times give the order in which Spark reads them."""
    for batch, tables in enumerate(events.make_pushes(-(-events.count // batches))):
        for name, table in tables.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            path = folder / name / f"{batch:05}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_000_000 + batch, 1_000_000 + batch))


def run_on_spark(
    spark: SparkSession, queries: Sequence[NexmarkQuery], folder: Path, batches: int
) -> tuple[Mapping[str, Rows], float]:
    """The answers of queries that one pipeline runs, and the seconds of a micro-batch after the first one."""
    with create_temp_dir() as place:
        pipe, checkpoint = Pipeline(spark), Path(place) / "checkpoint"
        for name in SCHEMAS:
            pipe.stream(name, _read_stream(spark, folder, name), "dateTime")
        pipe.table("side_input", make_side_input())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PenstockWarning)  # the texts of the benchmark have no windows
            for query in queries:
                pipe.query(query.name, write_text(query), sink=sinks.parquet(f"{place}/{query.name}"))
        run = pipe.start(checkpoint, cells=CELLS)
        try:
            cost = measure_batches([run], [checkpoint], batches, 1)
            run.finish()
            run.processAllAvailable()
        finally:
            run.stop()
        return {query.name: read_answer(query, _read_results(f"{place}/{query.name}")) for query in queries}, (
            cost.wall / cost.batches
        )


def _read_stream(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    columns = ", ".join(
        f"{column} {'timestamp_ntz' if kind == 'timestamp' else kind}" for column, kind in SCHEMAS[name].items()
    )
    return spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(str(folder / name))


def _read_results(place: str) -> pa.Table:
    files = sorted(Path(place).rglob("*.parquet"))
    return pa.concat_tables([pq.read_table(path, partitioning=None) for path in files], promote_options="default")
