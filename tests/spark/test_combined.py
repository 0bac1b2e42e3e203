"""Streams that are packed by the same tasks: the slots of their columns, and rows divided by stream."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import LongType, StringType

from penstock.cql import describe_stream
from penstock.spark.combined_frame import assign_slots
from penstock.spark.worker.combined import StreamSlots, merge_streams, split_streams

LONG, TEXT = LongType(), StringType()
A = StreamSlots(describe_stream("a", pa.schema([("ts", pa.int64()), ("x", pa.string())]), "ts"), ("ts", "x"), (0, 1))
B = StreamSlots(describe_stream("b", pa.schema([("u", pa.int64()), ("ts", pa.int64())]), "ts"), ("u", "ts"), (0, 2))


def build_batch(*rows: tuple[int, int, str | None, int | None]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    types = [pa.int32(), pa.int64(), pa.string(), pa.int64()]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)], ["stream", "s0", "s1", "s2"]
    )


def test_columns_of_one_type_share_a_slot() -> None:
    types, slots = assign_slots([[LONG, TEXT], [LONG, LONG], [TEXT, TEXT, LONG]])
    assert types == [LONG, TEXT, LONG, TEXT]
    assert slots == [(0, 1), (0, 2), (1, 3, 0)]


def test_equal_schemas_need_no_more_slots() -> None:
    types, slots = assign_slots([[LONG, TEXT]] * 5)
    assert types == [LONG, TEXT]
    assert slots == [(0, 1)] * 5


def test_rows_are_divided_by_stream_in_order() -> None:
    batches = [
        build_batch((0, 1, "p", None), (0, 2, None, None), (1, 7, None, 3)),
        build_batch(),
        build_batch((1, 8, None, 4), (0, 5, "q", None)),
    ]
    merged = list(merge_streams(split_streams([A, B], batches), 100))
    assert [(number, table.to_pylist()) for number, table in merged] == [
        (0, [{"ts": 1, "x": "p"}, {"ts": 2, "x": None}, {"ts": 5, "x": "q"}]),
        (1, [{"u": 7, "ts": 3}, {"u": 8, "ts": 4}]),
    ]


def test_rows_of_a_stream_leave_in_tables_of_a_size() -> None:
    batches = [build_batch(*((number % 2, number, None, number) for number in range(6)))] * 2
    merged = list(merge_streams(split_streams([A, B], batches), 2))
    assert all(table.num_rows == 2 for _, table in merged)
    times = [time for number, table in merged if number == 0 for time in table.column("ts").to_pylist()]
    assert times == [0, 2, 4, 0, 2, 4]
