"""The memory of cells: limits of a pipeline and of Spark, rows on disk, refused micro-batches, engines that leave."""

from __future__ import annotations

import gc
import json
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cell_runs import CHUNKS, check, choose_maintenance, draw_case, list_pushes, push_until_committed
from cell_support import Cluster
from cell_support import build_spec as build_case_spec
from inspect_engine import joins_of
from inspect_spark import cached_bytes, cached_engines
from spark_support import drain, read_stream, write_file

import penstock as ps
from penstock.cql import Stream
from penstock.errors import QueryError, ResourceError
from penstock.spark import sinks
from penstock.spark.driver.failures import translate_error
from penstock.spark.pipeline_config import QuerySpec
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.cell_memory import CellMemory, choose_cell_memory, find_cell_memory
from penstock.spark.worker.cell_state import METRICS, OutputRow
from penstock.spark.worker.segments import Segment, plan_loads
from penstock.spark.worker.setup import freeze_gc
from penstock.state import SHIPPED
from penstock.testing import Push

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("note", pa.string())])
ROWS = 500
TEXT = "SELECT a.k, a.note AS x, b.note AS y FROM a [RANGE 10000], b [RANGE 10000] WHERE a.k = b.k"
MIB, GIB = 1 << 20, 1 << 30


@pytest.fixture(autouse=True)
def choose_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows spill into a folder of the test."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "local"))


def make_rows(push: int, rows: int = ROWS) -> dict[str, pa.Table]:
    tables = {}
    for order, name in enumerate("ab"):
        rng = np.random.default_rng((order, push))
        notes = [f"{number:01000d}" for number in rng.integers(0, 1 << 30, rows)]
        times, keys = np.arange(push * rows, (push + 1) * rows), rng.integers(0, 20_000, rows)
        tables[name] = pa.table({"ts": times, "k": keys, "note": notes}, SCHEMA)
    return tables


def make_spec(cells: int, memory: int | None) -> PipelineSpec:
    streams = tuple(Stream(name, SCHEMA, "ts") for name in "ab")
    return PipelineSpec(streams, {}, (QuerySpec("q", TEXT),), cells, memory=memory)


def run_embedded(pushes: int, rows: int = ROWS) -> list[tuple[Any, ...]]:
    engine = ps.Engine(warn=False)
    for name in "ab":
        engine.stream(name, SCHEMA, time="ts")
    engine.query("q", TEXT)
    return sort_rows(engine.push(make_rows(push, rows))["q"] for push in range(pushes))


def sort_rows(tables: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for table in tables for row in table.to_pylist())


def read_reports(outputs: list[OutputRow]) -> list[dict[str, Any]]:
    return [json.loads(data) for _, kind, _, _, data in outputs if kind == METRICS]


def list_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


# ── the limit ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("asked", "cells_per_core", "worker", "mapped", "limit", "together"),
    [
        (None, 1, None, MIB, None, None),
        (5, 1, None, MIB, 5, None),
        (5, 1, 10 * GIB, 2 * GIB, 5, 4 * GIB),
        (None, 1, 10 * GIB, 2 * GIB, 4 * GIB, 4 * GIB),
        (None, 4, 10 * GIB, 2 * GIB, GIB, 4 * GIB),
        (None, 2, 10 * GIB, MIB, 33 * GIB // 16, 33 * GIB // 8),
        (None, 1, 16 * MIB, MIB, MIB, MIB),
    ],
)
def test_limit_of_cell(
    asked: int | None, cells_per_core: int, worker: int | None, mapped: int, limit: int | None, together: int | None
) -> None:
    found = choose_cell_memory(asked, cells_per_core, worker, mapped, "/spill")
    assert (None if found is None else (found.limit, found.worker)) == (None if limit is None else (limit, together))


def test_limit_from_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert find_cell_memory(make_spec(1, None)) is None
    monkeypatch.setenv("PYSPARK_EXECUTOR_MEMORY_MB", str(1 << 20))
    found = find_cell_memory(make_spec(1, None))
    assert found is not None
    assert MIB << 17 < found.limit < MIB << 19
    assert found.origin == "from spark.executor.pyspark.memory"
    assert found.spill == str(tmp_path / "local")


def test_segments_fit_limit() -> None:
    memory = CellMemory(16 * MIB, "/spill")
    assert memory.fit_segments(SHIPPED).segment_bytes == MIB
    assert replace(memory, limit=100).fit_segments(SHIPPED).segment_bytes == 4096
    assert replace(memory, limit=1 << 40).fit_segments(SHIPPED) == SHIPPED


def test_loads_in_parts() -> None:
    parts = [
        Segment(1, 1, 4, {1: (2, 0, 9), 2: (2, 0, 5)}, 10),
        Segment(2, 2, 4, {1: (4, 7, 19)}, 10),
        Segment(3, 3, 2, {2: (2, 8, 30), 9: (1, 1, 1)}, 25),
    ]
    found = list(plan_loads(parts, {1: "A", 2: "B"}, {"A": 15, "B": 31}, 20))
    assert [([item.first for item in part], until) for part, until in found] == [
        ([1, 2], {"A": 15, "B": 8}),
        ([3], {"A": 15, "B": 31}),
    ]
    found = list(plan_loads(parts, {1: "A", 2: "B"}, {"A": 15}, 1))
    assert [until for _, until in found] == [{"A": 7}, {"A": 15}, {"A": 15}]
    assert list(plan_loads([], {}, {"A": 3}, 1)) == [([], {"A": 3})]


def test_bad_limit_is_refused(spark: Any) -> None:
    with pytest.raises(QueryError, match="BAD_SIZE"):
        ps.Pipeline(spark, memory="much")


# ── cells without Spark ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("chunk", CHUNKS)
def test_limited_cells_with_faults(chunk: int) -> None:
    """The law with a limit: with the smallest thresholds every push empties states and moves all rows to disk."""
    for seed in range(chunk + 1, chunk + 10, 4):
        case, queries, rng = draw_case(seed, 8)
        spec = build_case_spec(case, queries, rng.choice((1, 2, 3)))
        cluster = Cluster(replace(spec, maintenance=choose_maintenance(seed), memory=1 << 30), workers=2)
        outputs: list[OutputRow] = []
        for step in list_pushes(case):
            outputs += push_until_committed(cluster, step, rng)
        check(seed, case, cluster, outputs, queries)


def test_windows_larger_than_limit(tmp_path: Path) -> None:
    """The rows of a cell take more than twice its limit: exact also after the engine is rebuilt."""
    cluster, outputs = Cluster(make_spec(2, 4 * MIB), workers=2), []
    for push in range(30):
        outputs += cluster.push(Push(make_rows(push)), worker=lambda push=push: push // 12 % 2)
    tables = cluster.decode_tables(outputs, "result", "q")
    assert sort_rows(tables) == run_embedded(30)
    reports = read_reports(outputs)
    assert "rebuild" in cluster.cache_outcomes
    assert max(report["memory"]["spilled"] for report in reports) > 4 * MIB
    assert all(report["memory"]["held"] <= report["memory"]["limit"] == 4 * MIB for report in reports)
    assert list_files(tmp_path / "local")


def test_refused_micro_batch_names_cell(tmp_path: Path) -> None:
    cluster = Cluster(make_spec(3, 4 * MIB))
    cluster.push(Push(make_rows(0, 100)))
    with pytest.raises(ResourceError, match=r"MEMORY_LIMIT.*cell \d of 3 holds .*memory of the pipeline") as raised:
        cluster.push(Push(make_rows(1, 8_000)))
    assert raised.value.parameters["cell"] in range(3)
    assert not list_files(tmp_path / "local")
    told = translate_error(RuntimeError(f"task failed\npenstock.errors.ResourceError: {raised.value}\n"))
    assert (type(told), told.condition, told.message) == (ResourceError, "MEMORY_LIMIT", raised.value.message)
    found = cluster.push(Push(make_rows(1, 100)))  # the state is that before the refused micro-batch
    assert cluster.decode_tables(found, "result", "q") is not None


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "local").write_text("a file")
    with pytest.raises(ResourceError, match=r"SPILL_FAILED.*cell 0 of 1: .*cannot be written"):
        Cluster(make_spec(1, MIB)).push(Push(make_rows(0, 10)))


def test_engines_leave_room_for_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a cell works, engines of others leave until there is room for its whole limit."""
    memory = CellMemory(4 * MIB, "/tmp", 7 * MIB)
    monkeypatch.setattr("penstock.spark.worker.cell_state.find_cell_memory", lambda _: memory)
    cluster = Cluster(make_spec(4, None))
    for push in range(12):
        cluster.push(Push(make_rows(push)))
        sizes = cached_bytes(cluster.caches[0])
        assert sum(sizes[:-1]) <= 3 * MIB
    assert len(sizes) < 4
    assert "rebuild" in cluster.cache_outcomes


def test_dropped_engine_is_freed_after_freeze() -> None:
    """The windows of an engine that leaves the cache are freed, although they are excluded from garbage collection."""
    cluster = Cluster(replace(make_spec(2, None), maintenance=replace(SHIPPED, cached_cells=1)))
    cluster.push(Push(make_rows(0, 10)))
    joins = joins_of(cached_engines(cluster.caches[0])[0])
    windows = [weakref.ref(store.rows) for join in joins for store in join.tree.stores.values()]
    freeze_gc(f"test {id(cluster)}")
    cluster.push(Push(make_rows(1, 10)))
    gc.unfreeze()
    assert windows
    assert not any(reference() for reference in windows)


# ── Spark ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_limited_pipeline(spark: Any, tmp_path: Path) -> None:
    """Windows larger than the limit of the cells are exact; a limit that is too small is refused with the cell."""
    pushes = 5
    for push in range(pushes):
        for name, table in make_rows(push, 2500).items():
            write_file(tmp_path / name / f"{push}.parquet", table, push)
    pipe, answer = ps.Pipeline(spark, memory="6 MB"), sinks.memory()
    for name in "ab":
        pipe.stream(name, read_stream(spark, SCHEMA, tmp_path / name), "ts")
    pipe.query("q", TEXT, sink=answer)
    run = pipe.start(tmp_path / "ck", cells=2)
    drain(run)
    cells = run.metrics()["cells"].values()
    assert all(cell["memory"]["limit"] == 6 * MIB for cell in cells)
    assert all(cell["memory"]["spilled"] > 0 for cell in cells)
    assert sort_rows([answer.table()]) == run_embedded(pushes, 2500)

    small = ps.Pipeline(spark, memory="64 KB")
    for name in "ab":
        small.stream(name, read_stream(spark, SCHEMA, tmp_path / name), "ts")
    small.query("q", TEXT, sink=sinks.memory())
    run = small.start(tmp_path / "small", cells=2)
    with pytest.raises(ResourceError, match=r"MEMORY_LIMIT.*cell \d of 2 holds"):
        drain(run)
