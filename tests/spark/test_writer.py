"""What a task does with the output of its cell, without Spark: written, sent, too large, or dropped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.cql import Stream
from penstock.spark import sinks
from penstock.spark.driver.batch_output import decode_output
from penstock.spark.layout import Layout
from penstock.spark.pipeline_config import QuerySpec
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.cell_state import DEAD, LATE, RESULT, encode_rows
from penstock.spark.worker.writer import OVERSIZE, WRITTEN, OutputWriter, SentRows

SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("y", pa.string())])
ROWS = pa.table({"x": [3, 1, 2], "_ts": [1, 1, 2]})


class CollectingSink(sinks.TaskSink):
    """Keeps what it is given; a message says how much."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.written: list[tuple[sinks.Attempt, pa.Table]] = []

    def write(self, attempt: sinks.Attempt, rows: Iterator[pa.RecordBatch]) -> Any:
        self.written.append((attempt, pa.Table.from_batches(list(rows))))
        if self.error is not None:
            raise self.error
        return {"rows": self.written[-1][1].num_rows}

    def commit(self, batch: int, messages: Sequence[Any]) -> None:
        raise AssertionError(f"tasks do not commit: {batch}, {messages}")


def build_writer(**targets: Any) -> OutputWriter:
    """A writer for results by query, and for rows of a stream A by late and dead."""
    query = QuerySpec("q", "SELECT x FROM A [NOW]")
    layout = Layout(PipelineSpec((Stream("A", SCHEMA, "ts"),), {}, (query,), cells=1))
    keys = {"late": (LATE, "A"), "dead": (DEAD, "A")}
    return OutputWriter(layout, 7, {keys.get(name, (RESULT, name)): target for name, target in targets.items()})


def test_outputs_by_target() -> None:
    written, late = CollectingSink(), CollectingSink()
    writer = build_writer(q=written, p=SentRows(10**6), large=SentRows(10), late=late)
    tables = [((RESULT, name), ROWS) for name in ("q", "p", "large", "gone")]
    rows = writer.write(4, "token", [*tables, ((LATE, "A"), pa.table({"ts": [1], "x": [5]}))])
    assert [(cell, kind, name, count) for cell, kind, name, count, _ in rows] == [
        (4, WRITTEN + RESULT, "q", 3), (4, RESULT, "p", 3), (4, OVERSIZE + RESULT, "large", 3),
        (4, WRITTEN + LATE, "A", 1),
    ]  # fmt: skip
    assert written.written == [(sinks.Attempt(7, 4, "token"), ROWS)]
    assert late.written[0][1].to_pylist() == [{"ts": 1, "x": 5, "y": None}]
    output = decode_output(rows)
    assert output.get_messages((RESULT, "q")) == [{"rows": 3}]
    assert output.merge_tables((RESULT, "p"), ROWS.schema) == ROWS
    assert output.measure((RESULT, "large")) == ROWS.nbytes
    assert output.rows == {(RESULT, "q"): 3, (RESULT, "p"): 3, (LATE, "A"): 1}


def test_driver_merges_cells_in_temporal_order() -> None:
    parts = [(cell, pa.table({"x": [cell, cell + 10], "_ts": [cell, 5 + cell]})) for cell in (2, 0, 1)]
    rows = [row for cell, table in parts for row in encode_rows(cell, (RESULT, "q"), table)]
    merged = decode_output(rows).merge_tables((RESULT, "q"), ROWS.schema)
    assert merged.to_pydict() == {"x": [0, 1, 2, 10, 11, 12], "_ts": [0, 1, 2, 5, 6, 7]}


def test_large_output_is_cut_into_rows() -> None:
    table = pa.table({"x": pa.array(range(3 * 2**20)), "_ts": pa.array(range(3 * 2**20))})
    rows = encode_rows(0, (RESULT, "q"), table)
    assert len(rows) == -(-table.nbytes // (60 * 2**10))
    assert max(len(row[4]) for row in rows) < 64 * 2**10
    assert decode_output(rows).merge_tables((RESULT, "q"), table.schema) == table


def test_failing_task_sink_is_named() -> None:
    writer = build_writer(q=CollectingSink(OSError("no space")))
    with pytest.raises(ps.PenstockError, match=r"SINK_FAILED.*sink of q failed in micro-batch 7: OSError: no space"):
        writer.write(0, "token", [((RESULT, "q"), ROWS)])
