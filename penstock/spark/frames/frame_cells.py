"""The state stage of a streaming frame: what runs in Spark's tasks.

It is the cell of a pipeline (`worker.cell_state`) without commands, sinks and reports: rows of results leave as blobs,
late and bad rows as numbers. The key of the cache of engines is the id of the streaming query and of its spec, so two
queries that were started from one frame do not mix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from penstock.errors import InternalError
from penstock.spark.cell_keys import find_cell_keys
from penstock.spark.frames.frame_record import check_record, encode_record
from penstock.spark.layout import Layout, get_layout
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.batch import CellBatch
from penstock.spark.worker.cell import Cell
from penstock.spark.worker.cell_state import (
    METRICS,
    RESULT,
    CellState,
    MapState,
    OutputKey,
    OutputRow,
    StateHeader,
    encode_rows,
)
from penstock.spark.worker.combined import StreamSlots, pack_combined
from penstock.spark.worker.key_stats import TopKey
from penstock.spark.worker.pack import ArrowMap
from penstock.spark.worker.processor import OUTPUT_TYPE, open_segment_state
from penstock.spark.worker.setup import freeze_gc, get_task_property

RECORD_KEY = (0, 1)
"""The key of the record in a cell's state: segments begin with version 1, the header has (0, 0)."""
_QUERY_PROPERTY = "sql.streaming.queryId"

_checked: set[tuple[str, int]] = set()
"""The runs and cells whose records this worker has compared."""


class FrameCellState(CellState):
    """The state of a cell with the record of the query that made it."""

    def __init__(self, run: str, layout: Layout, state: MapState) -> None:
        super().__init__(run, layout, state, write=_write_output)

    def _open_cell(self, number: int, header: StateHeader) -> tuple[Cell, str]:
        if not header.version:
            self._state.updateValue(RECORD_KEY, (encode_record(self._layout),))
        elif (self._run, number) not in _checked:
            saved = self._state.getValue(RECORD_KEY)
            check_record(None if saved is None else bytes(saved[0]), self._layout)
            _checked.add((self._run, number))
        return super()._open_cell(number, header)

    def _find_top_keys(self, batch: CellBatch) -> dict[str, TopKey]:
        del batch
        return {}  # statistics for a driver that a frame does not have

    def _describe(self, cell: Cell, results: Mapping[str, pa.Table]) -> dict[str, object] | None:
        del cell, results
        return None  # as above


def _write_output(cell: int, token: str, output: Iterable[tuple[OutputKey, pa.Table]]) -> list[OutputRow]:
    """Results as blobs, late and bad rows as numbers."""
    del token
    found: list[OutputRow] = []
    for key, table in output:
        found += encode_rows(cell, key, table) if key[0] == RESULT else [(cell, *key, table.num_rows, b"")]
    return found


class FrameProcessor(StatefulProcessor):
    """Processes the micro-batches of a frame's cells."""

    def __init__(self, spec: PipelineSpec) -> None:
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
        query = get_task_property(_QUERY_PROPERTY)
        if query is None:
            raise InternalError("NO_QUERY", "this task is not part of a streaming query")
        state = FrameCellState(f"{query}:{self._spec.id}", get_layout(self._spec), self._state)
        result = Row(*OUTPUT_TYPE.names)
        for output in state.step(number, (tuple(row)[1:] for row in rows), self.on_stage):
            yield from (result(*written) for written in output if written[1] != METRICS)
        freeze_gc(self._spec.id)


def build_frame_pack_map(spec: PipelineSpec, streams: Sequence[StreamSlots]) -> ArrowMap:
    """The function for `mapInArrow` that packs the streams of a combined frame."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from pack_combined(get_layout(spec), streams, batches)
        freeze_gc(spec.id)

    return pack
