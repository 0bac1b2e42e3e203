"""The source formats that Spark can read: their required options, their columns and the packages they need.

`check` knows them without Spark. A format that is not listed may be installed in the user's Spark, so it is a warning
and not an error; a missing option of a listed format is an error.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.cql.catalog import Connector


@dataclass(frozen=True)
class SourceFormat:
    """What is known of a format."""

    options: tuple[tuple[str, ...], ...] = ()
    """For each required option the names that it can have."""
    columns: tuple[str, ...] = ()
    """The columns that the source gives; empty if the declaration decides."""
    package: str = ""
    """The package that Spark does not contain; empty if it does."""
    streams: bool = True
    """Whether it can be read as a stream."""


_FILES = SourceFormat((("path",),))
_KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

SOURCE_FORMATS: dict[str, SourceFormat] = {
    **dict.fromkeys(("parquet", "csv", "json", "orc", "xml"), _FILES),
    "text": SourceFormat((("path",),), ("value",)),
    "avro": SourceFormat((("path",),), package="org.apache.spark:spark-avro_2.13"),
    "delta": _FILES,
    "iceberg": SourceFormat((("table",),)),
    "kafka": SourceFormat(
        (("kafka.bootstrap.servers",), ("subscribe", "subscribePattern", "assign")),
        _KAFKA_COLUMNS,
        "org.apache.spark:spark-sql-kafka-0-10_2.13",
    ),
    "rate": SourceFormat((), ("timestamp", "value")),
    "rate-micro-batch": SourceFormat((("rowsPerBatch",),), ("timestamp", "value")),
    "socket": SourceFormat((("host",), ("port",)), ("value", "timestamp")),
    "postgres": SourceFormat((("table",),), streams=False),
    "jdbc": SourceFormat((("url",), ("dbtable", "query")), streams=False),
}


def find_source_format(connector: Connector) -> SourceFormat | None:
    """The known format of a connector, case-insensitive."""
    return SOURCE_FORMATS.get(connector.format.casefold())


def list_missing_options(connector: Connector) -> list[str]:
    """The required options that a connector of a known format lacks; alternatives are joined by "or"."""
    known = find_source_format(connector)
    given = {key.casefold() for key, _ in connector.options}
    required = () if known is None else known.options
    return [" or ".join(names) for names in required if not any(name.casefold() in given for name in names)]


def find_rate(connector: Connector | None) -> float | None:
    """The rows per second that a connector declares; None if that is not known."""
    if connector is None or connector.format.casefold() != "rate":
        return None
    given = {key.casefold(): value for key, value in connector.options}
    try:
        return float(given.get("rowspersecond", "1"))
    except ValueError:
        return None
