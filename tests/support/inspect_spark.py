"""What tests read of a running pipeline and of Spark that no public interface shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.adapt import Decision
from penstock.spark import session
from penstock.spark.driver.adaptive import AdaptiveRun
from penstock.spark.driver.control import CommandLog
from penstock.spark.worker.cell_state import CellCache


def last_command_number(log: CommandLog) -> int:
    return log._last_number


def deliver_to_waiting_batch(adaptive: AdaptiveRun, decisions: Sequence[Decision]) -> bool:
    """Deliver decisions while a micro-batch waits for them; returns whether it goes on."""
    adaptive._idle.clear()
    adaptive._deliver(list(decisions), 0.0)
    return adaptive._idle.is_set()


def redirect_stderr(log: Path) -> AbstractContextManager[None]:
    """The redirection that `local_session(log=...)` uses while it starts Spark."""
    return session._redirect_stderr(log)


def wait_for_listeners(spark: Any) -> None:
    """Wait until Spark has delivered all events to its listeners."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()


def hadoop_configuration(spark: Any) -> Any:
    """Hadoop's configuration of a session; `get`, `set` and `unset` are its methods."""
    return spark.sparkContext._jsc.hadoopConfiguration()


def cached_engines(cache: CellCache) -> list[ps.Engine]:
    """The engines of the cells that a worker keeps between micro-batches."""
    return [cached.cell._engine for cached in cache._items.values()]


@contextmanager
def limit_driver_results(spark: Any, size: int) -> Iterator[None]:
    """Set spark.driver.maxResultSize of a running session: Spark reads it for every stage."""
    conf, key = spark.sparkContext._jsc.sc().conf(), "spark.driver.maxResultSize"
    before = conf.get(key, "1g")
    conf.set(key, str(size))
    try:
        yield
    finally:
        conf.set(key, before)


def read_session_settings(spark: Any) -> tuple[dict[str, str], str]:
    """The settings of a session and the local properties of this thread."""
    return dict(spark.conf.getAll), str(spark.sparkContext._jsc.sc().getLocalProperties().toString())


def list_local_properties(spark: Any) -> dict[str, str]:
    """The local properties of the calling thread."""
    found = spark.sparkContext._jsc.sc().getLocalProperties()
    return {str(key): str(found.getProperty(key)) for key in found.stringPropertyNames()}


def measure_heap(spark: Any) -> int:
    """The bytes in the heap of Spark's driver after a collection."""
    lang = spark.sparkContext._jvm.java.lang
    lang.System.gc()
    runtime = lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def cached_bytes(cache: CellCache) -> list[int]:
    """What the engines of a cache hold, the least recently used first."""
    return [item.held for item in cache._items.values()]


def count_sources_by_session(frame: Any, sessions: Sequence[Any]) -> list[int]:
    """By session, how many file sources in the plan of a streaming DataFrame belong to it."""
    found = frame._jdf.queryExecution().analyzed().collectLeaves()
    leaves = [found.apply(place) for place in range(found.size())]
    owners = [leaf.dataSource().sparkSession() for leaf in leaves if leaf.nodeName() == "StreamingRelation"]
    return [sum(bool(owner.equals(session._jsparkSession)) for owner in owners) for session in sessions]


def write_local_file(spark: Any, place: Path, content: bytes) -> None:
    """Write a file as Hadoop does, through the file system of the session."""
    context = spark.sparkContext
    stream = _get_local_files(spark).create(context._jvm.org.apache.hadoop.fs.Path(str(place)), True)
    stream.write(bytearray(content))
    stream.close()


@contextmanager
def checksum_files(spark: Any) -> Iterator[None]:
    """Inside, the session writes checksum files beside local files, as one that Penstock did not make."""
    _get_local_files(spark).setWriteChecksum(True)
    try:
        yield
    finally:
        _get_local_files(spark).setWriteChecksum(False)


def _get_local_files(spark: Any) -> Any:
    context = spark.sparkContext
    return context._jvm.org.apache.hadoop.fs.FileSystem.getLocal(context._jsc.hadoopConfiguration())
