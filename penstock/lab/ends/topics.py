"""Topics of Kafka with the rows of a `JoinWorkload`, and where the broker of a lab is."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from penstock.lab.join_workloads import JoinWorkload

BROKER_VARIABLE = "PENSTOCK_KAFKA"
_TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX"}
_STATE = Path("build", "services", "state.json")
"""Where `make services` writes its ports."""


def find_broker(environment: Mapping[str, str] = os.environ, state: Path = _STATE) -> str | None:
    """The address of the broker: PENSTOCK_KAFKA, or that of `make services` in this folder."""
    if address := environment.get(BROKER_VARIABLE):
        return address
    try:
        return f"127.0.0.1:{json.loads(state.read_text())['kafka']['port']}"
    except (OSError, ValueError, KeyError):
        return None


@dataclass(frozen=True)
class TopicWorkload(JoinWorkload):
    """A workload whose streams are topics: a JSON object for each row, in one partition, in the order of time."""

    servers: str = ""
    prefix: str = ""

    @classmethod
    def of(cls, workload: JoinWorkload, servers: str) -> TopicWorkload:
        given: dict[str, Any] = {each.name: getattr(workload, each.name) for each in fields(workload)}
        return cls(**given, servers=servers, prefix=f"penstock-lab-{uuid4().hex[:8]}-")

    def send(self, spark: SparkSession) -> None:
        """Write the topics."""
        for name in self.names:
            for batch in range(self.batches):
                frame = spark.createDataFrame(self.generate_table(name, batch)).coalesce(1)
                value = (
                    F.to_json(F.struct(*(F.col(each) for each in frame.columns)), _TIMES).cast("binary").alias("value")
                )
                records = frame.select(value, F.lit(0).alias("partition"), F.lit(self.prefix + name).alias("topic"))
                records.write.format("kafka").option("kafka.bootstrap.servers", self.servers).save()

    def read_records(self, spark: SparkSession, name: str) -> DataFrame:
        """The records of a stream, as many in a micro-batch as a file has rows."""
        options = {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self.prefix + name,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(self.rows // self.batches),
        }
        return spark.readStream.format("kafka").options(**options).load()

    def read(self, spark: SparkSession, folder: Path, name: str) -> DataFrame:  # noqa: ARG002 - see the base class
        """The rows of a stream, parsed by Spark."""
        keys = "".join(f"{column} bigint, " for column in self.columns[name])
        row = F.from_json(F.col("value").cast("string"), f"ts timestamp, {keys}v bigint", _TIMES).alias("row")
        return self.read_records(spark, name).select(row).select("row.*")

    def write(self, folder: Path) -> None:
        """Nothing: the topics have the rows."""
