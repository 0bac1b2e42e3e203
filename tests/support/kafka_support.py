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
        self.guarded_servers = f"127.0.0.1:{entry['guarded']}"
        self.password = entry["password"]
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

    def read_values(self, topic: str) -> list[bytes]:
        return [bytes(row.value) for row in self._load(topic).select("value").collect()]

    def delete_records(self, topic: str, before: int) -> None:
        """Remove the first records of the partition 0, as the retention of a broker does."""
        jvm, gateway = self.spark._jvm, self.spark.sparkContext._gateway
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()

        def call(name: str, method: str, *given: Any) -> Any:
            kind = jvm.java.lang.Class.forName(f"org.apache.kafka.{name}", True, loader)
            values = gateway.new_array(jvm.java.lang.Object, len(given))
            for at, value in enumerate(given):
                values[at] = value
            if not method:
                return kind.getConstructors()[0].newInstance(values)
            found = [each for each in kind.getMethods() if each.getName() == method]
            found = [each for each in found if each.getParameterCount() == len(given)]
            return next(each for each in found if "Map" not in each.toString()).invoke(None, values)

        settings = jvm.java.util.Properties()
        settings.setProperty("bootstrap.servers", self.servers)
        partition = call("common.TopicPartition", "", self.name(topic), 0)
        place = call("clients.admin.RecordsToDelete", "beforeOffset", jvm.java.lang.Long(str(before)))
        admin = call("clients.admin.Admin", "create", settings)
        try:
            admin.deleteRecords(jvm.java.util.Collections.singletonMap(partition, place)).all().get()
        finally:
            admin.close()

    def write_jaas(self, password: str) -> str:
        """The option kafka.sasl.jaas.config for the guarded port."""
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return f'{module} required username="penstock" password="{password}";'

    def count(self, topic: str) -> int:
        return int(self._load(topic).count())

    def read_distinct(self, topic: str, columns: str) -> pa.Table:
        """The columns of the objects of a topic, without records whose headers an earlier one has."""
        parsed = self._load(topic).selectExpr(f"from_json(cast(value as string), '{columns}') as row", "headers")
        return parsed.dropDuplicates(["headers"]).select("row.*").toArrow()

    def read_committed(self, topic: str, columns: str) -> pa.Table:
        """The columns of the objects of a topic, as readers of committed records have them."""
        records = self._load(topic, **{"kafka.isolation.level": "read_committed"})
        return records.selectExpr(f"from_json(cast(value as string), '{columns}') as row").select("row.*").toArrow()

    def _load(self, topic: str, **options: str) -> Any:
        given = {"subscribe": self.name(topic), "includeHeaders": "true", **options}
        return self._set(self.spark.read).options(**given).load()

    def _set(self, builder: Any) -> Any:
        return builder.format("kafka").option("kafka.bootstrap.servers", self.servers)
