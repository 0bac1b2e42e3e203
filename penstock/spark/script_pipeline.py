"""A pipeline from a CQL script: CREATE STREAM, CREATE TABLE and CREATE SINK become Spark sources, tables and sinks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit

from penstock.cql import (
    OPERATION,
    SOURCE_FORMATS,
    BareQuery,
    Connector,
    CreateStreamAs,
    CreateView,
    InsertInto,
    Script,
    Stream,
    Table,
    find_source_format,
    redact,
    resolve_secrets,
    suggest_similar,
    zone_columns,
)
from penstock.errors import DataError, InternalError, PenstockError, QueryError, ResourceError
from penstock.expr import format_spark_type, quote_name
from penstock.ops import check_required
from penstock.spark.heartbeat import is_stamped
from penstock.spark.kafka import add_connector, split_options
from penstock.spark.payloads import Payload
from penstock.spark.pipeline import Pipeline
from penstock.spark.postgres import PostgresTable, read_rows
from penstock.spark.sinks import Sink, from_connector
from penstock.spark.sources import open_lake_stream, read_lake_table

SinkMaker = Callable[[str, str, dict[str, str]], Sink]
"""Makes the sink of a name, a format and options."""
_NOT_FOUND_SIGNS = ("DATA_SOURCE_NOT_FOUND", "Failed to find data source", "Failed to find the data source")
_LAKES = ("delta", "iceberg")
"""Formats that packages of Python read."""
_FILE_FORMATS = ("parquet", "csv", "json", "orc", "text", "avro")


def build_pipeline(
    script: Script,
    spark: SparkSession | None = None,
    make_sink: SinkMaker = from_connector,
    memory: int | str | None = None,
) -> Pipeline:
    """The pipeline of a bound script; parts that are not supported are refused by name. `memory`: see `Pipeline`."""
    script.require_runnable()
    pipe = Pipeline(spark, memory=memory)
    for stream in script.streams:
        frame, payload = _read_stream(pipe.spark, stream)
        if stream.key:
            pipe.changes(stream, frame, payload)
            continue
        pipe.stream(
            stream.name,
            frame,
            stream.time,
            stream.lateness,
            timestamps=stream.timestamps,
            skew=stream.skew,
            idle_after=stream.idle_after,
            ahead=stream.ahead,
            schema=zone_columns(_mark_required(stream)),
            packed=payload or False,
        )
    for table in script.tables:
        pipe.table(table.name, _collect_table(pipe.spark, table))
    sinks = SinkFactory({sink.name.casefold(): sink.connector for sink in script.sinks}, make_sink)
    named = iter(script.queries.items())
    for statement in script.statements:
        match statement:
            case CreateView():
                name, query = next(named)
                pipe.view(name, query.text)
            case CreateStreamAs():
                name, query = next(named)
                pipe.derive(name, query.text)
            case InsertInto(sink=sink):
                name, query = next(named)
                pipe.query(name, query.text, sink=sinks.build(sink))
            case BareQuery():
                name, query = next(named)
                pipe.query(name, query.text, sink=make_sink(name, "console", {}))
    return pipe


def _read_stream(spark: SparkSession, stream: Stream) -> tuple[DataFrame, Payload | None]:
    """The DataFrame of a stream, and how its payloads are decoded if they are."""
    connector = stream.connector
    if connector is not None and connector.format.casefold() in _LAKES:
        frame = open_lake_stream(spark, connector, _list_stored(stream))
        return _select_declared(stream, frame), None
    if connector is None or connector.format.casefold() != "kafka":
        return _read_relation(spark, stream, streaming=True), None
    add_connector(spark)
    payload, options = split_options(dict(connector.options))
    plain = replace(stream, connector=replace(connector, options=tuple(options.items())))
    if payload is None:
        return _read_relation(spark, plain, streaming=True), None
    try:
        return spark.readStream.format("kafka").options(**resolve_secrets(options)).load(), payload
    except (PySparkException, Py4JJavaError) as error:
        raise _explain_source_error(stream.name, connector, error, spark.version) from error


def _mark_required(stream: Stream) -> pa.Schema:
    """The schema of a stream, with NOT NULL columns that are not nullable."""
    return pa.schema([field.with_nullable(field.name not in stream.required) for field in stream.schema])


def _collect_table(spark: SparkSession, table: Table) -> pa.Table:
    read = None if table.connector is None else _TABLE_READERS.get(table.connector.format.casefold())
    if read is not None and table.connector is not None:
        rows = read(table.connector, zone_columns(table.schema))
        check_required(table, rows)
        return rows
    rows = _read_relation(spark, table, streaming=False).toArrow().cast(zone_columns(table.schema))
    check_required(table, rows)
    return rows


def _read_postgres(connector: Connector, schema: pa.Schema) -> pa.Table:
    given = {key.casefold(): value for key, value in connector.options}
    name = given.pop("table")
    return read_rows(PostgresTable(tuple(given.items()), name), schema)


_TABLE_READERS = {"postgres": _read_postgres, **dict.fromkeys(_LAKES, read_lake_table)}


class SinkFactory:
    """Makes a separate sink for every query that writes to a named sink, so that their files do not collide."""

    def __init__(self, connectors: dict[str, Connector], make_sink: SinkMaker) -> None:
        self._connectors = connectors
        self._make_sink = make_sink

    def build(self, name: str) -> Sink:
        connector = self._connectors[name.casefold()]
        return self._make_sink(name, connector.format, dict(connector.options))


def _read_relation(spark: SparkSession, relation: Stream | Table, *, streaming: bool) -> DataFrame:
    """The DataFrame of a declaration, with the declared columns and types."""
    connector = relation.connector
    if connector is None:
        raise InternalError("NO_SOURCE", f"{relation.name} has no FROM")
    reader = spark.readStream if streaming else spark.read
    reader = reader.format(connector.format).options(**resolve_secrets(dict(connector.options)))
    declared = {field.name: format_spark_type(field.type) for field in relation.schema}
    try:
        if connector.format.casefold() in _FILE_FORMATS:
            columns = ", ".join(f"{quote_name(name)} {kind}" for name, kind in declared.items())
            return reader.schema(columns).load()
        return _select_declared(relation, reader.load())
    except (PySparkException, Py4JJavaError) as error:
        raise _explain_source_error(relation.name, connector, error, spark.version) from error


def _select_declared(relation: Stream | Table, frame: DataFrame) -> DataFrame:
    declared = {field.name: format_spark_type(field.type) for field in relation.schema}
    if isinstance(relation, Stream) and relation.key and OPERATION not in frame.columns:
        frame = frame.withColumn(OPERATION, lit(None).cast("string"))
    if isinstance(relation, Stream) and is_stamped(relation):
        del declared[relation.time]
    return frame.select(*(col(quote_name(name)).cast(kind).alias(name) for name, kind in declared.items()))


def _list_stored(stream: Stream) -> pa.Schema:
    """The columns of a stream that its source must have: not a time that Penstock gives, nor the operation."""
    given = {OPERATION} if stream.key else set()
    given |= {stream.time} if is_stamped(stream) else set()
    return pa.schema([field for field in zone_columns(stream.schema) if field.name not in given])


def _explain_source_error(name: str, connector: Connector, error: Exception, version: str) -> PenstockError:
    """Spark's error about a source, with the stream and what to do."""
    text = redact(str(error.java_exception.toString() if isinstance(error, Py4JJavaError) else error))
    if not any(sign in text for sign in _NOT_FOUND_SIGNS):
        said = text.strip().splitlines()[0]
        return DataError("SOURCE_UNREADABLE", f"{name} cannot be read: {said}", source=name)
    known = find_source_format(connector)
    if known is not None and known.package:
        message = (
            f"{name} cannot be read: {connector.format} needs the package {known.package}, of the version that fits "
            f"Spark {version}. Start Spark with it: spark.jars.packages={known.package}:VERSION"
        )
        return ResourceError("SOURCE_PACKAGE_MISSING", message, source=name, format=connector.format)
    hint = suggest_similar(connector.format, SOURCE_FORMATS)
    message = (
        f"{name} cannot be read: Spark has no format {connector.format}{hint}. Correct FROM, or start Spark with the "
        "package of the format in spark.jars.packages"
    )
    return QueryError("UNKNOWN_FORMAT", message, source=name, format=connector.format)
