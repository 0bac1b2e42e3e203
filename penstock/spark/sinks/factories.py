"""The sinks that users name: `ps.sinks.parquet(path)` and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import DataError, QueryError
from penstock.spark.iceberg import IcebergTable
from penstock.spark.postgres import PostgresTable
from penstock.spark.sinks import formats
from penstock.spark.sinks.delta import DeltaSink
from penstock.spark.sinks.driver import ConsoleSink, DriverMemorySink, ForeachSink
from penstock.spark.sinks.driver_files import DriverFileSink
from penstock.spark.sinks.file_names import FolderMode
from penstock.spark.sinks.files import FILE_SIZE, FileSink
from penstock.spark.sinks.frames import ForeachBatchSink, SparkSink
from penstock.spark.sinks.iceberg import IcebergSink
from penstock.spark.sinks.kafka import KafkaSink
from penstock.spark.sinks.kafka_transactions import KafkaTransactionSink
from penstock.spark.sinks.postgres import RETRY_SECONDS, PostgresSink
from penstock.spark.sinks.protocol import DRIVER_LIMIT, DriverSink, FrameSink
from penstock.state import parse_size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def parquet(path: str, mode: FolderMode = "error", *, file_size: int | str = FILE_SIZE) -> FileSink | DriverFileSink:
    """Parquet files in a folder, written by the tasks. A file is ended at `file_size`, such as "512 MB".

    `mode`: what a run with a new checkpoint does with files of an earlier one: "error", "append" or "overwrite".
    """
    return _build_file_sink(str(path), formats.PARQUET, mode, parse_size(file_size))


def orc(path: str, mode: FolderMode = "error", *, file_size: int | str = FILE_SIZE) -> FileSink | DriverFileSink:
    """ORC files in a folder, written by the tasks."""
    return _build_file_sink(str(path), formats.ORC, mode, parse_size(file_size))


def csv(
    path: str, header: bool = True, mode: FolderMode = "error", *, file_size: int | str = FILE_SIZE
) -> FileSink | DriverFileSink:
    """CSV files in a folder, written by the tasks."""
    return _build_file_sink(str(path), formats.build_csv(header), mode, parse_size(file_size))


def json(path: str, mode: FolderMode = "error", *, file_size: int | str = FILE_SIZE) -> FileSink | DriverFileSink:
    """Files with one JSON object per line, written by the tasks."""
    return _build_file_sink(str(path), formats.JSON, mode, parse_size(file_size))


def console(file: IO[str] | None = None, *, limit: int | str = DRIVER_LIMIT) -> DriverSink:
    """Lines on stdout, or in another open file. `limit`: the bytes of a micro-batch that the driver takes."""
    return ConsoleSink(file, parse_size(limit))


def memory(*, limit: int | str = DRIVER_LIMIT) -> DriverMemorySink:
    """A table in the driver: `sink.table()`. `limit`: the bytes of a micro-batch that the driver takes."""
    return DriverMemorySink(parse_size(limit))


def foreach(function: Callable[[pa.Table, int], Any], *, limit: int | str = DRIVER_LIMIT) -> DriverSink:
    """A function of (rows, batch), called in the driver. `limit`: the bytes of a micro-batch that the driver takes.

    It may be called twice with the same batch and must then have no further effect.
    """
    return ForeachSink(_check_callable("foreach", "(rows, batch)", function), parse_size(limit))


def foreachBatch(function: Callable[[DataFrame, int], Any]) -> FrameSink:  # noqa: N802 - Spark's name
    """A function of (DataFrame, batch), as in Spark's `foreachBatch`.

    It may be called twice with the same batch and must then have no further effect.
    """
    return ForeachBatchSink(_check_callable("foreachBatch", "(frame, batch)", function))


def spark(format: str, **options: Any) -> FrameSink:
    """Any batch format of Spark by its name, such as "delta" or "jdbc", with the options of its writer.

    Delta writes a micro-batch once. With other formats a repeated micro-batch is appended again.
    """
    if not isinstance(format, str) or not format:
        raise QueryError("UNKNOWN_SINK_FORMAT", f"a format is named by a text such as 'delta', not {format!r}")
    return SparkSink(format, options)


def delta(path: str | Path, *, key: str | Sequence[str] = (), **options: Any) -> DeltaSink:
    """A Delta table in a folder: tasks write its files, each micro-batch is one commit, exactly once.

    With `key`, the columns that tell the rows of an answer apart, the changes of EMIT CHANGES are merged; without it
    rows are appended. `options` are storage options of the package deltalake. The table is created if there is none.
    """
    return DeltaSink(str(path), _split_names(key), {name: str(value) for name, value in options.items()})


def iceberg(table: str, *, key: str | Sequence[str] = (), **options: Any) -> IcebergSink:
    """A table of Apache Iceberg, `namespace.table`: tasks write its files, a micro-batch is one commit, exactly once.

    With `key`, the columns that tell the rows of an answer apart, the changes of EMIT CHANGES are applied to the table;
    without it rows are appended. `options` are those of a catalog of the package pyiceberg: type, uri, warehouse and
    others, and `catalog`, its name in pyiceberg's own settings. The table is created if there is none.
    """
    given = {name: str(value) for name, value in options.items()}
    return IcebergSink(IcebergTable(table, tuple(given.items())), _split_names(key))


def kafka(
    topic: str,
    *,
    key: str | Sequence[str] = (),
    transactional: bool = False,
    retry: float = RETRY_SECONDS,
    limit: int | str = DRIVER_LIMIT,
    **options: Any,
) -> KafkaSink | KafkaTransactionSink:
    """A topic of Kafka: one JSON object per result, at least once; readers can drop repeats by headers.

    `key`: columns whose texts are the key of a record. `options` are those of Spark's connector, with underscores for
    dots: `kafka_bootstrap_servers="host:9092"`. With `transactional` each micro-batch is one transaction of a producer
    in the driver: readers of committed records have it once. `options` are then those of librdkafka, after `kafka.`;
    `retry`: for how many seconds it tries again while brokers are away; `limit`: the bytes of a micro-batch it takes.
    """
    given = {name.replace("_", "."): str(value) for name, value in options.items()}
    if not transactional:
        return KafkaSink(topic, given, _split_names(key))
    return KafkaTransactionSink(topic, given, _split_names(key), retry=float(retry), limit=parse_size(limit))


def postgres(
    table: str, *, key: str | Sequence[str] = (), create: bool = False, retry: float = RETRY_SECONDS, **connection: Any
) -> PostgresSink:
    """A table of PostgreSQL, written by the tasks; each micro-batch is one transaction, exactly once.

    `connection` are options of libpq: host, port, dbname, user, password, sslmode and others. A password is
    `ps.secret("PGPASSWORD")` or `ps.secret_file(path)`. With `key`, the columns that tell the rows of an answer apart,
    the changes of EMIT CHANGES are applied to the table; without it rows are appended. `create`: create the table if
    there is none. `retry`: for how many seconds it tries again while the server is away.
    """
    given = {name.casefold(): str(value) for name, value in connection.items()}
    return PostgresSink(
        PostgresTable(tuple(given.items()), table), _split_names(key), create=create, retry=float(retry)
    )


def _split_names(names: str | Sequence[str]) -> list[str]:
    return [each.strip() for each in names.split(",") if each.strip()] if isinstance(names, str) else list(names)


def _build_file_sink(
    path: str, file_format: formats.FileFormat, mode: FolderMode, file_size: int
) -> FileSink | DriverFileSink:
    """Files that tasks write, or the driver if pyarrow, which tasks write with, does not know the URI."""
    try:
        return FileSink(path, file_format, mode, file_size)
    except DataError:
        return DriverFileSink(path, file_format, mode)


def _check_callable(name: str, parameters: str, function: Any) -> Any:
    if not callable(function):
        raise QueryError("NOT_CALLABLE", f"{name} takes a function of {parameters}, not {function!r}")
    return function
