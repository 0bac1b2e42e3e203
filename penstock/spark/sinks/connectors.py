"""The sinks of CREATE SINK statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from penstock.errors import QueryError
from penstock.spark.sinks.factories import (
    console,
    csv,
    delta,
    iceberg,
    json,
    kafka,
    memory,
    orc,
    parquet,
    postgres,
    spark,
)
from penstock.spark.sinks.postgres import RETRY_SECONDS
from penstock.spark.sinks.protocol import DRIVER_LIMIT, Sink

_FILE_SINKS: Mapping[str, Callable[..., Sink]] = {"parquet": parquet, "orc": orc, "csv": csv, "json": json}
_DRIVER_SINKS: Mapping[str, Callable[..., Sink]] = {"console": console, "memory": memory}
_SPARK_FORMATS = ("jdbc", "avro")
_KAFKA_OPTIONS = ("topic", "key", "transactional", "retry", "limit")


def from_connector(name: str, format_: str, options: dict[str, str]) -> Sink:
    """The sink of CREATE SINK … TO format OPTIONS (…)."""
    kind = format_.casefold()
    if kind in _SPARK_FORMATS:
        return spark(kind, **options)
    if kind == "postgres":
        return _build_postgres(name, options)
    if kind == "delta":
        return _build_delta(name, options)
    if kind == "iceberg":
        return _build_iceberg(name, options)
    if kind == "kafka":
        return _build_kafka(name, options)
    if kind not in _FILE_SINKS and kind not in _DRIVER_SINKS:
        raise QueryError("UNKNOWN_SINK_FORMAT", f"sink {name}: no format {format_}; known are {_list_known()}")
    given = {key.casefold(): value for key, value in options.items()}
    allowed = _list_options(kind)
    unknown = set(given) - {option.casefold() for option in allowed}
    if unknown or ("path" in allowed and "path" not in given):
        raise QueryError("SINK_OPTIONS", f"sink {name}: {kind} takes the options {', '.join(allowed)}")
    if kind in _DRIVER_SINKS:
        return _DRIVER_SINKS[kind](**given)
    header = {"header": given["header"].casefold() == "true"} if "header" in given else {}
    size = {"file_size": given["filesize"]} if "filesize" in given else {}
    return _FILE_SINKS[kind](given["path"], mode=given.get("mode", "error").casefold(), **header, **size)


def _build_delta(name: str, options: dict[str, str]) -> Sink:
    own = {key.casefold(): value for key, value in options.items() if key.casefold() in ("path", "key")}
    rest = {key: value for key, value in options.items() if key.casefold() not in own}
    if "path" not in own:
        raise QueryError("SINK_OPTIONS", f"sink {name}: delta takes the options path, key, and those of its storage")
    return delta(own["path"], key=own.get("key", ""), **rest)


def _build_iceberg(name: str, options: dict[str, str]) -> Sink:
    given = {key.casefold(): value for key, value in options.items()}
    if "table" not in given:
        message = (
            f"sink {name}: iceberg takes the options table, key, and those of pyiceberg, such as type, uri, warehouse"
        )
        raise QueryError("SINK_OPTIONS", f"{message}; table is missing")
    return iceberg(given.pop("table"), key=given.pop("key", ""), **given)


def _build_kafka(name: str, options: dict[str, str]) -> Sink:
    own = {key.casefold(): value for key, value in options.items() if key.casefold() in _KAFKA_OPTIONS}
    rest = {key: value for key, value in options.items() if key.casefold() not in own}
    transactional = own.get("transactional", "false").casefold() == "true"
    stray = [] if transactional else [key for key in ("retry", "limit") if key in own]
    if "topic" not in own or "kafka.bootstrap.servers" not in rest or stray:
        message = (
            f"sink {name}: kafka takes the options kafka.bootstrap.servers, topic, key, transactional, with it retry "
            "and limit, and those of Spark's connector"
        )
        raise QueryError("SINK_OPTIONS", message)
    given = cast(dict[str, Any], rest)
    if not transactional:
        return kafka(own["topic"], key=own.get("key", ""), **given)
    retry = _parse_seconds(name, own.get("retry", str(RETRY_SECONDS)))
    limit = own.get("limit", DRIVER_LIMIT)
    return kafka(own["topic"], key=own.get("key", ""), transactional=True, retry=retry, limit=limit, **given)


def _build_postgres(name: str, options: dict[str, str]) -> Sink:
    given = {key.casefold(): value for key, value in options.items()}
    if "table" not in given:
        message = (
            f"sink {name}: postgres takes the options table, key, create, retry, and those of libpq, such as host, "
            "port, dbname, user, password and sslmode; table is missing"
        )
        raise QueryError("SINK_OPTIONS", message)
    create = given.pop("create", "false").casefold() == "true"
    retry = _parse_seconds(name, given.pop("retry", str(RETRY_SECONDS)))
    return postgres(given.pop("table"), key=given.pop("key", ""), create=create, retry=retry, **given)


def _parse_seconds(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise QueryError("SINK_OPTIONS", f"sink {name}: retry is a number of seconds, not {text!r}") from None


def _list_options(kind: str) -> tuple[str, ...]:
    if kind in _DRIVER_SINKS:
        return ("limit",)
    return ("path", "mode", "header", "fileSize") if kind == "csv" else ("path", "mode", "fileSize")


def _list_known() -> str:
    return ", ".join([*_FILE_SINKS, "delta", "iceberg", "postgres", "kafka", *_SPARK_FORMATS, *_DRIVER_SINKS])
