"""The record of a pipeline in its checkpoint: what continues, what is refused, and when it is written (no Spark)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.adapt import AddQuery, DropQuery
from penstock.cql import Connector, Stream
from penstock.spark.driver.checkpoint_metadata import CheckpointMetadata
from penstock.spark.driver.continuation import Continuation
from penstock.spark.layout import Layout
from penstock.spark.pipeline_config import QuerySpec
from penstock.spark.spec import PipelineSpec
from penstock.spark.storage import Folder

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.float64())])
ROOMS = pa.table({"k": [0, 1], "name": ["hall", "lab"]})
JOIN = "SELECT t.k, h.v FROM t [RANGE 100], h [RANGE 100] WHERE t.k = h.k AND t.v > 1"
ROWS = "SELECT k, v FROM t [PARTITION BY k ROWS 3]"


def build_spec(
    queries: dict[str, str], *, lateness: int = 0, schema: pa.Schema = SCHEMA, rooms: pa.Table = ROOMS, cells: int = 2
) -> PipelineSpec:
    streams = (Stream("t", schema, "ts", lateness), Stream("h", SCHEMA, "ts"))
    return PipelineSpec(streams, {"rooms": rooms}, tuple(QuerySpec(*item) for item in queries.items()), cells)


class Checkpoint:
    """A checkpoint whose micro-batches are committed by hand."""

    def __init__(self, path: Path) -> None:
        self.folder = Folder(str(path))
        self.batch = 0

    def open(self, spec: PipelineSpec, *, evolve: bool = False) -> tuple[CheckpointMetadata, Continuation]:
        return CheckpointMetadata.open(self.folder, spec, evolve=evolve)

    def begin(self, spec: PipelineSpec, *, evolve: bool = False) -> Continuation:
        """Start a pipeline, whose first micro-batch begins."""
        return self.begin_batch(spec, evolve=evolve)[1]

    def begin_batch(self, spec: PipelineSpec, *, evolve: bool = False) -> tuple[CheckpointMetadata, Continuation]:
        metadata, found = self.open(spec, evolve=evolve)
        self.folder.child("offsets").write(str(self.batch), b"")
        metadata.begin(self.batch)
        return metadata, found

    def commit(self) -> None:
        self.folder.child("commits").write(str(self.batch), b"")
        self.batch += 1

    def run(self, spec: PipelineSpec, *, evolve: bool = False) -> Continuation:
        """Start a pipeline and commit a micro-batch."""
        found = self.begin(spec, evolve=evolve)
        self.commit()
        return found

    def inlets(self, found: Continuation, name: str) -> tuple[int, ...]:
        return found.layout.spec.config.find_query(name).inlets


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path)


def test_record_counts_from_committed_micro_batch(checkpoint: Checkpoint) -> None:
    """A start that fails, before or within its first micro-batch, does not change what the next one continues."""
    both = build_spec({"a": JOIN, "b": ROWS})
    first = checkpoint.run(both)
    checkpoint.open(build_spec({"a": JOIN}))  # never began
    again, found = checkpoint.open(both)
    assert checkpoint.inlets(found, "b") == checkpoint.inlets(first, "b")
    checkpoint.begin(build_spec({"a": JOIN}))  # began, not committed
    assert json.loads(checkpoint.folder.read("penstock.json") or b"")["current"]["first_batch"] == 1
    _, found = checkpoint.open(both)
    assert checkpoint.inlets(found, "b") == checkpoint.inlets(first, "b")
    assert found.notes == ()
    checkpoint.run(build_spec({"a": JOIN}))
    alone = checkpoint.run(both)
    assert checkpoint.inlets(alone, "a") == checkpoint.inlets(first, "a")
    assert not set(checkpoint.inlets(alone, "b")) & {*checkpoint.inlets(first, "a"), *checkpoint.inlets(first, "b")}
    assert again.run == CheckpointMetadata.read(checkpoint.folder).run  # type: ignore[union-attr]


def test_queries_are_free_before_first_commit(checkpoint: Checkpoint) -> None:
    checkpoint.begin(build_spec({"a": JOIN}))
    run = CheckpointMetadata.read(checkpoint.folder)
    metadata, found = checkpoint.open(build_spec({"a": ROWS}))
    assert run is not None
    assert metadata.run == run.run  # files of the micro-batch may have been written under this name
    assert found.notes == ()


def test_stop_before_first_micro_batch_ran(checkpoint: Checkpoint) -> None:
    """Spark has planned the first micro-batch: its sources and partitions are fixed, queries are not."""
    metadata, _ = checkpoint.open(build_spec({"a": JOIN}))
    metadata.prepare()
    checkpoint.open(build_spec({"a": JOIN}, cells=3))  # Spark has planned nothing yet
    checkpoint.folder.child("offsets").write("0", b"")
    with pytest.raises(ps.QueryError, match="CELLS_DIFFER"):
        checkpoint.open(build_spec({"a": JOIN}, cells=3))
    for text in (JOIN, ROWS):
        again, found = checkpoint.open(build_spec({"a": text}))
        assert again.run == metadata.run
        assert found.notes == ()


def test_live_run_restores_its_record(checkpoint: Checkpoint) -> None:
    """Another driver repeated the micro-batch, and this one committed it."""
    both = build_spec({"a": JOIN, "b": ROWS})
    live, _ = checkpoint.open(both)
    live.begin(0)
    checkpoint.begin(build_spec({"a": JOIN}))
    checkpoint.commit()
    live.begin(1)
    _, found = checkpoint.open(both)
    assert found.notes == ()
    assert found.record.generation == 0


@pytest.mark.parametrize(
    "text",
    [
        JOIN.lower().replace("range", "RANGE"),
        f"  {JOIN.replace(' ', chr(10))} ",
        JOIN.replace("FROM t ", "FROM t /* the thermometers */ ").replace("[RANGE 100],", "[RANGE 100] AS t,"),
        f"-- hot\n{JOIN}",
    ],
)
def test_same_query_in_other_words(checkpoint: Checkpoint, text: str) -> None:
    first = checkpoint.run(build_spec({"a": JOIN}))
    found = checkpoint.run(build_spec({"a": text}))
    assert checkpoint.inlets(found, "a") == checkpoint.inlets(first, "a")
    assert found.notes == ()
    assert found.layout.spec.config.find_query("a").text == text


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (JOIN.replace("h.v", "h.v + 1 AS w"), "keeps its windows"),
        (JOIN.replace("t.v > 1", "t.v > 1 AND t.v < 9"), "keeps its windows"),
        (JOIN.replace("[RANGE 100],", "[RANGE 50],"), "keeps its windows"),
        (JOIN.replace("[RANGE 100],", "[RANGE 101],"), "empty windows: its window on t holds more rows"),
        (JOIN.replace("t.v > 1", "t.v > 0"), "empty windows: its conditions on t let rows through"),
        (JOIN.replace("t.k = h.k", "t.v = h.v"), "empty windows: t is divided among the cells in another way"),
        (JOIN.replace("h.v FROM", "h.v, h.ts AS at, t.v AS w FROM"), "keeps its windows"),
        (ROWS, "empty windows: it reads other streams"),
    ],
)
def test_changed_query(checkpoint: Checkpoint, text: str, note: str) -> None:
    first = checkpoint.run(build_spec({"a": JOIN, "other": ROWS}))
    changed = build_spec({"a": text, "other": ROWS})
    with pytest.raises(ps.QueryError) as caught:
        checkpoint.open(changed)
    assert caught.value.condition == "QUERY_DIFFERS"
    assert all(part in str(caught.value) for part in (JOIN, text, "evolve=True"))
    found = checkpoint.run(changed, evolve=True)
    assert len(found.notes) == 1
    assert note in found.notes[0]
    kept = checkpoint.inlets(found, "a") == checkpoint.inlets(first, "a")
    assert kept == ("keeps" in note)
    assert checkpoint.inlets(found, "other") == checkpoint.inlets(first, "other")
    assert checkpoint.run(changed).notes == ()


def test_other_column_read_starts_empty(checkpoint: Checkpoint) -> None:
    checkpoint.run(build_spec({"a": "SELECT k FROM t [RANGE 100]"}))
    found = checkpoint.run(build_spec({"a": "SELECT k, v FROM t [RANGE 100]"}), evolve=True)
    assert "it did not read t.v" in found.notes[0]


def test_changed_streams(checkpoint: Checkpoint) -> None:
    wider = SCHEMA.append(pa.field("unit", pa.string()))
    first = checkpoint.run(build_spec({"a": JOIN}))
    changed = build_spec({"a": JOIN}, lateness=5, schema=wider)
    with pytest.raises(ps.QueryError, match=r"CHECKPOINT_DIFFERS.*LATENESS is 5, was 0; unit string is new.*evolve"):
        checkpoint.open(changed)
    found = checkpoint.run(changed, evolve=True)
    assert found.notes == ("stream t: LATENESS is 5, was 0; unit string is new",)
    assert checkpoint.inlets(found, "a") == checkpoint.inlets(first, "a")
    other = pa.schema([("ts", pa.timestamp("us")), *list(SCHEMA)[1:]])
    with pytest.raises(ps.QueryError, match=r"CHECKPOINT_DIFFERS.*type of the time column is timestamp, was bigint"):
        checkpoint.open(build_spec({"a": "SELECT k FROM t [NOW]"}, lateness=5, schema=other), evolve=True)
    more = replace(changed, streams=(*changed.streams, Stream("x", SCHEMA, "ts")))
    with pytest.raises(ps.QueryError, match=r"CHECKPOINT_DIFFERS.*x is new"):
        checkpoint.open(more, evolve=True)


def test_streams_keep_the_order_of_the_checkpoint(checkpoint: Checkpoint) -> None:
    """Spark finds the offsets of a source by its place."""
    spec = build_spec({"a": JOIN})
    checkpoint.run(spec)
    found = checkpoint.run(replace(spec, streams=spec.streams[::-1]))
    assert [stream.name for stream in found.layout.spec.streams] == ["t", "h"]


def test_changed_table_is_noted(checkpoint: Checkpoint) -> None:
    spec = build_spec({"a": JOIN})
    checkpoint.run(spec)
    assert checkpoint.run(build_spec({"a": JOIN}, rooms=ROOMS.take([1, 0]))).notes == ()  # the order does not matter
    grown = build_spec({"a": JOIN}, rooms=pa.concat_tables([ROOMS, ROOMS.slice(0, 1)]))
    found = checkpoint.run(grown)
    assert "table rooms: other rows (3, was 2)" in found.notes[0]
    assert checkpoint.run(grown).notes == ()


def test_cells_differ_names_rescale(checkpoint: Checkpoint) -> None:
    checkpoint.run(build_spec({"a": JOIN}))
    with pytest.raises(ps.QueryError, match=r"CELLS_DIFFER.*2 cells, not 3.*penstock rescale \S+ NEW --cells 3"):
        checkpoint.open(build_spec({"a": JOIN}, cells=3))


def change_queries(checkpoint: Checkpoint, spec: PipelineSpec, sink: Connector | None) -> None:
    """A run that adds a query and drops another one."""
    metadata, found = checkpoint.begin_batch(spec)
    config = AddQuery("late", ROWS).configure(found.layout.spec.config, 1).mark_added("late", sink)
    metadata.change_config(checkpoint.batch + 1, Layout(found.layout.spec.with_config(config)))
    config = DropQuery("b").configure(metadata.schedule.last, 2)
    metadata.change_config(checkpoint.batch + 1, Layout(found.layout.spec.with_config(config)))
    checkpoint.commit()


def test_queries_changed_while_running(checkpoint: Checkpoint) -> None:
    spec = build_spec({"a": JOIN, "b": ROWS})
    change_queries(checkpoint, spec, Connector("parquet", (("path", "out"),)))
    found = checkpoint.run(spec)
    assert [query.name for query in found.restored] == ["late"]
    assert [query.name for query in found.layout.spec.queries] == ["a", "b", "late"]
    assert found.notes == ("query b was dropped while running and is declared; it starts again with empty windows",)
    later = checkpoint.run(build_spec({"a": JOIN}))
    assert later.notes == ("query b is not declared any more; its windows are dropped",)
    assert checkpoint.inlets(later, "late") == checkpoint.inlets(found, "late")


def test_added_query_without_description(checkpoint: Checkpoint) -> None:
    spec = build_spec({"a": JOIN, "b": ROWS})
    change_queries(checkpoint, spec, None)
    with pytest.raises(ps.QueryError, match=r"QUERY_NOT_DECLARED.*late.*pipe.query\('late', .*evolve=True"):
        checkpoint.open(spec)
    _, declared = checkpoint.open(build_spec({"a": JOIN, "late": ROWS}))
    assert declared.restored == ()
    assert "query late was added while running; it is dropped" in checkpoint.run(spec, evolve=True).notes[0]


def test_derived_streams_start_together(checkpoint: Checkpoint) -> None:
    spec = build_spec({"made": "SELECT k, v FROM t [NOW]", "reader": "SELECT k FROM made [RANGE 9]", "a": JOIN})
    spec = replace(spec, queries=(replace(spec.queries[0], derived=True), *spec.queries[1:]))
    first = checkpoint.run(spec)
    text = "SELECT k FROM made [RANGE 8]"
    changed = replace(spec, queries=(spec.queries[0], replace(spec.queries[1], text=text), spec.queries[2]))
    found = checkpoint.run(changed, evolve=True)
    assert checkpoint.inlets(found, "a") == checkpoint.inlets(first, "a")
    assert checkpoint.inlets(found, "made") != checkpoint.inlets(first, "made")
    assert len(found.notes) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 5}, "newer version of Penstock"),
        ({"format": 2}, "too old"),
        ({"format": "4"}, "too old"),
        ({"current": {}}, "not a record"),
        ({"run": None, "before": None}, "not a record"),
    ],
)
def test_unreadable_record_is_refused(checkpoint: Checkpoint, change: dict[str, Any], message: str) -> None:
    checkpoint.run(build_spec({"a": JOIN}))
    saved = json.loads(checkpoint.folder.read("penstock.json") or b"")
    checkpoint.folder.write("penstock.json", json.dumps({**saved, **change}).encode())
    with pytest.raises(ps.QueryError, match=f"BAD_CHECKPOINT.*{message}"):
        checkpoint.open(build_spec({"a": JOIN}))
