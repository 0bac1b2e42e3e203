"""Topics that are written in transactions, and producers that end or whose broker restarts."""

from __future__ import annotations

import json
import random
import uuid
from typing import Any

import confluent_kafka
import pyarrow as pa
from services import require_service, restart_service

import penstock as ps

ROWS = pa.schema([("k", pa.int64()), ("v", pa.string()), ("_ts", pa.timestamp("us", "UTC"))])


class Topic:
    def __init__(self) -> None:
        self.entry = require_service("kafka")
        self.name = f"transactions-{uuid.uuid4().hex[:8]}"

    def sink(self, **options: Any) -> Any:
        given = {"kafka_bootstrap_servers": f"127.0.0.1:{self.entry['port']}", **options}
        sink = ps.sinks.kafka(self.name, key="k", transactional=True, **given)
        sink.open("run", "q", ROWS)
        return sink

    def read(self, isolation: str = "read_committed") -> list[Any]:
        """All records that a new reader gets, by partition and in order."""
        settings = {
            "bootstrap.servers": f"127.0.0.1:{self.entry['port']}", "group.id": uuid.uuid4().hex,
            "isolation.level": isolation, "auto.offset.reset": "earliest", "enable.partition.eof": "true",
        }  # fmt: skip
        reader = confluent_kafka.Consumer(settings)
        partitions = reader.list_topics(self.name, 30).topics[self.name].partitions
        reader.assign([confluent_kafka.TopicPartition(self.name, each, 0) for each in partitions])
        found, ended = [], set[int]()
        while len(ended) < len(partitions):
            message = reader.poll(30)
            assert message is not None
            if message.error():
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                ended.add(message.partition())
            else:
                found.append(message)
        reader.close()
        return found

    def read_rows(self, isolation: str = "read_committed") -> list[tuple[Any, ...]]:
        return sorted(tuple(json.loads(each.value()).values()) for each in self.read(isolation))


class EndedError(Exception):
    """The process has ended."""


def break_producer(rng: random.Random, sink: Any) -> None:
    """The process ends at a point within a micro-batch: what it did not do is left out, and nothing is tidied up."""
    producer, point = sink._producer, rng.choice(["produce", "send_offsets_to_transaction", "commit", "committed"])

    class Broken:
        def __getattr__(self, name: str) -> Any:
            return getattr(producer, name)

        def produce(self, *given: Any, **options: Any) -> None:
            producer.produce(*given, **options)
            producer.flush(30)
            if point == "produce":
                raise EndedError

        def send_offsets_to_transaction(self, *given: Any) -> None:
            producer.send_offsets_to_transaction(*given)
            if point == "send_offsets_to_transaction":
                raise EndedError

        def commit_transaction(self, *given: Any) -> None:
            if point == "committed":
                producer.commit_transaction(*given)
            raise EndedError

    sink._producer = Broken()


class RestartingProducer:
    """Restarts the broker before one of its calls."""

    def __init__(self, producer: Any, point: str) -> None:
        self._producer, self._point = producer, point

    def __getattr__(self, name: str) -> Any:
        if name == self._point:
            self._point = ""
            restart_service("kafka")
        return getattr(self._producer, name)


def restart_broker_before(sink: Any, point: str) -> None:
    """The broker restarts before a call of the sink's producer."""
    sink._producer = RestartingProducer(sink._producer, point)
