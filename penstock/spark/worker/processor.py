"""The processor of a cell, as `transformWithState` wants it: a thin coat over the `Keeper`.

Rows are few (blobs), so Spark's row interface costs less than the one over pandas. Schemas are given as types, not as
texts: each text would be sent to Spark to be parsed, in every task.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle, TimerValues
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

from penstock.spark.layout import layout_of
from penstock.spark.placement import cell_keys
from penstock.spark.spec import Spec
from penstock.spark.worker.batch import Packed
from penstock.spark.worker.cell_state import Keeper
from penstock.spark.worker.setup import planned, settle

RESULTS = (
    StructType()
    .add("cell", IntegerType())
    .add("kind", StringType())
    .add("name", StringType())
    .add("rows", LongType())
    .add("data", BinaryType())
)
_KEY = StructType().add("first", LongType()).add("last", LongType())
_VALUE = StructType().add("data", BinaryType())


def journal(handle: StatefulProcessorHandle) -> MapState:
    """The one state variable of a cell."""
    return handle.getMapState("journal", _KEY, _VALUE)


class Processor(StatefulProcessor):
    """Works on the micro-batches of the cells."""

    def __init__(self, run: str, spec: Spec) -> None:
        self._run = run
        self._spec = spec

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = journal(handle)

    def close(self) -> None:
        pass

    def passed(self, stage: str, cell: int, version: int) -> None:
        """Called between the stages of a micro-batch: fault tests raise here."""

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        number = cell_keys(self._spec.cells).index(int(key[0]))
        keeper = Keeper(self._run, layout_of(planned(self._spec)), self._state)
        result = Row(*RESULTS.names)
        for output in keeper.step(number, map(_packed, rows), self.passed):
            yield from (result(*written) for written in output)
        settle(self._spec.id)


def _packed(row: Row) -> Packed:
    _, *packed = row
    return tuple(packed)
