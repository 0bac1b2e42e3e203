"""Spark sessions: the default local session, and the settings of the streaming query."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

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
}
BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
WIDE_ROWS = {"spark.sql.execution.arrow.maxRecordsPerBatch": "2048"}
NARROW_ROWS = {**WIDE_ROWS, BATCH_BYTES: str(2**31 - 1)}
"""Settings for streams of numbers, times and truth values.

Below this largest number of bytes Spark adds up the size of the columns for every row that it sends to Python, which is
a fifth of what a row costs. Without it a batch must be small by itself: 2,048 rows of such streams are, and packed rows
and results travel in blobs of at most about 60 KiB, so that the batches of a task fit into 128 MiB.
"""

LOCAL_CHECKPOINT_SETTINGS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.fileSource.log.cleanupDelay": "30s",
}
"""Spark's default for local paths starts ten processes (readlink, chmod) for every file it writes; this one two.

A file source keeps the logs of its micro-batches for ten minutes and lists them in each; on a local disk a file that
was replaced by a compacted one can go at once.
"""


def local_session(
    master: str = "local[*,4]", settings: Mapping[str, str] | None = None, log: Path | None = None
) -> SparkSession:
    """The active session, or a local one that listens on the loopback interface only.

    By default a task has four attempts, as on a cluster, so that the loss of a worker does not end the run. With `log`
    Java and the workers of a new session write to that file instead of the terminal.
    Raises a `ResourceError` with the remedy if pyspark, Java or the interpreter of the workers does not fit.
    """
    require_spark()
    from pyspark import SparkContext  # noqa: PLC0415 - checked above
    from pyspark import __version__ as pyspark_version  # noqa: PLC0415
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
    is_new = SparkContext._active_spark_context is None
    spark = _create_session(builder, log)
    spark.sparkContext.setLogLevel("ERROR")
    if is_new and master.startswith("local"):
        _omit_checksum_files(spark)
    return spark


def _omit_checksum_files(spark: SparkSession) -> None:
    """Write no `.crc` file beside each local file of a new session: Hadoop starts a process for each of them.

    State files are compressed with checksums of their own. Existing `.crc` files are read, and removed with their file.
    """
    context = spark.sparkContext
    if context._jvm is None or context._jsc is None:
        raise InternalError("NO_JVM", "the Spark session has no JVM")
    files = context._jvm.org.apache.hadoop.fs.FileSystem.getLocal(context._jsc.hadoopConfiguration())
    files.setWriteChecksum(False)


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


def choose_batch_settings(schemas: Iterable[pa.Schema]) -> dict[str, str]:
    """How many rows Spark sends to Python at once, for streams with these columns."""
    narrow = all(_has_fixed_size(field.type) for schema in schemas for field in schema)
    return NARROW_ROWS if narrow else WIDE_ROWS


def _has_fixed_size(kind: pa.DataType) -> bool:
    try:
        return int(kind.bit_width) > 0
    except ValueError:
        return False


@contextmanager
def apply_query_settings(
    spark: SparkSession, cells: int, *, local: bool, batches: Mapping[str, str] = WIDE_ROWS
) -> Iterator[None]:
    """Apply the settings that a streaming query copies at its start; the session's own are restored at the end.

    `batches`: those of `choose_batch_settings`. File sources do not copy settings: they read those of the session when
    they are created, which is after the start (see `wait_for_sources`).
    """
    wanted = {
        **QUERY_SETTINGS,
        **batches,
        **(LOCAL_CHECKPOINT_SETTINGS if local else {}),
        "spark.sql.shuffle.partitions": str(cells),
    }
    if BATCH_BYTES in spark.conf.getAll:  # the user's limit
        wanted.pop(BATCH_BYTES, None)
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
