"""The control stream as a source of Spark: its offset is the number of the last command, and a commit removes commands.

Commands wait in a local folder of the driver, the spool, which `CommandLog` fills. Spark asks for offsets in a process
of its own on the driver. It gets the commands of a micro-batch there and sends them to tasks with the plan, so tasks
read no storage. Law: commands are numbered without gaps, and a micro-batch has the commands between its two offsets; a
repeated one has the same commands.

This module imports little: Spark loads it at every start of a run in a new process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock.errors import InternalError
from penstock.spark.python_source import SupportsTriggerAvailableNow, read_all_limit, register_source

_NAME = "penstock_control"
_OFFSET = "command"
Offset = Mapping[str, int]


def open_control_stream(spark: SparkSession, spool: Path, keys: Sequence[int]) -> DataFrame:
    """The commands of a spool as packed rows (see `worker.pack`), each for every cell. `keys`: those of the cells."""
    from penstock.spark.worker.pack import PACKED_DDL  # noqa: PLC0415 - see above

    name = register_source(spark, ControlSource)
    cells = ",".join(map(str, keys))
    return spark.readStream.format(name).schema(PACKED_DDL).option("spool", str(spool)).option("cells", cells).load()


def list_numbers(spool: str) -> list[int]:
    """The numbers of the commands in a spool; none if it was removed, which the next command undoes."""
    try:
        return sorted(int(name) for name in os.listdir(spool) if name.isdigit())
    except FileNotFoundError:
        return []


class ControlSource(DataSource):
    """Spark's entry to the control stream."""

    @classmethod
    def name(cls) -> str:
        return _NAME

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
        return ControlReader(self.options["spool"], tuple(map(int, self.options["cells"].split(","))))


class ControlReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads commands from a spool.

    A run with the trigger availableNow reads the commands that were there at its start; later ones wait for the next
    run, as the data does.
    """

    def __init__(self, spool: str, keys: tuple[int, ...]) -> None:
        self._spool = spool
        self._keys = keys
        self._last = -1
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's names here and below
        return {_OFFSET: -1}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        return read_all_limit()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = max(list_numbers(self._spool), default=-1)

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> dict[str, int]:  # noqa: ARG002, N802
        """Spark 4.1 does not pass the present offset."""
        waiting = (number for number in list_numbers(self._spool) if self._target is None or number <= self._target)
        self._last = max([self._last, _read_offset(start or {}), *waiting])
        return {_OFFSET: self._last}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self._last = max(self._last, _read_offset(end))
        numbers = range(_read_offset(start) + 1, _read_offset(end) + 1)
        return [InputPartition([self._read_command(number) for number in numbers])] if numbers else []

    def _read_command(self, number: int) -> bytes:
        try:
            return Path(self._spool, str(number)).read_bytes()
        except FileNotFoundError as error:
            message = f"command {number} is not in {self._spool}: stop the run and start it again"
            raise InternalError("COMMAND_MISSING", message) from error

    def commit(self, end: Offset) -> None:
        self._last = max(self._last, _read_offset(end))
        for number in list_numbers(self._spool):
            if number <= _read_offset(end):
                Path(self._spool, str(number)).unlink(missing_ok=True)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from penstock.spark.worker.pack import pack_commands  # noqa: PLC0415 - see above

        yield pack_commands(partition.value, self._keys)


def _read_offset(offset: Offset) -> int:
    """The number in an offset. Older checkpoints have offsets of a file source: cells skip what they get again."""
    return offset.get(_OFFSET, -1)
