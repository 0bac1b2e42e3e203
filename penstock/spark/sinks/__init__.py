"""Sinks: where results go, micro-batch by micro-batch. See `protocol` for the three kinds."""

from penstock.spark.sinks.connectors import from_connector
from penstock.spark.sinks.driver import ConsoleSink, DriverMemorySink
from penstock.spark.sinks.factories import (
    console,
    csv,
    delta,
    foreach,
    foreachBatch,
    iceberg,
    json,
    kafka,
    memory,
    orc,
    parquet,
    postgres,
    spark,
)
from penstock.spark.sinks.file_names import FolderMode
from penstock.spark.sinks.files import FileSink
from penstock.spark.sinks.folders import check_folders, clear_folders, describe_sink
from penstock.spark.sinks.protocol import (
    CELL_COLUMN,
    DRIVER_LIMIT,
    SEQUENCE_COLUMN,
    Attempt,
    DriverSink,
    FrameSink,
    Sink,
    TaskSink,
    as_sink,
    open_sink,
    sink_connector,
)

__all__ = [
    "CELL_COLUMN",
    "DRIVER_LIMIT",
    "SEQUENCE_COLUMN",
    "Attempt",
    "ConsoleSink",
    "DriverMemorySink",
    "DriverSink",
    "FileSink",
    "FolderMode",
    "FrameSink",
    "Sink",
    "TaskSink",
    "as_sink",
    "check_folders",
    "clear_folders",
    "console",
    "csv",
    "delta",
    "describe_sink",
    "foreach",
    "foreachBatch",
    "from_connector",
    "iceberg",
    "json",
    "kafka",
    "memory",
    "open_sink",
    "orc",
    "parquet",
    "postgres",
    "sink_connector",
    "spark",
]
