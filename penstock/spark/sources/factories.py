"""Streaming DataFrames over lake tables, and the rows of static ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.cql import OPERATION, Connector
from penstock.errors import QueryError
from penstock.expr import format_spark_type, quote_name
from penstock.spark import delta as delta_tables
from penstock.spark import iceberg as iceberg_tables
from penstock.spark.iceberg import IcebergTable
from penstock.spark.lake_columns import check_columns
from penstock.spark.python_source import register_source
from penstock.spark.sinks.files import resolve_path
from penstock.spark.sources.table_stream import (
    LIMIT_OPTION,
    TABLE_OPTION,
    TableSource,
    describe_delta,
    describe_iceberg,
)

_LIMIT = "maxfilespertrigger"


def delta(
    spark: SparkSession,
    path: str | Path,
    *,
    maxFilesPerTrigger: int | None = None,  # noqa: N803 - as Spark's option
    **options: Any,
) -> DataFrame:
    """A Delta table as a streaming DataFrame: its rows, then those that are appended.

    A version that changed or removed rows stops the stream. `options` are storage options of the package deltalake.
    """
    given = {name: str(value) for name, value in options.items()}
    return _open_delta(spark, str(path), given, None, maxFilesPerTrigger)


def iceberg(
    spark: SparkSession,
    table: str,
    *,
    maxFilesPerTrigger: int | None = None,  # noqa: N803 - as Spark's option
    **options: Any,
) -> DataFrame:
    """An Iceberg table, `namespace.table`, as a streaming DataFrame: its rows, then those that are appended.

    A snapshot that changed or removed rows stops the stream. `options` are those of a catalog of pyiceberg.
    """
    given = {name: str(value) for name, value in options.items()}
    return _open_iceberg(spark, IcebergTable(table, tuple(given.items())), None, maxFilesPerTrigger)


def open_lake_stream(spark: SparkSession, connector: Connector, schema: pa.Schema) -> DataFrame:
    """The stream of FROM delta or FROM iceberg, with the declared columns."""
    path, table, limit = _split_options(connector)
    if path is not None:
        return _open_delta(spark, path, dict(table.options), schema, limit)
    return _open_iceberg(spark, table, schema, limit)


def read_lake_table(connector: Connector, schema: pa.Schema) -> pa.Table:
    """The present rows of FROM delta or FROM iceberg, with the declared columns."""
    path, table, _ = _split_options(connector)
    if path is not None:
        return delta_tables.read_rows(_resolve(path), dict(table.options), schema)
    return iceberg_tables.read_table(table, schema)


def _split_options(connector: Connector) -> tuple[str | None, IcebergTable, int | None]:
    """The path of a Delta table, or None and the Iceberg table; and the most files of a micro-batch."""
    given = {key.casefold() if key.casefold() in (_LIMIT, "path") else key: value for key, value in connector.options}
    limit = given.pop(_LIMIT, None)
    if limit is not None and not (limit.isdigit() and int(limit) > 0):
        raise QueryError("SOURCE_OPTIONS", f"maxFilesPerTrigger is a number of files from 1 on, not {limit!r}")
    most = None if limit is None else int(limit)
    if connector.format.casefold() == "delta":
        return given.pop("path"), IcebergTable("", tuple(given.items())), most
    return None, iceberg_tables.split_table(given), most


def _open_delta(
    spark: SparkSession, path: str, options: Mapping[str, str], schema: pa.Schema | None, limit: int | None
) -> DataFrame:
    place = _resolve(path)
    found = delta_tables.read_schema(place, options)
    return _open(spark, f"Delta table {place}", describe_delta(place, options), found, schema, limit)


def _open_iceberg(spark: SparkSession, table: IcebergTable, schema: pa.Schema | None, limit: int | None) -> DataFrame:
    described = describe_iceberg(table.name, table.options)
    found = iceberg_tables.read_schema(table)
    iceberg_tables.refuse_parts(str(table), found if schema is None else schema, "SOURCE_FEATURES")
    return _open(spark, str(table), described, found, schema, limit)


def _open(
    spark: SparkSession, what: str, table: str, found: pa.Schema, schema: pa.Schema | None, limit: int | None
) -> DataFrame:
    if schema is not None:
        check_columns(what, found, schema)
        operation = [found.field(OPERATION)] if OPERATION in found.names and OPERATION not in schema.names else []
        found = pa.schema([*schema, *operation])  # the changes of an updating table have the operation
    columns = ", ".join(f"{quote_name(field.name)} {format_spark_type(field.type)}" for field in found)
    reader = spark.readStream.format(register_source(spark, TableSource)).schema(columns).option(TABLE_OPTION, table)
    return (reader if limit is None else reader.option(LIMIT_OPTION, str(limit))).load()


def _resolve(path: str) -> str:
    return path if "://" in path else resolve_path(path)
