"""Arcs: one stored copy with a position per reader, and frontiers that bypass plain operators."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from inspect_engine import stored_batches

from penstock.graph import Buffer
from penstock.ops import Batch


def batch(*times: int) -> Batch:
    return Batch(np.array(times, np.int64), {"x": pa.array(times)})


def read(batches: list[Batch]) -> list[int]:
    return [int(time) for part in batches for time in part.times]


def test_batch_freed_after_last_reader() -> None:
    """A batch is stored once for all readers and freed when the last of them has read it."""
    arc = Buffer()
    first, second = arc.open(), arc.open()
    arc.write(batch(1, 2, 3))
    arc.write(batch(4))
    assert read(first.take(10)) == [1, 2, 3, 4]
    assert arc.unread() is not None
    assert read(second.take(2)) == [1, 2]
    assert second.waiting() == 2
    assert read(second.read(3)) == [3]
    assert read(second.take(5)) == [4]
    assert arc.unread() is None
    assert stored_batches(arc) == 0


def test_take_spans_batches() -> None:
    arc = Buffer()
    reader = arc.open()
    for times in ((1, 1), (1, 2), (3,)):
        arc.write(batch(*times))
    assert [read(reader.take(count)) for count in (1, 2, 1, 5, 1)] == [[1], [1, 1], [2], [3], []]


def test_close_reader_frees_its_unread_batches() -> None:
    arc = Buffer()
    quick, slow = arc.open(), arc.open()
    arc.write(batch(1))
    quick.take(1)
    arc.close(slow)
    assert stored_batches(arc) == 0


def test_frontier_bypasses_operator_without_input() -> None:
    arc, behind = Buffer(), Buffer()
    reader = arc.open()
    arc.advance(3)
    reader.bypass(behind)
    assert behind.frontier == 3
    arc.write(batch(4))
    arc.advance(5)
    assert behind.frontier == 3
    reader.take(1)
    arc.advance(6)
    assert behind.frontier == 6


def test_registers_are_monotonic() -> None:
    arc = Buffer()
    arc.advance(5)
    arc.advance(4)
    assert arc.frontier == 5
