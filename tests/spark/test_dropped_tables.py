"""The table of a sink is dropped or changed while a run writes: the commit fails, and the next start goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from iceberg_support import Lake
from postgres_support import Database, as_batches

import penstock as ps
from penstock.spark.sinks import Attempt

CHANGES = pa.schema([("k", pa.int64()), ("v", pa.string()), ("_op", pa.string()), ("_ts", pa.int64())])


class DeltaPlace:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "t"

    def sink(self, key: str) -> Any:
        return ps.sinks.delta(self.path, key=key)

    def drop(self) -> None:
        shutil.rmtree(self.path)

    def read(self) -> list[tuple[Any, ...]]:
        rows = DeltaTable(self.path).to_pyarrow_table(columns=["k", "v"]).to_pylist()
        return sorted((tuple(row.values()) for row in rows), key=repr)


class IcebergPlace:
    def __init__(self, folder: Path) -> None:
        self.lake = Lake(folder)

    def sink(self, key: str) -> Any:
        return self.lake.sink("t", key=key)

    def drop(self) -> None:
        self.lake.drop("t")

    def read(self) -> list[tuple[Any, ...]]:
        return self.lake.read("t", "k", "v")


class PostgresPlace:
    def __init__(self, folder: Path) -> None:  # noqa: ARG002 - as the others
        self.database = Database()

    def sink(self, key: str) -> Any:
        return self.database.sink("t", key=key, create=True)

    def drop(self) -> None:
        self.database.execute(f'DROP TABLE "{self.database.schema}".t')

    def read(self) -> list[tuple[Any, ...]]:
        return self.database.read("t", "k, v")


@pytest.fixture(params=[DeltaPlace, IcebergPlace, pytest.param(PostgresPlace, marks=pytest.mark.services)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    build: Callable[[Path], Any] = request.param
    found = build(tmp_path)
    yield found
    if isinstance(found, PostgresPlace):
        found.database.drop()


def write(sink: Any, batch: int, row: tuple[Any, ...]) -> list[Any]:
    return [sink.write(Attempt(batch, 0, uuid4().hex), iter(as_batches([row], CHANGES)))]


@pytest.mark.parametrize("key", ["", "k"])
def test_dropped_table(place: Any, key: str) -> None:
    sink = place.sink(key)
    sink.open("run", "q", CHANGES)
    sink.commit(0, write(sink, 0, (1, "x", "+", 1)))
    messages = write(sink, 1, (2, "y", "+", 2))
    place.drop()
    with pytest.raises(Exception, match=r"(?i)t\b"):
        sink.commit(1, messages)
    again = place.sink(key)
    again.open("run", "q", CHANGES)  # a start creates the table, and repeats the micro-batch
    again.commit(1, write(again, 1, (2, "y", "+", 2)))
    again.commit(2, write(again, 2, (3, "z", "+", 3)))
    assert place.read() == [(2, "y"), (3, "z")]


@pytest.mark.parametrize("key", ["", "k"])
def test_long_texts_and_null_keys(place: Any, key: str) -> None:
    sink, text = place.sink(key), "x" * 5_000_000
    sink.open("run", "q", CHANGES)
    rows = [(None, text, "+", 1), (1, "\u0001,\"'\\\n\t", "+", 1)]
    sink.commit(0, [sink.write(Attempt(0, 0, "a"), iter(as_batches(rows, CHANGES)))])
    assert sorted((k is None, len(v)) for k, v in place.read()) == [(False, 7), (True, 5_000_000)]
