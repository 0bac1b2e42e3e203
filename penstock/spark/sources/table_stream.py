"""A table that grows as a source of Spark, read by a package of Python: no jar is needed.

Spark asks for offsets in a process of its own on the driver; tasks read the files. The description of the table has
references to secrets, whose values are read in these processes, so they are no part of Spark's plans.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock.errors import DataError
from penstock.spark.python_source import SupportsTriggerAvailableNow, read_all_limit
from penstock.spark.sources.table_log import BEGIN, Position, TableLog, TableWalk, divide_files

TABLE_OPTION, LIMIT_OPTION = "table", "files"
_TASK_BYTES = 32 * 2**20
"""A task reads files of about this size, or one larger file."""


class TableSource(DataSource):
    """Spark's entry to a table. The option `table` describes it, as JSON."""

    @classmethod
    def name(cls) -> str:
        return "penstock_table"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from penstock.spark.arrow_schema import convert_schema  # noqa: PLC0415 - it needs pyspark

        limit = self.options.get(LIMIT_OPTION)
        return TableReader(self.options[TABLE_OPTION], convert_schema(schema), int(limit) if limit else None)


class TableReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the files of a table in the order of its versions, at most `limit` files in a micro-batch."""

    def __init__(self, table: str, schema: pa.Schema, limit: int | None) -> None:
        self._table = table
        self._schema = schema
        self._limit = limit
        self._last = BEGIN
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's names here and below
        return BEGIN.to_offset()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        if self._limit is None:
            return read_all_limit()
        from pyspark.sql.streaming.datasource import ReadMaxFiles  # noqa: PLC0415 - not in Spark 4.1

        return ReadMaxFiles(self._limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._log.find_last()

    def latestOffset(self, start: Mapping[str, int] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        """Spark 4.1 passes no offset: then the limit is not obeyed in the first micro-batch of a run."""
        position = self._last if start is None else Position.from_offset(start)
        last = self._log.find_last() if self._target is None else self._target
        if last < position.version:
            message = f"{self._log} has version {last}, but {position.version} was read; start with a new checkpoint"
            raise DataError("SOURCE_VERSION_LOST", message)
        self._last = self._walk.find_end(position, last, getattr(limit, "max_files", None))
        return self._last.to_offset()

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        first, last = Position.from_offset(start), Position.from_offset(end)
        self._last = last
        files = [] if first == last else self._walk.list_files(first, last)
        return [InputPartition(group) for group in divide_files(files, _TASK_BYTES)]

    def commit(self, end: Mapping[str, int]) -> None:
        del end

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        log = open_log(self._table)
        for file in partition.value:
            yield from log.read(file, self._schema).to_batches()

    @cached_property
    def _log(self) -> TableLog:
        return open_log(self._table)

    @cached_property
    def _walk(self) -> TableWalk:
        return TableWalk(self._log)


def describe_delta(path: str, options: Mapping[str, str]) -> str:
    return json.dumps({"kind": "delta", "path": path, "options": dict(options)})


def describe_iceberg(name: str, options: Sequence[tuple[str, str]]) -> str:
    return json.dumps({"kind": "iceberg", "name": name, "options": [list(each) for each in options]})


def open_log(table: str) -> TableLog:
    """The log of a described table."""
    given = json.loads(table)
    if given["kind"] == "delta":
        from penstock.spark.sources.delta_log import DeltaLog  # noqa: PLC0415 - optional packages

        return DeltaLog(given["path"], given["options"])
    from penstock.spark.iceberg import IcebergTable  # noqa: PLC0415
    from penstock.spark.sources.iceberg_log import IcebergLog  # noqa: PLC0415

    return IcebergLog(IcebergTable(given["name"], tuple((key, value) for key, value in given["options"])))
