"""Generated streams: a Python data source of Spark that computes its rows and returns them as Arrow blobs.

Law: the rows of a chunk are a function of its number alone, so a repeated micro-batch reads the same rows, on any
machine. Offsets count chunks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock.state import encode_table

MakeChunk = Callable[[int], pa.Table]
"""Returns the rows of a chunk, by its number."""
BLOB_SCHEMA = "data binary"
"""The columns of a packed DataFrame: Arrow IPC streams, each of rows of one stream."""


def generate_stream(spark: SparkSession, make_chunk: MakeChunk, chunks: int, *, seconds: float = 0.0) -> DataFrame:
    """A streaming DataFrame of blobs, for `Pipeline.stream(..., packed=True)`.

    A chunk becomes available every `seconds`; with 0, one chunk for every micro-batch, without a delay.
    """

    class GeneratedSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return source

        def schema(self) -> str:
            return BLOB_SCHEMA

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
            return ChunkReader(make_chunk, chunks, seconds)

    source = f"penstock_{uuid4().hex}"
    spark.dataSource.register(GeneratedSource)
    return spark.readStream.format(source).load()


class ChunkReader(DataSourceStreamReader):
    """Reads the chunks that are available."""

    def __init__(self, make_chunk: MakeChunk, chunks: int, seconds: float) -> None:
        self._make_chunk = make_chunk
        self._chunks = chunks
        self._seconds = seconds
        self._started: tuple[float, int] | None = None
        self._offset = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's names here and below
        return {"stretch": 0}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        from pyspark.sql.streaming.datasource import ReadMaxFiles  # noqa: PLC0415 - not in Spark 4.1, which does not call this

        return ReadMaxFiles(1)

    def latestOffset(  # noqa: N802
        self,
        start: Mapping[str, int] | None = None,
        limit: Any = None,
    ) -> dict[str, int]:
        """Spark 4.1 does not pass the present offset; then the last result is used."""
        at = self._offset if start is None else start["stretch"]
        if self._started is None:
            self._started = time.monotonic(), at
        if self._seconds:
            begun, first = self._started
            end = first + 1 + int((time.monotonic() - begun) / self._seconds)
        else:
            end = self._chunks if type(limit).__name__ == "ReadAllAvailable" else at + 1
        self._offset = max(at, min(end, self._chunks))
        return {"stretch": self._offset}

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(start["stretch"], end["stretch"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        table = self._make_chunk(partition.value)
        yield pa.RecordBatch.from_arrays([pa.array([encode_table(table)], pa.binary())], names=["data"])
