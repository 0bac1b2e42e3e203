"""The launch of a pipeline's Spark streaming query: what is checked before, and how Spark starts it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import DataError, QueryError, ResourceError
from penstock.spark.driver.batch_sink import BatchSink
from penstock.spark.session import wait_for_sources
from penstock.spark.storage import Folder


def check_speculation(spark: SparkSession) -> None:
    """Refuse a session that runs several attempts of a task at a time."""
    if str(spark.sparkContext.getConf().get("spark.speculation", "false")).lower() == "true":
        raise ResourceError(
            "SPECULATION",
            "spark.speculation is true: two attempts of a task would write the same state and results at a time; "
            "make the session with .config('spark.speculation', 'false')",
        )


def check_not_running(spark: SparkSession, folder: Folder) -> None:
    """Refuse a checkpoint that a streaming query of this session is using, before sinks are opened."""
    saved = folder.read("metadata")
    if saved is not None and json.loads(saved)["id"] in {query.id for query in spark.streams.active}:
        raise _make_in_use_error(folder.path)


def remove_unfinished_offsets(folder: Folder) -> None:
    """Remove what is left of a run that ended while Spark wrote the offsets of the first micro-batch.

    Nothing has begun then, but Spark refuses a checkpoint with any file among the offsets and no complete one.
    """
    offsets = folder.child("offsets")
    names = offsets.list_names()
    if not any(name.isdigit() for name in names):
        for name in names:
            offsets.remove(name)


@contextmanager
def set_local_properties(spark: SparkSession, properties: Mapping[str, str]) -> Iterator[None]:
    """Set local properties for the thread of a streaming query that is started inside, which inherits them."""
    context = spark.sparkContext
    before = {key: context.getLocalProperty(key) for key in properties}
    try:
        for key, value in properties.items():
            context.setLocalProperty(key, value)
        yield
    finally:
        for key, old in before.items():
            context.setLocalProperty(key, old)  # type: ignore[arg-type]  # None removes it


def start_query(
    frame: DataFrame, batch_sink: BatchSink, place: str, run: str, trigger: Mapping[str, Any] | None
) -> StreamingQuery:
    """Start the streaming query of a frame and wait until Spark has created its sources."""
    writer = frame.writeStream.foreachBatch(batch_sink).option("checkpointLocation", place).outputMode("append")
    writer = writer.queryName(f"penstock-{run[:8]}")
    try:
        return wait_for_sources((writer.trigger(**trigger) if trigger else writer).start())
    except TypeError as error:
        raise QueryError("BAD_TRIGGER", f"Spark knows no trigger {dict(trigger or {})!r}: {error}") from error
    except Py4JJavaError as error:  # pyspark has no class for it
        if "already active" in str(error):
            raise _make_in_use_error(place) from error
        raise DataError("START_FAILED", f"Spark did not start the pipeline: {error}") from error
    except PySparkException as error:
        raise DataError("START_FAILED", f"Spark did not start the pipeline: {error}") from error


def _make_in_use_error(place: str) -> QueryError:
    message = f"a run is using the checkpoint {place}; stop it first, or change it with its own methods"
    return QueryError("CHECKPOINT_IN_USE", message, checkpoint=place)
