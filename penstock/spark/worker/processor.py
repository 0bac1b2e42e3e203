"""The processor of cells for `transformWithState`: a thin layer over `CellState`.

Rows are few (blobs), so Spark's row interface costs less than the pandas interface. Schemas are types, not texts: Spark
would parse a text in every task.

This module imports little, and the processor holds the pipeline as bytes: at every start of a run Spark loads it in a
new process on the driver, only to ask which state variables it has. With the engine loaded that took 1.7 CPU-seconds.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle, TimerValues
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

if TYPE_CHECKING:
    from penstock.spark.spec import PipelineSpec
    from penstock.spark.worker.batch import PackedRow

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
        self._spec = pickle.dumps(spec)

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
        from penstock.spark.cell_keys import find_cell_keys  # noqa: PLC0415 - see above
        from penstock.spark.layout import get_layout  # noqa: PLC0415
        from penstock.spark.worker.cell_state import CellState  # noqa: PLC0415
        from penstock.spark.worker.setup import freeze_gc, read_task_spec  # noqa: PLC0415
        from penstock.spark.worker.writer import OutputWriter  # noqa: PLC0415

        spec = _load_spec(self._spec)
        number = find_cell_keys(spec.cells).index(int(key[0]))
        layout = get_layout(read_task_spec(spec))
        writer = OutputWriter.for_task(layout)
        state = CellState(self._run, layout, self._state, write=None if writer is None else writer.write)
        result = Row(*OUTPUT_TYPE.names)
        for output in state.step(number, map(_to_packed_row, rows), self.on_stage):
            yield from (result(*written) for written in output)
        freeze_gc(spec.id)


@lru_cache(maxsize=4)
def _load_spec(content: bytes) -> PipelineSpec:
    """The pipeline of a processor; a worker keeps the last ones."""
    spec: PipelineSpec = pickle.loads(content)
    return spec


def _to_packed_row(row: Row) -> PackedRow:
    _, *packed = row
    return tuple(packed)
