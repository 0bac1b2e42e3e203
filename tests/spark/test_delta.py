"""Delta tables: committed once whatever is repeated, appended or upserted."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from postgres_support import as_batches, draw_changes

import penstock as ps
from penstock.spark.sinks import Attempt

CHANGES = pa.schema([("k", pa.int64()), ("v", pa.string()), ("_op", pa.string()), ("_ts", pa.int64())])
SEEDS = range(int(os.environ.get("PENSTOCK_SEEDS", "2")))


def read(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    rows = DeltaTable(path).to_pyarrow_table(columns=list(columns) or None).to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)


def write_batch(sink: Any, rng: random.Random, batch: int, rows: list[tuple[Any, ...]]) -> list[Any]:
    messages = []
    for cell in range(2):
        part = [row for row in rows if crc32(str(row[0]).encode()) % 2 == cell]
        for number in range(rng.randrange(1, 3)):
            attempt = Attempt(batch, cell, f"{number}-{rng.random()}")
            message = sink.write(attempt, iter(as_batches(part, CHANGES)))
        messages.append(message)
    return messages


@pytest.mark.parametrize("seed", SEEDS)
def test_changes_applied_once_with_repeats(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    relation: dict[int, str | None] = {}
    answer, log = ps.sinks.delta(tmp_path / "answer", key="k"), ps.sinks.delta(str(tmp_path / "log"))
    logged = []
    for batch in range(8):
        if batch == 0 or rng.random() < 0.3:
            answer.open("run", "q", CHANGES)
            log.open("run", "log", CHANGES)
        rows = draw_changes(rng, relation, 10 * batch)
        logged += rows
        for _ in range(rng.randrange(1, 3)):
            answer.commit(batch, write_batch(answer, rng, batch, rows))
            log.commit(batch, write_batch(log, rng, batch, rows))
        assert read(tmp_path / "answer", "k", "v") == sorted(relation.items(), key=repr)
    assert read(tmp_path / "log") == sorted(logged, key=repr)


def test_deletion_of_another_row_keeps_the_present_one(tmp_path: Path) -> None:
    """A cell may report that a row left after another cell reported its successor."""
    sink = ps.sinks.delta(tmp_path / "t", key="k")
    sink.open("run", "q", CHANGES)
    for batch, rows in enumerate([[(1, "old", "+", 1)], [(1, "new", "+", 2)], [(1, "old", "-", 2)]]):
        sink.commit(batch, [sink.write(Attempt(batch, 0, "a"), iter(as_batches(rows, CHANGES)))])
    assert read(tmp_path / "t", "k", "v") == [(1, "new")]


def test_refused_before_the_first_batch(tmp_path: Path) -> None:
    ps.sinks.delta(tmp_path / "t").open("run", "q", CHANGES)
    with pytest.raises(ps.DataError, match="SINK_SCHEMA"):
        ps.sinks.delta(tmp_path / "t").open("run", "q", pa.schema([("k", pa.string()), ("_ts", pa.int64())]))
    with pytest.raises(ps.QueryError, match="SINK_KEY"):
        ps.sinks.delta(tmp_path / "u", key="nothing").open("run", "q", CHANGES)
    double = ps.sinks.delta(tmp_path / "d", key="k")
    double.open("run", "q", CHANGES)
    rows = as_batches([(1, "x", "+", 1), (1, "y", "+", 1)], CHANGES)
    with pytest.raises(ps.DataError, match="SINK_KEY_NOT_UNIQUE"):
        double.commit(0, [double.write(Attempt(0, 0, "a"), iter(rows))])


def test_timestamps_and_types(tmp_path: Path) -> None:
    schema = pa.schema([("d", pa.date32()), ("z", pa.timestamp("us", "UTC")), ("n", pa.decimal128(9, 2)),
                        ("_ts", pa.timestamp("us"))])  # fmt: skip
    table = pa.table([[1, None], [5, None], [None, None], [7, 8]], schema=schema)
    sink = ps.sinks.delta(tmp_path / "t")
    for _ in range(2):
        sink.open("run", "q", schema)
        sink.commit(0, [sink.write(Attempt(0, 0, "a"), iter(table.to_batches()))])
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().sort_by("_ts").to_pylist() == table.to_pylist()
