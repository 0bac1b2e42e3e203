"""Pack for several streams in one task: their rows are in one frame, with the number of the stream in the first column.

A Python task costs about as much as packing some ten thousand rows, so small micro-batches of many streams are packed
by few tasks. Columns of one type share a slot of the frame, so that rows of equal schemas have no empty columns. Law:
the packed rows are those of every stream by itself; rows of one stream stay in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.cql import Stream
from penstock.spark.layout import Layout
from penstock.spark.worker.pack import Packer
from penstock.spark.worker.setup import get_task_context


@dataclass(frozen=True)
class StreamSlots:
    """Where the columns of a stream are in a combined frame: their names, and the slot of each."""

    stream: Stream
    names: tuple[str, ...]
    slots: tuple[int, ...]


def pack_combined(
    layout: Layout, streams: Sequence[StreamSlots], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The packed rows of all streams in a partition of a combined frame."""
    part = get_task_context().partitionId()
    limits = layout.spec.maintenance
    packers = [Packer(layout, each.stream, limits.packed_bytes) for each in streams]
    seq = 0
    for number, table in merge_streams(split_streams(streams, batches), limits.chunk_rows):
        packed = packers[number].pack(table, part, seq)
        seq += packed.num_rows
        yield packed


def split_streams(
    streams: Sequence[StreamSlots], batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows by stream, without a copy: rows of one stream are neighbours, because partitions are read one by one."""
    for batch in batches:
        if not batch.num_rows:
            continue
        numbers = batch.column(0).to_numpy()
        changes = (np.flatnonzero(np.diff(numbers)) + 1).tolist()
        for start, end in pairwise([0, *changes, batch.num_rows]):
            number = int(numbers[start])
            rows, found = batch.slice(start, end - start), streams[number]
            columns = [rows.column(1 + slot) for slot in found.slots]
            yield number, pa.RecordBatch.from_arrays(columns, list(found.names))


def merge_streams(parts: Iterable[tuple[int, pa.RecordBatch]], size: int) -> Iterator[tuple[int, pa.Table]]:
    """Merge the rows of each stream into tables of at least `size` rows; the last of a stream may have fewer."""
    held: dict[int, list[pa.RecordBatch]] = {}
    for number, batch in parts:
        waiting = held.setdefault(number, [])
        waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= size:
            yield number, pa.Table.from_batches(held.pop(number))
    yield from ((number, pa.Table.from_batches(waiting)) for number, waiting in held.items())
