"""Shared by the Spark tests: cases as folders of files, one file of each stream per micro-batch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkContext

import penstock as ps
from penstock.spark import sinks
from penstock.spark.pipeline import Pipeline
from penstock.spark.run import Run
from penstock.testing import Case, Push
from penstock.testing.runner import declare

DDL = {"int64": "bigint", "int32": "int", "double": "double", "string": "string", "bool": "boolean",
       "date32[day]": "date", "decimal128(10, 2)": "decimal(10,2)", "timestamp[us]": "timestamp_ntz"}  # fmt: skip


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds, at most five minutes."""
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "the condition did not hold within five minutes"
        time.sleep(0.1)


def merge_pushes(case: Case, most: int) -> Case:
    """The case with its pushes merged into a few; every push has a table of every stream."""
    pushes = [step for step in case.steps if isinstance(step, Push)]
    size = -(-len(pushes) // most)
    steps = [_concat_pushes(case, pushes[at : at + size]) for at in range(0, len(pushes), size)]
    return replace(case, steps=tuple(steps))


def _concat_pushes(case: Case, pushes: list[Push]) -> Push:
    return Push({
        stream.name: pa.concat_tables(
            [stream.schema.empty_table(), *(p.batches[stream.name] for p in pushes if stream.name in p.batches)]
        )
        for stream in case.declarations
    })  # fmt: skip


def write_case(case: Case, folder: Path, batches: range | None = None) -> None:
    """Write the pushes of a case as files, ordered by modification time."""
    for number, step in enumerate(case.steps):
        if batches is None or number in batches:
            assert isinstance(step, Push)
            for stream, table in step.batches.items():
                write_file(folder / stream / f"{number}.parquet", table, number)


def write_file(path: Path, table: pa.Table, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f"_{path.name}")
    pq.write_table(table, hidden)
    os.utime(hidden, (1_000_000 + number, 1_000_000 + number))
    hidden.rename(path)


def to_ddl(schema: pa.Schema) -> str:
    return ", ".join(f"`{field.name}` {DDL[str(field.type)]}" for field in schema)


def read_stream(spark: Any, schema: pa.Schema, folder: Path) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    return spark.readStream.schema(to_ddl(schema)).option("maxFilesPerTrigger", 1).parquet(str(folder))


def declare_pipeline(
    spark: Any, case: Case, folder: Path, kind: Callable[..., Pipeline] = Pipeline, **options: Any
) -> Pipeline:
    """A pipeline with the streams and tables of a case, read from a folder; late and bad rows stay in memory."""
    pipe = kind(spark, **options)
    for stream in case.declarations:
        late, dead = sinks.memory(), sinks.memory()
        pipe.stream(stream.name, read_stream(spark, stream.schema, folder / stream.name), stream.time, stream.lateness,
                    late=late, dead=dead)  # fmt: skip
    for name, table in case.tables.items():
        pipe.table(name, table)
    return pipe


def build_pipeline(
    spark: Any, case: Case, queries: Mapping[str, str], folder: Path, **options: Any
) -> tuple[Pipeline, dict[str, Any]]:
    """A pipeline for a case and queries over its streams, all with memory sinks."""
    pipe = declare_pipeline(spark, case, folder, **options)
    answers = {name: sinks.memory() for name in queries}
    for name, text in queries.items():
        pipe.query(name, text, sink=answers[name])
    return pipe, answers


def run_embedded(case: Case, queries: Mapping[str, str], *, finish: bool = False) -> dict[str, pa.Table]:
    """The results of the embedded engine for the same pushes; `finish` ends the streams."""
    engine = ps.Engine()
    declare(engine, case)
    for name, text in queries.items():
        engine.query(name, text)
    answers: dict[str, list[pa.Table]] = {name: [] for name in queries}
    for step in case.steps:
        assert isinstance(step, Push)
        for name, table in engine.push(dict(step.batches)).items():
            answers[name].append(table)
    if finish:
        for name, table in engine.flush().items():
            answers[name].append(table)
    return {name: pa.concat_tables(tables) for name, tables in answers.items()}


def end_java() -> None:
    """End the Java process that Spark was started in, if no session uses it, so that the next session has a new one."""
    context: Any = SparkContext
    if context._gateway is not None and context._active_spark_context is None:
        context._gateway.shutdown()
        context._gateway = context._jvm = None


def drain(run: Run, *, finish: bool = False) -> Run:
    """Process everything available and stop; `finish` ends the streams first."""
    try:
        run.processAllAvailable()
        if finish:
            run.finish()
            run.processAllAvailable()
    finally:
        run.stop()
    return run
