"""Topics of Kafka, written by Spark's own connector from the executors.

Law: at least once. Every result is written. A micro-batch that is repeated after a failure is written again, so a topic
may have records twice. Each record has the headers `penstock-run`, `penstock-batch`, `penstock-cell` and
`penstock-sequence`, which are the same in the repetition: a reader that drops records whose four headers it has seen
has every result exactly once. The sequence is the place of a row among the rows of its cell and micro-batch, sorted by
time and then by all columns: it does not depend on the order in which a cell finds them. Records are written in this
order, a row that leaves before those that enter, so the last record of a key in a partition is the newest one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.cql import Connector, has_open_password, redact, resolve_secrets
from penstock.errors import DataError, QueryError
from penstock.spark.sinks.keys import check_key_columns
from penstock.spark.sinks.protocol import CELL_COLUMN, SEQUENCE_COLUMN, FrameSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timeZone": "UTC"}
"""Without this Spark writes milliseconds, in the zone of the session."""


class KafkaSink(FrameSink):
    """Appends JSON objects to a topic."""

    numbered = True

    def __init__(self, topic: str, options: Mapping[str, str], key: Sequence[str] = ()) -> None:
        if "kafka.bootstrap.servers" not in options:
            raise QueryError("SINK_OPTIONS", "a topic needs the option kafka.bootstrap.servers, such as 'host:9092'")
        self._topic = topic
        self._options = dict(options)
        self._key = tuple(key)
        self._run = ""

    def __str__(self) -> str:
        return f"topic {self._topic} of Kafka at {self._options['kafka.bootstrap.servers']}"

    @property
    def connector(self) -> Connector | None:
        """None if a password is written out: a checkpoint must not have it."""
        if has_open_password(self._options):
            return None
        own = {"topic": self._topic, "key": ", ".join(self._key)}
        return Connector("kafka", tuple((self._options | own).items()))

    def open(self, run: str, name: str, schema: pa.Schema) -> None:
        self._run = run
        check_key_columns(name, schema, self._key)

    def write(self, frame: DataFrame, batch: int) -> None:
        from pyspark.sql.functions import array, col, concat_ws, lit, struct, to_json  # noqa: PLC0415

        from penstock.expr import quote_name  # noqa: PLC0415
        from penstock.spark.kafka import add_connector  # noqa: PLC0415 - it needs pyspark

        add_connector(frame.sparkSession)
        names = [name for name in frame.columns if name not in (CELL_COLUMN, SEQUENCE_COLUMN)]
        marks = {"run": lit(self._run), "batch": lit(batch), "cell": col(CELL_COLUMN), "sequence": col(SEQUENCE_COLUMN)}
        headers = array(*(
            struct(lit(f"penstock-{mark}").alias("key"), value.cast("string").cast("binary").alias("value"))
            for mark, value in marks.items()
        ))  # fmt: skip
        value = to_json(struct(*(col(quote_name(name)) for name in names)), {"ignoreNullFields": "false", **_TIMES})
        key = concat_ws("\x1f", *(col(quote_name(name)).cast("string") for name in self._key))
        records = frame.select(
            (key if self._key else lit(None).cast("string")).alias("key"),
            value.alias("value"),
            headers.alias("headers"),
            lit(self._topic).alias("topic"),
        )
        writer = records.write.format("kafka").options(**resolve_secrets(self._options), includeHeaders="true")
        try:
            writer.save()
        except Exception as error:
            said = next((line for line in redact(str(error)).splitlines() if "Exception" in line), "the write failed")
            raise DataError("KAFKA_UNREACHABLE", f"{self} cannot be written: {said.strip()[:300]}") from None
