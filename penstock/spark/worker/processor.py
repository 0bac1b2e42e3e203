"""The processor of cells for `transformWithState`: a thin layer over `CellState`.

Rows are few (blobs), so Spark's row interface costs less than the pandas interface. Schemas are types, not texts: Spark
would parse a text in every task.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle, TimerValues
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

from penstock.spark.cell_keys import find_cell_keys
from penstock.spark.layout import get_layout
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.batch import PackedRow
from penstock.spark.worker.cell_state import CellState
from penstock.spark.worker.setup import freeze_gc, read_task_spec
from penstock.spark.worker.writer import OutputWriter

OUTPUT_TYPE = (
    StructType()
    .add("cell", IntegerType())
    .add("kind", StringType())
    .add("name", StringType())
    .add("rows", LongType())
    .add("data", BinaryType())
)
_KEY = StructType().add("first", LongType()).add("last", LongType())
_VALUE = StructType().add("data", BinaryType())


def open_segment_state(handle: StatefulProcessorHandle) -> MapState:
    """The one state variable of a cell. Its name is part of the format of checkpoints."""
    return handle.getMapState("journal", _KEY, _VALUE)


class CellProcessor(StatefulProcessor):
    """Processes the micro-batches of the cells."""

    def __init__(self, run: str, spec: PipelineSpec) -> None:
        self._run = run
        self._spec = spec

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = open_segment_state(handle)

    def close(self) -> None:
        pass

    def on_stage(self, stage: str, cell: int, version: int) -> None:
        """A hook between the stages of a micro-batch: fault tests raise here."""

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        number = find_cell_keys(self._spec.cells).index(int(key[0]))
        layout = get_layout(read_task_spec(self._spec))
        writer = OutputWriter.for_task(layout)
        state = CellState(self._run, layout, self._state, write=None if writer is None else writer.write)
        result = Row(*OUTPUT_TYPE.names)
        for output in state.step(number, map(_to_packed_row, rows), self.on_stage):
            yield from (result(*written) for written in output)
        freeze_gc(self._spec.id)


def _to_packed_row(row: Row) -> PackedRow:
    _, *packed = row
    return tuple(packed)
