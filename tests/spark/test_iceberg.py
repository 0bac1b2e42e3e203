"""Iceberg tables: committed once whatever is repeated, appended or upserted."""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from iceberg_support import Lake
from postgres_support import as_batches, draw_changes
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Transaction

import penstock as ps
from penstock.spark.sinks import Attempt

CHANGES = pa.schema([("k", pa.int64()), ("v", pa.string()), ("_op", pa.string()), ("_ts", pa.int64())])
SEEDS = range(int(os.environ.get("PENSTOCK_SEEDS", "2")))


def write_batch(sink: Any, rng: random.Random, batch: int, rows: list[tuple[Any, ...]]) -> list[Any]:
    messages = []
    for cell in range(2):
        part = [row for row in rows if crc32(str(row[0]).encode()) % 2 == cell]
        for number in range(rng.randrange(1, 3)):
            attempt = Attempt(batch, cell, f"{number}-{rng.random()}")
            message = pickle.loads(pickle.dumps(sink)).write(attempt, iter(as_batches(part, CHANGES)))
        messages.append(message)
    return messages


@pytest.mark.parametrize("seed", SEEDS)
def test_changes_applied_once_with_repeats(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    lake, relation, logged = Lake(tmp_path), dict[int, str | None](), []
    answer, log = lake.sink("answer", key="k"), lake.sink("log")
    for batch in range(8):
        if batch == 0 or rng.random() < 0.3:
            answer.open("run", "q", CHANGES)
            log.open("run", "log", CHANGES)
        rows = draw_changes(rng, relation, 10 * batch)
        logged += rows
        for _ in range(rng.randrange(1, 3)):
            answer.commit(batch, write_batch(answer, rng, batch, rows))
            log.commit(batch, write_batch(log, rng, batch, rows))
        assert lake.read("answer", "k", "v") == sorted(relation.items(), key=repr)
    assert lake.read("log") == sorted(logged, key=repr)


def test_repeat_after_snapshots_expired(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    sink = lake.sink("t")
    sink.open("run", "q", CHANGES)
    for batch in range(2):
        sink.commit(batch, [sink.write(Attempt(batch, 0, "a"), iter(as_batches([(batch, "x", "+", 1)], CHANGES)))])
    table = lake.load("t")
    table.append(pa.table([[9], ["other"], ["+"], [1]], schema=CHANGES))
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots()[:-1]]).commit()
    sink.open("run", "q", CHANGES)
    sink.commit(1, [sink.write(Attempt(1, 0, "b"), iter(as_batches([(1, "x", "+", 1)], CHANGES)))])
    assert lake.read("t", "k") == [(0,), (1,), (9,)]


def test_conflict_with_another_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path)
    sink = lake.sink("t", key="k")
    sink.open("run", "q", CHANGES)
    commit, calls = Transaction.commit_transaction, []

    def fail_first(self: Any) -> Any:
        calls.append(self)
        if len(calls) == 1:
            raise CommitFailedException("another writer came first")
        return commit(self)

    monkeypatch.setattr(Transaction, "commit_transaction", fail_first)
    sink.commit(0, [sink.write(Attempt(0, 0, "a"), iter(as_batches([(1, "x", "+", 1)], CHANGES)))])
    assert len(calls) == 2
    assert lake.read("t", "k", "v") == [(1, "x")]


def test_deletion_of_another_row_keeps_the_present_one(tmp_path: Path) -> None:
    """A cell may report that a row left after another cell reported its successor."""
    lake = Lake(tmp_path)
    sink = lake.sink("t", key="k")
    sink.open("run", "q", CHANGES)
    for batch, rows in enumerate([[(1, "old", "+", 1)], [(1, "new", "+", 2)], [(1, "old", "-", 2)]]):
        sink.commit(batch, [sink.write(Attempt(batch, 0, "a"), iter(as_batches(rows, CHANGES)))])
    assert lake.read("t", "k", "v") == [(1, "new")]


def test_refused_before_the_first_batch(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.sink("t").open("run", "q", CHANGES)
    wrong = {
        "SINK_SCHEMA": lambda: lake.sink("t").open("run", "q", pa.schema([("k", pa.string()), ("_ts", pa.int64())])),
        "SINK_KEY": lambda: lake.sink("u", key="nothing").open("run", "q", CHANGES),
        "SINK_FAILED": lambda: ps.sinks.iceberg("db.t", type="nothing").open("run", "q", CHANGES),
        "SECRET_MISSING": lambda: ps.sinks.iceberg("db.t", uri=ps.secret("NOT_SET")).open("run", "q", CHANGES),
    }
    for condition, call in wrong.items():
        with pytest.raises(ps.PenstockError, match=condition):
            call()
    double = lake.sink("d", key="k")
    double.open("run", "q", CHANGES)
    rows = as_batches([(1, "x", "+", 1), (1, "y", "+", 1)], CHANGES)
    with pytest.raises(ps.DataError, match="SINK_KEY_NOT_UNIQUE"):
        double.commit(0, [double.write(Attempt(0, 0, "a"), iter(rows))])


def test_checkpoint_has_no_password(tmp_path: Path) -> None:
    assert Lake(tmp_path).sink("t").connector is not None
    assert ps.sinks.iceberg("db.t", uri="postgresql://me:pw@host/db").connector is None
    assert ps.sinks.iceberg("db.t", uri="http://host", token="pw").connector is None
    assert ps.sinks.iceberg("db.t", uri="http://host", token=ps.secret("TOKEN")).connector is not None


@pytest.mark.parametrize("key", ["", "d, z, f, n, i, t, b, s"])
def test_types_of_values_and_keys(tmp_path: Path, key: str) -> None:
    schema = pa.schema([("d", pa.date32()), ("z", pa.timestamp("us", "Europe/Berlin")), ("n", pa.decimal128(9, 2)),
                        ("f", pa.float64()), ("i", pa.int8()), ("t", pa.timestamp("us")), ("b", pa.bool_()),
                        ("s", pa.string()), ("_op", pa.string()), ("_ts", pa.timestamp("us"))])  # fmt: skip
    table = pa.table([[1, None, 1], [5, None, 5], [None, None, 7], [float("nan"), None, 1.5], [-1, None, 3],
                      [5, None, 6], [True, None, False], ["", None, "x"], ["+"] * 3, [7, 8, 9]],
                     schema=schema)  # fmt: skip
    lake = Lake(tmp_path)
    sink = lake.sink("t", key=key)
    for token in "ab":
        sink.open("run", "q", schema)
        sink.commit(0, [sink.write(Attempt(0, 0, token), iter(table.to_batches()))])
    found = lake.load("t").scan().to_arrow().sort_by("_ts")
    names = found.column_names
    assert [str(row) for row in found.to_pylist()] == [
        str(row) for row in table.select(names).cast(found.schema).to_pylist()
    ]
    if key:  # all leave again, but one
        away = table.slice(0, 2).set_column(8, "_op", pa.array(["-"] * 2))
        sink.commit(1, [sink.write(Attempt(1, 0, "b"), iter(away.to_batches()))])
        assert lake.load("t").scan().to_arrow().column("_ts").to_pylist() == table.column("_ts").to_pylist()[2:]
