"""A pipeline from a CQL script: CREATE STREAM, CREATE TABLE and CREATE SINK become Spark sources, tables and sinks."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from penstock.cql import BareQuery, Connector, CreateStreamAs, InsertInto, Script, Stream, Table, zone_columns
from penstock.errors import DataError, QueryError
from penstock.expr import format_spark_type, quote_name
from penstock.spark.heartbeat import is_stamped
from penstock.spark.pipeline import Pipeline
from penstock.spark.sinks import Sink, from_connector

SinkMaker = Callable[[str, str, dict[str, str]], Sink]
"""Makes the sink of a name, a format and options."""
_FILE_FORMATS = ("parquet", "csv", "json", "orc", "text", "avro")


def build_pipeline(
    script: Script, spark: SparkSession | None = None, make_sink: SinkMaker = from_connector
) -> Pipeline:
    """The pipeline of a bound script; parts that are not supported are refused by name."""
    _check_has_query(script)
    pipe = Pipeline(spark)
    for stream in script.streams:
        frame = _read_relation(pipe.spark, stream, streaming=True)
        pipe.stream(
            stream.name,
            frame,
            stream.time,
            stream.lateness,
            timestamps=stream.timestamps,
            skew=stream.skew,
            idle_after=stream.idle_after,
            schema=zone_columns(stream.schema),
        )
    for table in script.tables:
        rows = _read_relation(pipe.spark, table, streaming=False).toArrow()
        pipe.table(table.name, rows.cast(zone_columns(table.schema)))
    sinks = SinkFactory({sink.name.casefold(): sink.connector for sink in script.sinks}, make_sink)
    named = iter(script.queries.items())
    for statement in script.statements:
        match statement:
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


def _check_has_query(script: Script) -> None:
    if not any(isinstance(statement, InsertInto | BareQuery) for statement in script.statements):
        raise QueryError("NO_QUERY", "the script has no query to run; it only declares")


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
        raise QueryError("NO_SOURCE", f"{relation.name} has no FROM: say where it is read, or use pipe.stream(...)")
    reader = spark.readStream if streaming else spark.read
    reader = reader.format(connector.format).options(**dict(connector.options))
    declared = {field.name: format_spark_type(field.type) for field in relation.schema}
    try:
        if connector.format.casefold() in _FILE_FORMATS:
            columns = ", ".join(f"{quote_name(name)} {kind}" for name, kind in declared.items())
            return reader.schema(columns).load()
        frame = reader.load()
        if isinstance(relation, Stream) and is_stamped(relation):
            del declared[relation.time]
        return frame.select(*(col(quote_name(name)).cast(kind).alias(name) for name, kind in declared.items()))
    except PySparkException as error:
        said = (error.getMessage() or str(error)).strip().splitlines()[0]
        raise DataError("SOURCE_UNREADABLE", f"{relation.name} cannot be read: {said}", source=relation.name) from error
