"""Kafka: records of Spark's own connector as a stream, and the jars of the connector.

`penstock doctor --fetch` copies the jars from Maven Central into a folder for the installed Spark. They are added to a
running session when a source or sink of Kafka is opened, unless the session has the connector already
(spark.jars.packages).
Not every release of Spark has all of these jars on Maven Central; then the newest earlier one is taken, and `doctor`
says so.
"""

from __future__ import annotations

import hashlib
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import DataError, QueryError, ResourceError
from penstock.spark.payloads import RECORD_COLUMNS, Payload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CONNECTOR, _TOKENS = "spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13"
_SPARK_JARS = (_CONNECTOR, _TOKENS)
_OTHER_JARS = ("org.apache.kafka:kafka-clients:3.9.1", "org.apache.commons:commons-pool2:2.12.1")
_RELEASES = ("4.3.0", "4.2.1", "4.2.0", "4.1.4", "4.1.3", "4.1.2", "4.1.1", "4.1.0", "4.0.0")
_PAYLOAD_OPTIONS = ("payload", "schema", "registry", "delimiter")
_PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_DRIVER_LOADER = "org.apache.spark.util.MutableURLClassLoader"
_FETCH_SECONDS = 60
_SERVERS, _SUBSCRIPTIONS = "kafka.bootstrap.servers", ("subscribe", "subscribePattern", "assign")
_CENTRAL, _REPOSITORY = "https://repo.maven.apache.org/maven2", "PENSTOCK_MAVEN"
"""Maven Central, and the environment variable that names another repository."""


# ── the connector ────────────────────────────────────────────────────────────────────────────────────────────────────


def get_jar_folder(version: str, environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of fetched jars for a version of Spark: PENSTOCK_JARS, by default below the user's cache folder."""
    cache = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(environment.get("PENSTOCK_JARS") or Path(cache, "penstock", "jars")) / f"spark-{version}"


def list_candidates(version: str) -> list[str]:
    """The versions of Spark's own jars to try for a Spark, the best first: its own, then earlier ones."""
    own = tuple(map(int, re.findall(r"\d+", version)[:3]))
    earlier = [each for each in _RELEASES if tuple(map(int, each.split("."))) < own]
    return [version, *earlier]


def fetch_jars(version: str, folder: Path | None = None) -> list[str]:
    """Copy the jars of the Kafka connector for a Spark from a Maven repository. Returns their coordinates."""
    folder = folder or get_jar_folder(version)
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for name in _SPARK_JARS:
        tried = (f"org.apache.spark:{name}:{each}" for each in list_candidates(version))
        coordinates = next((each for each in tried if _copy_jar(each, folder)), None)
        if coordinates is None:
            raise ResourceError("JAR_NOT_FOUND", f"the repository has no {name} for Spark {version} or an earlier one")
        found.append(coordinates)
    for coordinates in _OTHER_JARS:
        if not _copy_jar(coordinates, folder):
            raise ResourceError("JAR_NOT_FOUND", f"the repository has no {coordinates}")
        found.append(coordinates)
    return found


def _copy_jar(coordinates: str, folder: Path) -> bool:
    """Copy a jar and compare its digest; False if the repository does not have it."""
    group, name, version = coordinates.split(":")
    target = folder / f"{name}-{version}.jar"
    if target.exists():
        return True
    place = f"{os.environ.get(_REPOSITORY, _CENTRAL).rstrip('/')}/{group.replace('.', '/')}/{name}/{version}"
    address = f"{place}/{target.name}"
    try:
        content, digest = (_download(address + suffix) for suffix in ("", ".sha1"))
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return False
        raise ResourceError("JAR_NOT_FOUND", f"{address} cannot be copied: {error}; try again") from error
    except OSError as error:
        message = f"{address} cannot be reached: {error}; set {_REPOSITORY} to the address of a Maven repository"
        raise ResourceError("JAR_NOT_FOUND", message) from error
    if hashlib.sha1(content).hexdigest() != digest.decode().split()[0]:
        raise ResourceError("JAR_NOT_FOUND", f"{address} has another digest than {address}.sha1; try again")
    part = target.with_suffix(f".{os.getpid()}")
    part.write_bytes(content)
    part.replace(target)
    return True


def _download(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=_FETCH_SECONDS) as answer:
        return bytes(answer.read())


def list_fetched_jars(version: str) -> list[Path]:
    return sorted(get_jar_folder(version).glob("*.jar"))


@dataclass(frozen=True)
class KafkaUse:
    """What the streams of a run read from Kafka: the addresses of brokers, as host:port, and the topics."""

    brokers: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()


NO_KAFKA = KafkaUse()


def find_kafka_use(frames: Iterable[DataFrame]) -> KafkaUse:
    """The brokers and topics that streaming DataFrames read."""
    brokers, topics = set[str](), set[str]()
    for frame in frames:
        leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
        for leaf in (leaves.apply(number) for number in range(leaves.length())):
            if leaf.getClass().getSimpleName() == "StreamingRelationV2":
                options = leaf.extraOptions()
                brokers |= set(filter(None, (options.get(_SERVERS) or "").split(",")))
                topics |= {
                    found for name in _SUBSCRIPTIONS if options.containsKey(_SERVERS) and (found := options.get(name))
                }
    return KafkaUse(frozenset(brokers), frozenset(topics))


def describe_connector(version: str) -> tuple[str, str]:
    """What `penstock doctor` says of the connector: what was fetched, and what to do."""
    jars = list_fetched_jars(version)
    if not any(jar.name.startswith(_CONNECTOR) for jar in jars):
        remedy = f"penstock doctor --fetch, or spark.jars.packages=org.apache.spark:{_CONNECTOR}:{version}"
        return "not fetched", f"for Kafka: {remedy}"
    names = {name: jar.stem.removeprefix(f"{name}-") for jar in jars for name in _SPARK_JARS if name in jar.name}
    told = ", ".join(f"{name} {own}" for name, own in names.items())
    other = any(own != version for own in names.values())
    return told, f"Maven has no release for Spark {version}: these are the newest earlier ones" if other else ""


def add_connector(spark: SparkSession) -> None:
    """Add the fetched jars to a session that does not have the connector."""
    jvm = spark.sparkContext._jvm
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_PROVIDER)  # type: ignore[union-attr]
    except Exception:
        jars = list_fetched_jars(spark.version)
        if not jars:
            message = (
                f"Kafka needs Spark's connector. Copy it with `penstock doctor --fetch`, or start Spark with "
                f"spark.jars.packages=org.apache.spark:{_CONNECTOR}:VERSION, of the version that fits Spark "
                f"{spark.version}"
            )
            raise ResourceError("SOURCE_PACKAGE_MISSING", message, format="kafka") from None
        driver = _find_driver_loader(jvm)
        loader = spark._jsparkSession.sessionState().resourceLoader()
        for jar in jars:
            if driver is not None:
                driver.addURL(jvm.java.io.File(str(jar)).toURI().toURL())  # type: ignore[union-attr]
            loader.addJar(str(jar))  # what ADD JAR does, without a path in a text


def _find_driver_loader(jvm: Any) -> Any:
    """Spark's own class loader, above that of the session. Without the jars there, errors of tasks cannot be read."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    while loader is not None and loader.getClass().getName() != _DRIVER_LOADER:
        loader = loader.getParent()
    return loader


# ── records ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def split_options(options: Mapping[str, str]) -> tuple[Payload | None, dict[str, str]]:
    """The payload that options of FROM kafka declare, if they do, and the options of Spark's connector."""
    given = {key.casefold(): value for key, value in options.items()}
    parts = {f"{part}column": part for part in RECORD_COLUMNS[1:]}
    own = {*_PAYLOAD_OPTIONS, *parts}
    rest = {key: value for key, value in options.items() if key.casefold() not in own}
    if "payload" not in given:
        if stray := [key for key in given if key in own]:
            raise QueryError("PAYLOAD_OPTIONS", f"{', '.join(stray)} needs payload: json, csv, avro or arrow")
        return None, rest
    columns = tuple((value, parts[key]) for key, value in given.items() if key in parts)
    more = {key: given[key] for key in _PAYLOAD_OPTIONS[1:] if key in given}
    if "headers" in {part for _, part in columns}:
        rest["includeHeaders"] = "true"
    return Payload(given["payload"].casefold(), columns, **more), rest


def select_records(name: str, df: DataFrame, schema: pa.Schema | None) -> DataFrame:
    """The columns of records in the order of RECORD_COLUMNS; headers are JSON text."""
    if schema is None:
        raise DataError("NOT_PACKED", f"{name}: the columns of a payload are not known; give a schema")
    missing = [each for each in RECORD_COLUMNS[:-1] if each not in df.columns]
    if missing:
        raise DataError(
            "NOT_PACKED", f"{name} has no column {', '.join(missing)}; a payload is read from Kafka records"
        )
    headers = "cast(null as string)"
    if "headers" in df.columns:
        headers = "to_json(map_from_entries(transform(headers, h -> struct(h.key, cast(h.value as string)))))"
    return df.selectExpr("cast(value as binary) as value", "cast(key as binary) as key", "topic", "partition", "offset",
                         "timestamp", f"{headers} as headers")  # fmt: skip
