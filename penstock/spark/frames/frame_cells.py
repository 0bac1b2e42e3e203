"""The state stage of a streaming frame: what runs in Spark's tasks.

It is the cell of a pipeline (`worker.cell_state`) without commands, sinks and reports: results leave as columns, late
and bad rows as numbers. The key of the cache of engines is the id of the streaming query and of its spec, so two
queries that were started from one frame do not mix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from penstock.errors import InternalError
from penstock.spark.cell_keys import find_cell_keys
from penstock.spark.frames.frame_record import check_record, encode_record
from penstock.spark.frames.result_columns import SentResults
from penstock.spark.layout import Layout, get_layout
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.batch import PackedRow
from penstock.spark.worker.cell import Cell
from penstock.spark.worker.cell_state import CellAttempt, MapState, OutputKey, StateHeader
from penstock.spark.worker.combined import StreamSlots, pack_combined
from penstock.spark.worker.pack import PACKED_SCHEMA, ArrowMap
from penstock.spark.worker.processor import open_segment_state
from penstock.spark.worker.setup import freeze_gc, get_task_property

if TYPE_CHECKING:
    import pandas as pd

RECORD_KEY = (0, 1)
"""The key of the record in a cell's state: segments begin with version 1, the header has (0, 0)."""
_QUERY_PROPERTY = "sql.streaming.queryId"

_checked: set[tuple[str, int]] = set()
"""The runs and cells whose records this worker has compared."""


class FrameCellState(CellAttempt["pd.DataFrame"]):
    """The state of a cell with the record of the query that made it."""

    def __init__(self, run: str, layout: Layout, state: MapState, results: SentResults) -> None:
        super().__init__(run, layout, state)
        self._results = results

    def _write(self, number: int, token: str, output: Iterable[tuple[OutputKey, pa.Table]]) -> list[pd.DataFrame]:
        del number, token
        return list(self._results.send(output))

    def _open_cell(self, number: int, header: StateHeader) -> tuple[Cell, str]:
        if not header.version:
            self._state.updateValue(RECORD_KEY, (encode_record(self._layout),))
        elif (self._run, number) not in _checked:
            saved = self._state.getValue(RECORD_KEY)
            check_record(None if saved is None else bytes(saved[0]), self._layout)
            _checked.add((self._run, number))
        return super()._open_cell(number, header)


class FrameProcessor(StatefulProcessor):
    """Processes the micro-batches of a frame's cells."""

    def __init__(self, spec: PipelineSpec, results: SentResults) -> None:
        self._spec = spec
        self._results = results

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = open_segment_state(handle)

    def close(self) -> None:
        pass

    def on_stage(self, stage: str, cell: int, version: int) -> None:
        """A hook between the stages of a micro-batch: fault tests raise here."""

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        number = find_cell_keys(self._spec.cells).index(int(key[0]))
        query = get_task_property(_QUERY_PROPERTY)
        if query is None:
            raise InternalError("NO_QUERY", "this task is not part of a streaming query")
        state = FrameCellState(f"{query}:{self._spec.id}", get_layout(self._spec), self._state, self._results)
        for output in state.step(number, _read_packed_rows(rows), self.on_stage):
            yield from output
        freeze_gc(self._spec.id)


def _read_packed_rows(frames: Iterable[pd.DataFrame]) -> Iterator[PackedRow]:
    """The packed rows of a cell, without its key."""
    for frame in frames:
        yield from frame[PACKED_SCHEMA.names[1:]].itertuples(index=False, name=None)


def build_frame_pack_map(spec: PipelineSpec, streams: Sequence[StreamSlots]) -> ArrowMap:
    """The function for `mapInArrow` that packs the streams of a combined frame."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from pack_combined(get_layout(spec), streams, batches)
        freeze_gc(spec.id)

    return pack
