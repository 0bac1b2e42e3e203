"""A started pipeline: the Spark streaming query, its sink, its command log and its settings, as one value."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql.streaming.query import StreamingQuery

from penstock.adapt import Action, Rules
from penstock.spark.driver.adaptive import BatchTiming
from penstock.spark.driver.batch_sink import BatchSink
from penstock.spark.driver.control import CommandLog
from penstock.spark.kafka import NO_KAFKA, KafkaUse


@dataclass(frozen=True)
class AdaptSettings:
    """What a pipeline may decide by itself, and when."""

    rules: Rules
    actions: Collection[Action]
    timing: BatchTiming


@dataclass(frozen=True)
class StartedPipeline:
    """A Spark streaming query with its sink, its command log and its settings."""

    query: StreamingQuery
    batch_sink: BatchSink
    command_log: CommandLog
    checkpoint: str
    adapt_settings: AdaptSettings | None
    notes: tuple[str, ...] = ()
    """What the start took over from the checkpoint with changes, in sentences."""
    kafka: KafkaUse = NO_KAFKA
    """The brokers and topics of Kafka that its streams are read from."""

    @property
    def cells(self) -> int:
        return self.batch_sink.layout.spec.cells
