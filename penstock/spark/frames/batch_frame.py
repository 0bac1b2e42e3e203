"""A query over batch DataFrames, as a batch DataFrame: the answer of the same text over a stream of the same rows.

Law: the rows are those that a streaming DataFrame of the same rows would have given at the end of all streams, with
none of them late. Rows are sorted by time within their partitions, packed, and sent to the cells. A cell reads its
blobs in the order of their first times, so it holds the rows of its windows and a blob of each partition, not its whole
input. Nothing is collected in the driver but static tables. Rows of one time and partition keep their order; the order
of rows of one time in several partitions is not defined, as in any DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import reduce
from itertools import groupby

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import monotonically_increasing_id

from penstock.cql import Stream
from penstock.errors import InternalError
from penstock.spark.cell_keys import find_cell_keys
from penstock.spark.frames.inputs import FrameInputs
from penstock.spark.frames.result_columns import number_columns, split_results, to_spark_columns
from penstock.spark.frames.stream_frame import select_numbered
from penstock.spark.layout import ALWAYS, FOREVER, get_layout
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.cell import Cell
from penstock.spark.worker.cell_memory import find_cell_memory, name_cell
from penstock.spark.worker.pack import PACKED_DDL, PACKED_SCHEMA, ArrowMap, Packer, merge_batches
from penstock.spark.worker.setup import freeze_gc, get_task_context
from penstock.state import decode_table, flatten_column, to_ticks

_ARRIVAL = "arrival"
_PUSHED_ROWS = 2**18
"""About how many rows a cell pushes into its engine at a time."""
Blob = tuple[int, int, int, pa.Buffer]
"""cell, inlet, the first time of its rows, and the rows."""


def build_batch_frame(inputs: FrameInputs, spec: PipelineSpec, schema: pa.Schema) -> DataFrame:
    """The results of the query of a spec. `schema`: their columns."""
    packed = reduce(DataFrame.unionAll, (_pack_stream(inputs, spec, stream) for stream in spec.streams))
    placed = packed.repartition(spec.cells, "cell").sortWithinPartitions("cell", "low", "stream", "part", "seq")
    numbered = number_columns(schema)
    results = placed.select("cell", "inlet", "low", "data").mapInArrow(
        _build_process_map(spec, numbered), to_spark_columns(numbered)
    )
    return results.toDF(*schema.names)


def _pack_stream(inputs: FrameInputs, spec: PipelineSpec, stream: Stream) -> DataFrame:
    rows = select_numbered(inputs.streams[stream.name].frame, stream.schema)
    time = f"c{stream.schema.names.index(stream.time)}"
    arrived = rows.withColumn(_ARRIVAL, monotonically_increasing_id())
    ordered = arrived.sortWithinPartitions(time, _ARRIVAL).drop(_ARRIVAL)
    return ordered.mapInArrow(_build_pack_map(spec, stream), f"{PACKED_DDL}, low bigint")


def _build_pack_map(spec: PipelineSpec, stream: Stream) -> ArrowMap:
    names = stream.schema.names

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = get_task_context()
        packer = Packer(get_layout(spec), stream)
        seq = 0
        for table in merge_batches(batches, spec.maintenance.chunk_rows):
            rows = table.rename_columns(names)
            packed = packer.pack(rows, context.partitionId(), seq)
            seq += packed.num_rows
            low = pa.repeat(pa.scalar(_find_first_time(rows, stream), pa.int64()), packed.num_rows)
            yield pa.RecordBatch.from_arrays([*packed.columns, low], [*PACKED_SCHEMA.names, "low"])
        freeze_gc(spec.id)

    return pack


def _find_first_time(rows: pa.Table, stream: Stream) -> int:
    times = flatten_column(rows.column(stream.time)).drop_null()
    return int(np.min(to_ticks(times.cast(stream.time_type)))) if len(times) else ALWAYS


def _build_process_map(spec: PipelineSpec, numbered: pa.Schema) -> ArrowMap:
    def process(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = find_cell_keys(spec.cells)
        for key, blobs in groupby(_read_blobs(batches), lambda blob: blob[0]):
            if key not in keys:
                raise InternalError("UNKNOWN_CELL", f"there is no cell with the key {key}")
            tables = _run_cell(spec, keys.index(key), blobs)
            yield from (part for table in tables for part in split_results(table, numbered))
        freeze_gc(spec.id)

    return process


def _read_blobs(batches: Iterator[pa.RecordBatch]) -> Iterator[Blob]:
    """The blobs of rows, without those of bad rows and those that have only a time."""
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns[:3]]
        for cell, inlet, low, data in zip(*columns, batch.column(3), strict=True):
            if inlet >= 0:
                yield cell, inlet, low, data.as_buffer()


def _run_cell(spec: PipelineSpec, number: int, blobs: Iterator[Blob]) -> Iterator[pa.Table]:
    """The results of a cell. Its blobs are in the order of their first times: later ones have no earlier row."""
    memory = find_cell_memory(spec)
    with name_cell(number, spec.cells, memory), closing(Cell(get_layout(spec), memory)) as cell:
        yield from _push_blobs(cell, blobs)


def _push_blobs(cell: Cell, blobs: Iterator[Blob]) -> Iterator[pa.Table]:
    spec = cell.layout.spec
    names = [stream.name for stream in spec.streams]
    held: dict[int, list[pa.Table]] = {}
    rows = 0
    for _, inlet, low, data in blobs:
        if rows >= _PUSHED_ROWS:
            yield from _push(cell, held, dict.fromkeys(names, low))
            held, rows = {}, 0
        table = decode_table(data)
        held.setdefault(inlet, []).append(table)
        rows += table.num_rows
    yield from _push(cell, held, dict.fromkeys(names, FOREVER))


def _push(cell: Cell, held: dict[int, list[pa.Table]], frontiers: dict[str, int]) -> Iterator[pa.Table]:
    inlets = {inlet.number: inlet for inlet in cell.layout.inlets}
    rows = {number: pa.concat_tables(tables).select(inlets[number].schema.names) for number, tables in held.items()}
    yield from (table for table in cell.take(rows, frontiers).values() if table.num_rows)
