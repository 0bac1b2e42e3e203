"""Sources of Spark that are written in Python: their names in a session, and what only some versions of Spark have."""

from __future__ import annotations

from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # Spark 4.1: a run with this trigger is one micro-batch

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """In place of the class of later versions."""


__all__ = ["SupportsTriggerAvailableNow", "read_all_limit", "register_source"]
_names: WeakKeyDictionary[SparkSession, dict[type[DataSource], str]] = WeakKeyDictionary()


def register_source(spark: SparkSession, source: type[DataSource]) -> str:
    """Make a source known to a session, under a name of its own.

    Spark refuses a name that the active session knows, also if this session does not know it.
    """
    known = _names.setdefault(spark, {})
    if source not in known:
        name = f"{source.name()}_{uuid4().hex[:8]}"
        spark.dataSource.register(type(f"Named{source.__name__}", (source,), {"name": classmethod(lambda _: name)}))
        known[source] = name
    return known[source]


def read_all_limit() -> Any:
    """The limit of a source that reads whatever there is."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable  # noqa: PLC0415 - not in Spark 4.1

    return ReadAllAvailable()
