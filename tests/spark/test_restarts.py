"""Starts on a checkpoint with real Spark: refused ones lose nothing, changed pipelines continue exactly."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkpoint_fixture import (
    CELLS,
    QUERIES,
    ROOMS,
    SCHEMA,
    build_fixture_pipeline,
    make_rows,
    unpack_fixture,
    write_batch,
)
from faults import FailingTaskSink
from inspect_spark import read_session_settings
from spark_support import drain, read_stream

import penstock as ps
from penstock.spark import layout, sinks
from penstock.spark.colocation import place_queries
from penstock.spark.driver.launch import remove_unfinished_offsets
from penstock.spark.pipeline import Pipeline
from penstock.spark.placement import Placement
from penstock.spark.rescale import rescale
from penstock.spark.route import Route
from penstock.spark.sinks import Sink
from penstock.spark.storage import Folder
from penstock.testing import difference

PAIRS, RECENT = QUERIES["pairs"], QUERIES["recent"]


def build_pipeline(spark: Any, folder: Path, queries: dict[str, str], sink: Sink | None = None) -> tuple[Pipeline, Any]:
    """A pipeline over the files in a folder; its queries share a sink or have memory sinks."""
    pipe = ps.Pipeline(spark)
    for name in ("t", "h"):
        pipe.stream(name, read_stream(spark, SCHEMA, folder / name), "ts")
    pipe.table("rooms", ROOMS)
    answers = {name: sinks.memory() for name in queries}
    for name, text in queries.items():
        pipe.query(name, text, sink=sink or answers[name])
    return pipe, answers


def run_embedded(
    text: str, batches: range, seen: range | None = None, *, finish: bool = False, rooms: pa.Table = ROOMS
) -> pa.Table:
    """The results of a query in some micro-batches; `seen`: all micro-batches whose rows it has seen."""
    engine = ps.Engine()
    for name in "th":
        engine.stream(name, SCHEMA, time="ts")
    engine.table("rooms", rooms)
    engine.query("q", text)
    answers = []
    for batch in seen or batches:
        results = engine.push({"t": make_rows(batch, 0.0), "h": make_rows(batch, 0.5)})
        answers += [results["q"]] if batch in batches else []
    return pa.concat_tables([*answers, *([engine.flush()["q"]] if finish else [])])


def test_run_that_ended_in_its_first_offsets_starts(spark: Any, tmp_path: Path) -> None:
    """Spark leaves an incomplete file if a run ends while it writes the offsets of the first micro-batch."""
    write_batch(tmp_path, 0)
    drain(build_pipeline(spark, tmp_path, {"pairs": PAIRS})[0].start(tmp_path / "ck", cells=CELLS))
    for name in ("offsets", "commits", "state", "sources"):  # the checkpoint as it was before the first micro-batch
        shutil.rmtree(tmp_path / "ck" / name)
    (tmp_path / "ck" / "offsets").mkdir()
    for name in (".0.12b63590.tmp", "..0.12b63590.tmp.crc"):
        (tmp_path / "ck" / "offsets" / name).touch()
    pipe, answers = build_pipeline(spark, tmp_path, {"pairs": PAIRS})
    drain(pipe.start(tmp_path / "ck", cells=CELLS), finish=True)
    assert difference(answers["pairs"].table(), run_embedded(PAIRS, range(1), finish=True)) is None


def test_offsets_of_a_micro_batch_are_kept(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for name in ("0", ".1.12b63590.tmp"):
        (tmp_path / "offsets" / name).touch()
    remove_unfinished_offsets(Folder(str(tmp_path)))
    assert sorted(path.name for path in (tmp_path / "offsets").iterdir()) == [".1.12b63590.tmp", "0"]


def test_refused_starts_lose_no_windows(spark: Any, tmp_path: Path) -> None:
    write_batch(tmp_path, 0)
    both = {"pairs": PAIRS, "recent": RECENT}
    pipe, first = build_pipeline(spark, tmp_path, both)
    run = pipe.start(tmp_path / "ck", cells=CELLS)
    try:
        run.processAllAvailable()
        other, _ = build_pipeline(spark, tmp_path, {"recent": RECENT})
        with pytest.raises(ps.QueryError, match="CHECKPOINT_IN_USE"):
            other.start(tmp_path / "ck")
        elsewhere, _ = build_pipeline(spark.newSession(), tmp_path, {"recent": RECENT})
        with pytest.raises(ps.QueryError, match="CHECKPOINT_IN_USE"):
            elsewhere.start(tmp_path / "ck")
        assert run.isActive
    finally:
        run.stop()
    unopened, _ = build_pipeline(spark, tmp_path, {"recent": RECENT}, _UnopenableSink())
    with pytest.raises(ps.PenstockError, match="SINK_FAILED"):
        unopened.start(tmp_path / "ck")
    write_batch(tmp_path, 1)
    failing, _ = build_pipeline(
        spark, tmp_path, {"recent": RECENT}, FailingTaskSink(sinks.parquet(str(tmp_path / "failing")), 1)
    )
    with pytest.raises(ps.PenstockError, match="SINK_FAILED"):
        drain(failing.start(tmp_path / "ck"))
    pipe, second = build_pipeline(spark, tmp_path, both)
    run = drain(pipe.start(tmp_path / "ck"))  # with the cells of the checkpoint
    assert run.cells == CELLS
    assert run.status["evolved"] == []
    for name, text in both.items():
        found = pa.concat_tables([first[name].table(), second[name].table()])
        assert difference(found, run_embedded(text, range(2))) is None, name


class _UnopenableSink:
    def open(self, run: str, name: str, schema: pa.Schema) -> None:
        del run, schema
        raise ValueError(f"{name} cannot be opened")

    def write(self, batch: int, rows: pa.Table) -> None:
        del batch, rows
        raise AssertionError("it was never opened")


def place_in_one_cell(*arguments: Any) -> dict[str, Placement]:
    """Another version's way to divide the rows: all of them in cell 1."""
    found = place_queries(*arguments)
    return {name: Placement(dict.fromkeys(each.routes, Route(1, ()))) for name, each in found.items()}


def test_other_routes_are_refused_or_moved(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_batch(tmp_path, 0)
    pipe, _ = build_pipeline(spark, tmp_path, {"pairs": PAIRS})
    drain(pipe.start(tmp_path / "ck", cells=CELLS))
    write_batch(tmp_path, 1)
    monkeypatch.setattr(layout, "place_queries", place_in_one_cell)
    pipe, answers = build_pipeline(spark, tmp_path, {"pairs": PAIRS})
    with pytest.raises(ps.QueryError, match=r"INLETS_DIFFER.*pairs.*t is divided.*rescale \S+ NEW --cells 2"):
        pipe.start(tmp_path / "ck")
    rescale(spark, str(tmp_path / "ck"), str(tmp_path / "new"), CELLS)
    monkeypatch.undo()
    rescale(spark, str(tmp_path / "new"), str(tmp_path / "back"), CELLS)
    drain(pipe.start(tmp_path / "back"))
    assert difference(answers["pairs"].table(), run_embedded(PAIRS, range(1, 2), range(2))) is None


def test_evolved_pipeline_keeps_windows(spark: Any, tmp_path: Path) -> None:
    """A query with another SELECT list keeps its windows, one with a longer window starts with empty ones."""
    write_batch(tmp_path, 0)
    pipe, _ = build_pipeline(spark, tmp_path, QUERIES)
    drain(pipe.start(tmp_path / "ck", cells=CELLS))
    write_batch(tmp_path, 1)
    texts = {
        "pairs": PAIRS.replace("t.v, h.v AS w", "t.v - h.v AS d").replace("t.v > 1", "t.v > 1 AND h.v > 1"),
        "recent": RECENT.replace("  ", " ").replace("SELECT", "select"),
        "sums": QUERIES["sums"].replace("60", "70"),
    }
    pipe = ps.Pipeline(spark)
    wider = SCHEMA.append(pa.field("unit", pa.string()))
    pipe.stream("h", read_stream(spark, SCHEMA, tmp_path / "h"), "ts")  # the order of declarations is another one
    pipe.stream("t", read_stream(spark, wider, tmp_path / "t"), "ts", lateness=3)
    rooms = pa.concat_tables([ROOMS, pa.table({"k": [3], "name": ["attic"]})])
    pipe.table("rooms", rooms)
    answers = {name: sinks.memory() for name in texts}
    for name, text in texts.items():
        pipe.query(name, text, sink=answers[name])
    with pytest.raises(ps.QueryError, match="CHECKPOINT_DIFFERS"):
        pipe.start(tmp_path / "ck")
    run = pipe.start(tmp_path / "ck", evolve=True)
    notes = run.status["evolved"]
    drain(run, finish=True)
    assert [note.split(";")[0].split(":")[0] for note in notes] == [
        "stream t", "table rooms", "query pairs is changed and keeps its windows",
        "query sums is changed and starts with empty windows",
    ]  # fmt: skip
    for name, seen in {"pairs": range(2), "recent": range(2), "sums": range(1, 2)}.items():
        wanted = run_embedded(texts[name], range(1, 2), seen, finish=True, rooms=rooms)
        assert difference(answers[name].table(), wanted) is None, name


def test_added_query_survives_restart(spark: Any, tmp_path: Path) -> None:
    """Settings and local properties of the user's session are as they were after a start."""
    write_batch(tmp_path, 0)
    settings = read_session_settings(spark)
    pipe, _ = build_pipeline(spark, tmp_path, {"pairs": PAIRS})
    run = pipe.start(tmp_path / "ck", cells=CELLS)
    try:
        assert read_session_settings(spark) == settings
        run.processAllAvailable()
        run.add("recent", RECENT, sink=sinks.parquet(str(tmp_path / "out")))
        run.add("sums", QUERIES["sums"], sink=sinks.memory())
        write_batch(tmp_path, 1)
        run.processAllAvailable()
    finally:
        run.stop()
    write_batch(tmp_path, 2)
    script, _ = build_pipeline(spark, tmp_path, {"pairs": PAIRS})
    with pytest.raises(ps.QueryError, match=r"QUERY_NOT_DECLARED.*pipe.query\('sums'"):
        script.start(tmp_path / "ck")
    answer = sinks.memory()
    script.query("sums", QUERIES["sums"], sink=answer)
    run = script.start(tmp_path / "ck")
    drain(run)
    assert set(run.metrics()["queries"]) == {"pairs", "recent", "sums"}
    assert difference(answer.table(), run_embedded(QUERIES["sums"], range(2, 3), range(1, 3))) is None
    wanted = run_embedded(RECENT, range(1, 3))
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert difference(pa.concat_tables([pq.read_table(file).cast(wanted.schema) for file in files]), wanted) is None


@pytest.mark.parametrize("number", [3, 4])
def test_stored_checkpoint_continues(spark: Any, tmp_path: Path, number: int) -> None:
    """A checkpoint of this format and one of the format before; see `checkpoint_fixture`."""
    place = tmp_path / "ck"
    unpack_fixture(number, tmp_path)
    for batch in range(3):
        write_batch(tmp_path, batch)
    pipe, answers = build_fixture_pipeline(spark, tmp_path)
    run = drain(pipe.start(place))
    assert run.status["evolved"] == []
    for name, text in QUERIES.items():
        assert difference(answers[name].table(), run_embedded(text, range(2, 3), range(3))) is None, name
    assert json.loads((place / "penstock.json").read_text())["format"] == 4


def test_speculation_is_refused(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, _ = build_pipeline(spark, tmp_path, {"pairs": PAIRS})
    conf = spark.sparkContext.getConf().set("spark.speculation", "true")
    monkeypatch.setattr(spark.sparkContext, "getConf", lambda: conf)
    with pytest.raises(ps.ResourceError, match=r"SPECULATION.*'spark.speculation', 'false'"):
        pipe.start(tmp_path / "ck")
