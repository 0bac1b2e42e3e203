"""Delta tables: committed once whatever is repeated, appended or upserted."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4
from zlib import crc32

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from lake_support import change_during_commit
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


def commit(sink: Any, batch: int, rows: list[tuple[Any, ...]]) -> None:
    sink.commit(batch, [sink.write(Attempt(batch, 0, uuid4().hex), iter(as_batches(rows, CHANGES)))])


def add_row(path: Path, **options: Any) -> None:
    columns = DeltaTable(path).to_pyarrow_table().schema.names
    row = pa.table({"k": [9], "v": ["other"], "_op": ["+"], "_ts": [1]}, CHANGES).select(columns)
    write_deltalake(path, row, **{"mode": "append", **options})


OTHERS: dict[str, tuple[Any, set[tuple[int, str]]]] = {
    "append": (add_row, {(1, "z"), (2, "b"), (9, "other")}),
    "optimize": (lambda path: DeltaTable(path).optimize.compact(), {(1, "z"), (2, "b")}),
    "delete": (lambda path: DeltaTable(path).delete("k = 2"), {(1, "z")}),
    "overwrite": (lambda path: add_row(path, mode="overwrite"), {(1, "z"), (9, "other")}),
}


@pytest.mark.parametrize("key", ["", "k"])
@pytest.mark.parametrize("name", OTHERS)
def test_another_writer_during_a_commit(tmp_path: Path, name: str, key: str) -> None:
    """Another writer commits between what a commit reads and writes: it is tried again, and written once."""
    change, expected = OTHERS[name]
    sink = ps.sinks.delta(tmp_path, key=key)
    sink.open("run", "q", CHANGES)
    commit(sink, 0, [(1, "a", "+", 1), (2, "b", "+", 1)] if key else [(2, "b", "+", 1)])
    changed = []
    change_during_commit(sink, lambda: changed.append(change(tmp_path)))
    for _ in range(2):
        commit(sink, 1, [(1, "a", "-", 3), (1, "z", "+", 3)] if key else [(1, "z", "+", 3)])
    assert changed
    assert read(tmp_path, "k", "v") == sorted(expected, key=repr)


def test_two_pipelines_write_one_table(tmp_path: Path) -> None:
    sinks = [ps.sinks.delta(tmp_path) for _ in range(2)]
    for number, sink in enumerate(sinks):
        sink.open(f"run{number}", "q", CHANGES)

    def write(number: int) -> None:
        for batch in range(5):
            for _ in range(2):
                commit(sinks[number], batch, [(number, f"{batch}", "+", batch)])

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, range(2)))
    assert read(tmp_path, "k", "v") == [(number, f"{batch}") for number in range(2) for batch in range(5)]


def test_written_batches_are_known_after_vacuum_and_cleanup(tmp_path: Path) -> None:
    sink = ps.sinks.delta(tmp_path, key="k")
    sink.open("run", "q", CHANGES)
    for batch in range(4):
        commit(sink, batch, [(batch, "x", "+", batch)])
    table = DeltaTable(tmp_path)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    table = DeltaTable(tmp_path)
    table.optimize.compact()
    table.create_checkpoint()
    for file in (tmp_path / "_delta_log").glob("*"):
        os.utime(file, (0, 0))
    table.cleanup_metadata()
    assert table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert not (tmp_path / "_delta_log" / "00000000000000000001.json").exists()
    again = ps.sinks.delta(tmp_path, key="k")
    again.open("run", "q", CHANGES)
    commit(again, 3, [(3, "y", "+", 3)])
    commit(again, 4, [(4, "x", "+", 4)])
    assert read(tmp_path, "k", "v") == [(at, "x") for at in range(5)]


def test_tables_with_rules_that_are_not_obeyed(tmp_path: Path) -> None:
    plain = {field.name: field for field in CHANGES}
    strict = pa.schema([plain["k"], plain["v"].with_nullable(False), plain["_op"], plain["_ts"]])
    mapping = {"delta.columnMapping.mode": "name", "delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}
    DeltaTable.create(tmp_path / "partition", CHANGES, partition_by=["k"])
    DeltaTable.create(tmp_path / "strict", strict)
    DeltaTable.create(tmp_path / "mapping", CHANGES, configuration=mapping)
    DeltaTable.create(tmp_path / "vectors", CHANGES, configuration={"delta.enableDeletionVectors": "true"})
    DeltaTable.create(tmp_path / "check", CHANGES)
    DeltaTable(tmp_path / "check").alter.add_constraint({"small": "k < 5"})
    said = {"partition": "a partition by k", "strict": "NOT NULL for v", "mapping": "column mapping",
            "vectors": "the feature deletionVectors", "check": "the constraint delta.constraints.small"}  # fmt: skip
    for name, text in said.items():
        with pytest.raises(ps.UnsupportedError, match=f"SINK_FEATURES.*{text}"):
            ps.sinks.delta(tmp_path / name).open("run", "q", CHANGES)
    kept = pa.schema([plain["k"], plain["v"], plain["_ts"]])
    DeltaTable.create(tmp_path / "upserted", kept, partition_by=["k"])
    sink = ps.sinks.delta(tmp_path / "upserted", key="k")
    sink.open("run", "q", CHANGES)  # MERGE knows partitions
    commit(sink, 0, [(1, "a", "+", 1), (None, "b", "+", 1)])
    assert read(tmp_path / "upserted", "k", "v") == [(1, "a"), (None, "b")]
    DeltaTable.create(tmp_path / "log", kept, configuration={"delta.appendOnly": "true"})
    with pytest.raises(ps.UnsupportedError, match=r"SINK_FEATURES.*delta\.appendOnly"):
        ps.sinks.delta(tmp_path / "log", key="k").open("run", "q", CHANGES)
