"""Kafka for tests: topics of its own for each test, and the jars of Spark's connector."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from services import SCRIPT, require_service

from penstock.errors import ResourceError
from penstock.spark.kafka import add_connector, fetch_jars


class Broker:
    """The test broker. Names of topics are new with each."""

    def __init__(self, spark: Any) -> None:
        entry = require_service("kafka")
        self.servers = f"127.0.0.1:{entry['port']}"
        self.spark = spark
        self._number = uuid.uuid4().hex[:8]
        os.environ.setdefault("PENSTOCK_JARS", str(SCRIPT.FOLDER / "jars"))
        try:
            fetch_jars(spark.version)
        except ResourceError as error:
            pytest.skip(f"the jars of Kafka's connector cannot be copied: {error}")
        add_connector(spark)

    def name(self, topic: str) -> str:
        return f"{topic}-{self._number}"

    def send(self, topic: str, payloads: Iterable[bytes | str | None]) -> None:
        rows = [each.encode() if isinstance(each, str) else each for each in payloads]
        # one partition: records of a topic are read in the order in which they were sent
        frame = self.spark.createDataFrame(pa.table({"value": pa.array(rows, pa.binary())})).coalesce(1)
        self._set(frame.selectExpr("value", "0 as partition").write).option("topic", self.name(topic)).save()

    def send_rows(self, topic: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self.send(topic, (json.dumps(row) for row in rows))

    def read(self, topic: str) -> list[tuple[dict[str, Any], dict[str, str]]]:
        """The objects of a topic, and their headers."""
        found = self._load(topic).selectExpr("cast(value as string) as value", "headers").collect()
        return [(json.loads(row.value), {each.key: each.value.decode() for each in row.headers or ()}) for row in found]

    def count(self, topic: str) -> int:
        return int(self._load(topic).count())

    def read_distinct(self, topic: str, columns: str) -> pa.Table:
        """The columns of the objects of a topic, without records whose headers an earlier one has."""
        parsed = self._load(topic).selectExpr(f"from_json(cast(value as string), '{columns}') as row", "headers")
        return parsed.dropDuplicates(["headers"]).select("row.*").toArrow()

    def _load(self, topic: str) -> Any:
        return self._set(self.spark.read).options(subscribe=self.name(topic), includeHeaders="true").load()

    def _set(self, builder: Any) -> Any:
        return builder.format("kafka").option("kafka.bootstrap.servers", self.servers)
