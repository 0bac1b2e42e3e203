"""The session of a streaming frame: Spark takes the settings of a streaming query from the session of its DataFrame.

A query with state needs the RocksDB state store, and one shuffle partition for each cell. A session with that state
store and few partitions is used as it is. Otherwise the frame belongs to a session of its own, with the settings, the
current database and the shared catalog of the given one: so the user's session does not change. Spark Connect does not
combine DataFrames of two sessions, so there the session must have the settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

from penstock.errors import QueryError, UnsupportedError
from penstock.spark.environment import is_connect
from penstock.spark.session import BATCH_BYTES, LOCAL_CHECKPOINT_SETTINGS, NARROW_ROWS, QUERY_SETTINGS, WIDE_ROWS

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_PARTITIONS = "spark.sql.shuffle.partitions"
_MOST_PARTITIONS = 64
"""Shuffle partitions that a user chose for streaming queries; Spark's default of 200 is for batches."""
_FRAME_SETTINGS = (
    _PROVIDER,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows",
)
_WITHOUT_CODEGEN = {"spark.sql.codegen.wholeStage": "false"}
"""Spark builds the text of generated code anew in every micro-batch; that takes longer than the code saves, also for
some hundred thousand rows."""

_parents: WeakKeyDictionary[SparkSession, SparkSession] = WeakKeyDictionary()
"""By session of a frame, the session that the user has."""


def is_same_session(one: SparkSession, other: SparkSession) -> bool:
    """Whether two sessions are the same for a user: the session of a frame counts as the one it was made from."""
    one, other = _parents.get(one, one), _parents.get(other, other)
    if one is other:
        return True
    if is_connect(one) or is_connect(other):
        return bool(getattr(one, "session_id", one) == getattr(other, "session_id", other))
    return bool(one._jsparkSession.equals(other._jsparkSession))


def check_cells(cells: object) -> None:
    if cells is not None and (isinstance(cells, bool) or not isinstance(cells, int) or cells < 1):
        message = f"cells is the number of parts of the work, at least 1, not {cells!r}; give a frame another name"
        raise QueryError("BAD_CELLS", message)


def count_cores(spark: SparkSession) -> int:
    """How many tasks the session runs at a time."""
    if not is_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    return spark.range(10_000).select(spark_partition_id()).distinct().count()


def choose_session(
    spark: SparkSession, frames: Mapping[str, DataFrame], cells: int | None, batches: Mapping[str, str]
) -> tuple[SparkSession, int]:
    """The session for a streaming frame, and its number of cells. `batches`: see `choose_batch_settings`.

    A frame that reads another one has as many cells as that: both are parts of one streaming query.
    """
    read = {
        int(get_setting(each.sparkSession, _PARTITIONS)) for each in frames.values() if each.sparkSession in _parents
    }
    if len(read) > 1 or (read and cells is not None and cells not in read):
        found = sorted(read | ({cells} if cells is not None else set()))
        message = f"frames that are read together have one number of cells, not {', '.join(map(str, found))}"
        raise QueryError("CELLS_DIFFER", message, cells=found)
    if any(each.sparkSession in _parents and not _is_narrow(each.sparkSession) for each in frames.values()):
        batches = WIDE_ROWS  # the stages of that frame, with its streams, run in this session too
    suits = get_setting(spark, _PROVIDER) == QUERY_SETTINGS[_PROVIDER]
    partitions = int(get_setting(spark, _PARTITIONS))
    if is_connect(spark):
        if not suits or (cells is not None and cells != partitions):
            raise _explain_connect(cells or count_cores(spark))
        return spark, partitions
    own = partitions if suits and partitions <= _MOST_PARTITIONS else count_cores(spark)
    chosen = next(iter(read), None) or cells or own
    if suits and partitions == chosen and not read:
        return spark, chosen
    return _create_session(spark, chosen, batches), chosen


def _is_narrow(spark: SparkSession) -> bool:
    return get_setting(spark, BATCH_BYTES).rstrip("b") == NARROW_ROWS[BATCH_BYTES]


def get_setting(spark: SparkSession, key: str) -> str:
    """A setting of a session, or Spark's default."""
    return str(spark.conf.get(key))


def _create_session(spark: SparkSession, cells: int, batches: Mapping[str, str]) -> SparkSession:
    """A session like the given one, with the settings of a frame."""
    spark = _parents.get(spark, spark)
    child, given = spark.newSession(), spark.conf.getAll
    for key, value in given.items():
        if child.conf.get(key, None) != value:
            with suppress(PySparkException):  # a setting of an older version that may not be set any more
                child.conf.set(key, value)
    chosen = {key: value for key, value in batches.items() if key != BATCH_BYTES or key not in given}
    for key, value in {**{key: QUERY_SETTINGS[key] for key in _FRAME_SETTINGS}, **chosen}.items():
        child.conf.set(key, value)
    unset = {**_WITHOUT_CODEGEN, **(LOCAL_CHECKPOINT_SETTINGS if _is_storage_local(spark) else {})}
    for key, value in unset.items():
        if key not in given:
            child.conf.set(key, value)
    child.conf.set(_PARTITIONS, str(cells))
    child.catalog.setCurrentCatalog(spark.catalog.currentCatalog())
    child.catalog.setCurrentDatabase(spark.catalog.currentDatabase())
    _parents[child] = spark
    return child


def _is_storage_local(spark: SparkSession) -> bool:
    """Whether paths without a scheme are local: then the checkpoint that the user names most likely is.

    On other storage the settings for local checkpoints are correct too: files are renamed there as well.
    """
    jsc = spark.sparkContext._jsc
    return jsc is not None and str(jsc.hadoopConfiguration().get("fs.defaultFS", "file:///")).startswith("file:")


def _explain_connect(cells: int) -> UnsupportedError:
    return UnsupportedError(
        "SESSION_SETTINGS",
        "over Spark Connect a streaming frame runs with the settings of the session; set these two before ps.sql and "
        "leave them until the query is started:\n"
        f'  spark.conf.set("{_PROVIDER}", "{QUERY_SETTINGS[_PROVIDER]}")\n'
        f'  spark.conf.set("{_PARTITIONS}", {cells})  # the number of cells',
    )
