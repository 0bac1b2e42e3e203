"""Spark sessions: the default local session, and the settings of the streaming query."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import InternalError, QueryError, ResourceError
from penstock.spark.environment import (
    check_spark_home,
    require,
    require_session,
    require_spark,
    require_worker_python,
)
from penstock.spark.java import find_java_home
from penstock.spark.java_process import detach_child_processes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_SECONDS = 0.01

_JAVA_OPTIONS = (
    "-XX:+UseParallelGC",
    "-Djdk.lang.Process.launchMechanism=VFORK",
    # The optimising compiler starts several times later: what a micro-batch calls a few times in the driver is not
    # worth its time. Hot loops start it by another threshold.
    "-XX:Tier4InvocationThreshold=30000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=60000",
)
LOCAL_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.speculation": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.extraJavaOptions": " ".join(_JAVA_OPTIONS),
}
SHORT_RUN_SETTINGS = {
    "spark.driver.extraJavaOptions": LOCAL_SETTINGS["spark.driver.extraJavaOptions"] + " -XX:TieredStopAtLevel=1"
}
"""For sessions of some minutes: the optimising compiler of Java would take longer than it saves."""
QUERY_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.stopActiveRunOnRestart": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}

LOCAL_CHECKPOINT_SETTINGS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Spark's default for local paths starts ten processes (readlink, chmod) for every file it writes; this one two."""


def local_session(
    master: str = "local[*,4]", settings: Mapping[str, str] | None = None, log: Path | None = None
) -> SparkSession:
    """The active session, or a local one that listens on the loopback interface only.

    By default a task has four attempts, as on a cluster, so that the loss of a worker does not end the run. With `log`
    Java and the workers of a new session write to that file instead of the terminal.
    Raises a `ResourceError` with the remedy if pyspark, Java or the interpreter of the workers does not fit.
    """
    require_spark()
    from pyspark import __version__ as pyspark_version  # noqa: PLC0415 - checked above
    from pyspark.sql import SparkSession  # noqa: PLC0415

    active = SparkSession.getActiveSession()
    if active is not None:
        require_session(active)
        return active
    require([check_spark_home(pyspark_version)])
    home = find_java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    require_worker_python(os.environ.setdefault("PYSPARK_PYTHON", sys.executable))
    builder = SparkSession.builder.master(master).appName("penstock")
    for key, value in {**LOCAL_SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = _create_session(builder, log)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _create_session(builder: SparkSession.Builder, log: Path | None) -> SparkSession:
    try:
        with _redirect_stderr(log) if log is not None else nullcontext(), detach_child_processes():
            return builder.getOrCreate()
    except Exception as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        hint = f"; Spark's log is {log}" if log is not None else ""
        raise ResourceError("SPARK_NOT_STARTED", f"Spark did not start: {said}{hint}; try `penstock doctor`") from error


def create_log_file() -> Path:
    """A new file for the log of a session that the command line starts."""
    handle, name = tempfile.mkstemp(prefix="penstock-spark-", suffix=".log")
    os.close(handle)
    return Path(name)


@contextmanager
def _redirect_stderr(log: Path) -> Iterator[None]:
    """Processes that are started inside have the file as their standard error."""
    sys.stderr.flush()
    log.parent.mkdir(parents=True, exist_ok=True)
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def parse_trigger_seconds(spark: SparkSession, processing_time: str) -> float:
    """The length of a processingTime trigger, as Spark reads it."""
    jvm = spark.sparkContext._jvm
    if jvm is None:
        raise InternalError("NO_JVM", "the Spark session has no JVM")
    try:
        return float(jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(processing_time).intervalMs()) / 1000
    except Exception as error:
        raise QueryError(
            "BAD_TRIGGER", f"processingTime is a time such as '1 second', not {processing_time!r}"
        ) from error


@contextmanager
def apply_query_settings(spark: SparkSession, cells: int, *, local: bool) -> Iterator[None]:
    """Apply the settings that a streaming query copies at its start; the session's own are restored at the end.

    File sources do not copy them: they read the settings of the session when they are created, which is after the start
    (see `wait_for_sources`).
    """
    wanted = {
        **QUERY_SETTINGS,
        **(LOCAL_CHECKPOINT_SETTINGS if local else {}),
        "spark.sql.shuffle.partitions": str(cells),
    }
    before = {key: spark.conf.get(key, None) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def wait_for_sources(query: StreamingQuery) -> StreamingQuery:
    """Wait until a started streaming query has created its sources or has failed."""
    while query.isActive and query.status["message"].startswith("Initializing"):
        time.sleep(_POLL_SECONDS)
    return query
