"""The law for cells with faults and restarts, without a Spark session."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from cell_runs import (
    CHUNKS,
    FailingCalls,
    check,
    choose_maintenance,
    draw_case,
    list_pushes,
    push_until_committed,
)
from cell_support import Cluster, build_spec
from inspect_spark import cached_engines
from instant_runs import TABLE, draw_run
from spark_support import run_embedded

from penstock.cql import Stream
from penstock.join import POLICIES
from penstock.spark.worker.cell_state import HEADER_KEY, METRICS, CellCache, OutputRow, StateHeader
from penstock.spark.worker.segments import cut_rows
from penstock.state import SHIPPED
from penstock.state.maintenance import SMALLEST
from penstock.testing import Case, Push


@pytest.mark.parametrize("chunk", CHUNKS)
def test_each_result_from_one_cell(chunk: int) -> None:
    for seed in range(chunk, chunk + 10):
        case, queries, rng = draw_case(seed, 4)
        spec = build_spec(case, queries, rng.choice((1, 2, 3, 4, 5, 6, 8, 12)))
        cluster = Cluster(replace(spec, maintenance=choose_maintenance(seed)))
        outputs = [row for step in list_pushes(case) for row in cluster.push(step)]
        check(seed, case, cluster, outputs, queries)
        assert set(cluster.cache_outcomes) <= {"new", "hit"} or cluster.layout.spec.maintenance is SMALLEST


@pytest.mark.parametrize("chunk", CHUNKS)
def test_faults_restarts_and_rotating_workers(chunk: int) -> None:
    """Attempts fail at any stage, caches are lost, workers rotate: each committed batch counts once."""
    ways = set()
    for seed in range(chunk, chunk + 10):
        case, queries, rng = draw_case(seed, 15)
        spec = replace(build_spec(case, queries, rng.choice((1, 2, 3))), maintenance=choose_maintenance(seed))
        cluster = Cluster(spec, workers=2)
        outputs: list[OutputRow] = []
        for step in list_pushes(case):
            outputs += push_until_committed(cluster, step, rng)
        check(seed, case, cluster, outputs, queries)
        ways |= set(cluster.cache_outcomes)
    assert {"hit", "catch-up", "rebuild"} <= ways


@pytest.mark.parametrize("chunk", CHUNKS)
def test_cells_with_queries_that_wait_for_instants(chunk: int) -> None:
    """Queries that get rows at once and those that wait share joins in cells, which fail and are rebuilt."""
    for seed in range(chunk, chunk + 10):
        run = draw_run(seed)
        streams = tuple(Stream(name, run.schema, "ts") for name in "ABC")
        case = Case(seed, streams, {"T": TABLE}, "", "", tuple(map(Push, run.pushes)))
        spec = replace(build_spec(case, run.texts, run.rng.choice((1, 2))), maintenance=choose_maintenance(seed))
        cluster = Cluster(spec, workers=2)
        outputs = [row for step in list_pushes(case) for row in push_until_committed(cluster, step, run.rng)]
        check(seed, case, cluster, outputs, run.texts)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_broken_engine_is_not_reused(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an attempt fails inside an engine, the worker's cache drops the engine and the next attempt rebuilds it."""
    failing = FailingCalls(monkeypatch)
    failed = 0
    for seed in range(chunk, chunk + 10):
        case, queries, rng = draw_case(seed, 15)
        cluster = Cluster(replace(build_spec(case, queries, rng.choice((1, 2))), maintenance=choose_maintenance(seed)))
        outputs: list[OutputRow] = []
        for step in list_pushes(case):
            failing.left = rng.choice((-1, rng.randrange(40)))
            failing.error = rng.choice((MemoryError(), OSError(), KeyboardInterrupt()))
            try:
                outputs += cluster.push(step)
            except type(failing.error):
                failed += 1
                failing.left = -1
                for engine in cached_engines(cluster.caches[0]):
                    engine.failures()  # raises if the engine is broken
                outputs += cluster.push(step)
        failing.left = -1
        check(seed, case, cluster, outputs, queries)
    assert failed


def test_segments_stay_small() -> None:
    """With a window of 100 ticks the state holds little more than 100 ticks, however long the stream."""
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    streams = tuple(Stream(name, schema, "ts") for name in "AB")
    query = "SELECT A.k FROM A [RANGE 100], B [PARTITION BY k ROWS 2] WHERE A.k = B.k"
    case = Case(0, streams, {}, query, "(A B)", ())
    cluster = Cluster(build_spec(case, {"q": query}, 2))
    for at in range(0, 6000, 20):
        rows = pa.table({"ts": range(at, at + 20), "k": [i % 7 for i in range(20)]}, schema=schema)
        cluster.push(Push({"A": rows, "B": rows}))
    for state in cluster.states:
        head = StateHeader.decode(*state.map.pop(HEADER_KEY))
        assert len(head.segments) < 40
        assert len(state.map) == len(head.segments)
        assert sum(segment.rows for segment in head.segments) < 2500


def test_rebuilt_cell_joins_nothing() -> None:
    """A worker without the engine loads the base rows of a five-way join and builds none of its rows again."""
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    names = "ABCDE"
    equal = " AND ".join(f"{left}.k = {right}.k" for left, right in pairwise(names))
    query = f"SELECT A.k FROM {', '.join(f'{name} [RANGE 1000]' for name in names)} WHERE {equal}"
    case = Case(0, tuple(Stream(name, schema, "ts") for name in names), {}, query, "((((A B) C) D) E)", ())
    cluster = Cluster(build_spec(case, {"q": query}, 1), workers=2)
    many = pa.table({"ts": range(6), "k": [1] * 6}, schema=schema)
    first = cluster.push(Push(dict.fromkeys(names, many)))
    assert sum(rows for _, kind, _, rows, _ in first if kind == "result") == 6**5
    other = pa.table({"ts": [10], "k": [2]}, schema=schema)
    cluster.push(Push({"A": other}), lambda: 1)
    assert cluster.cache_outcomes == ["new", "rebuild"]
    metrics = cached_engines(cluster.caches[1])[0].metrics("q")
    assert sum(metrics["window_rows"].values()) == 30  # type: ignore[attr-defined]
    assert sum(metrics["built"].values()) == 0  # type: ignore[attr-defined]


def test_segments_have_a_size_limit() -> None:
    """However large the window, a micro-batch rewrites at most one segment of the largest size at a time."""
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    query = "SELECT A.k FROM A [RANGE 1000000], B [RANGE 1000000] WHERE A.k = B.k"
    case = Case(0, tuple(Stream(name, schema, "ts") for name in "AB"), {}, query, "(A B)", ())
    limit = 40_000
    maintenance = replace(SHIPPED, segment_bytes=limit, segment_rows=64, newest_segments=2, merged_segments=4)
    cluster = Cluster(replace(build_spec(case, {"q": query}, 1), maintenance=maintenance))
    most = 0
    for at in range(0, 6000, 30):
        rows = pa.table({"ts": range(at, at + 30), "k": range(at, at + 30)}, schema=schema)
        before = dict(cluster.states[0].map)
        cluster.push(Push({"A": rows, "B": rows}))
        written = [value for key, value in cluster.states[0].map.items() if before.get(key) != value]
        most = max(most, sum(len(value[0]) for value in written))
    segments = StateHeader.decode(*cluster.states[0].map[HEADER_KEY]).segments
    assert max(segment.size for segment in segments) <= limit
    assert limit < sum(segment.size for segment in segments) < limit * len(segments)
    assert len(segments) < 30
    assert most < 2 * limit
    assert sum(segment.rows for segment in segments) == 2 * 6000


def test_large_micro_batch_is_stored_in_parts() -> None:
    """No value in Spark's state is much larger than the limit, and a cell that is rebuilt from the parts is exact."""
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    query = "SELECT A.ts AS a, B.ts AS b FROM A [ROWS 700], B [RANGE 50000] WHERE A.k = B.k"
    rng = np.random.default_rng(1)
    steps = [Push({name: pa.table([range(at, at + 2000), rng.integers(0, 900, 2000)], schema=schema) for name in "AB"})
             for at in range(0, 12_000, 2000)]  # fmt: skip
    case = Case(0, tuple(Stream(name, schema, "ts") for name in "AB"), {}, query, "", tuple(steps))
    limit = 10_000
    maintenance = replace(SHIPPED, segment_bytes=limit, newest_segments=0, lineage=4)
    cluster = Cluster(replace(build_spec(case, {"q": query}, 1), maintenance=maintenance), workers=3)
    outputs = [row for at, step in enumerate(steps) for row in cluster.push(step, lambda at=at: (0, 1, 0, 1, 2, 2)[at])]
    check(0, case, cluster, outputs, {"q": query})
    assert cluster.cache_outcomes == ["new", "rebuild", "catch-up", "catch-up", "rebuild", "hit"]
    header = StateHeader.decode(*cluster.states[0].map[HEADER_KEY])
    assert len({segment.key for segment in header.segments}) == len(header.segments) > 20
    assert {segment.key for segment in header.segments} == cluster.states[0].map.keys() - {HEADER_KEY}
    assert max(len(value) for (value,) in cluster.states[0].map.values()) < 2 * limit


def test_cut_rows_keeps_order_and_limit() -> None:
    tables = {1: pa.table({"v": range(1000)}), 2: pa.table({"v": range(10)}), 3: pa.table({"v": [7]})}
    parts = list(cut_rows(tables, 1000))
    for number, table in tables.items():
        assert pa.concat_tables(part[number] for part in parts if number in part).equals(table)
    assert len(parts) == 9
    assert max(sum(table.nbytes for table in part.values()) for part in parts) < 1200
    assert list(cut_rows({}, 1000)) == []


def test_worker_keeps_few_and_fresh_engines() -> None:
    """Engines are removed by their bytes, and if they are too far behind to catch up."""
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    query = "SELECT A.k FROM A [RANGE 1000000], B [RANGE 1000000] WHERE A.k = B.k"
    case = Case(0, tuple(Stream(name, schema, "ts") for name in "AB"), {}, query, "(A B)", ())
    spec = build_spec(case, {"q": query}, 8)

    def push(cluster: Cluster, at: int, workers: list[int]) -> None:
        rows = pa.table({"ts": range(at, at + 800), "k": range(at, at + 800)}, schema=schema)
        cluster.push(Push({"A": rows, "B": rows}), iter(workers).__next__)

    small = Cluster(replace(spec, maintenance=replace(SHIPPED, cached_bytes=12_000)))
    push(small, 0, [0] * 8)
    assert 1 <= len(cached_engines(small.caches[0])) <= 4
    stale = Cluster(replace(spec, maintenance=replace(SHIPPED, lineage=2)), workers=2)
    push(stale, 0, [0] * 8)
    for number in range(1, 3):
        push(stale, 800 * number, [0, 1] * 4)
    assert len(cached_engines(stale.caches[0])) == 8
    push(stale, 2400, [0, 1] * 4)
    assert len(cached_engines(stale.caches[0])) == 4
    assert stale.cache_outcomes[-8:] == ["hit"] * 8


def test_long_lived_rows_do_not_keep_others() -> None:
    """Each segment has a few rows that never expire and many rows of a short window."""
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    streams = tuple(Stream(name, schema, "ts") for name in "AB")
    query = "SELECT A.k FROM A [RANGE 20], B [PARTITION BY k ROWS 1] WHERE A.k = B.k"
    cluster = Cluster(build_spec(Case(0, streams, {}, query, "(A B)", ()), {"q": query}, 1))
    for at in range(0, 220, 20):
        many = pa.table({"ts": [at + i % 20 for i in range(2000)], "k": [i % 7 for i in range(2000)]}, schema=schema)
        few = pa.table({"ts": [at], "k": [at]}, schema=schema)
        cluster.push(Push({"A": many, "B": few}))
    head = StateHeader.decode(*cluster.states[0].map.pop(HEADER_KEY))
    assert head.segments[0].rows < 10
    assert sum(segment.rows for segment in head.segments) < 5 * 2001


def test_column_with_any_name() -> None:
    """A column may have the name of an internal column of the packing, also if two queries partition its stream."""
    schema = pa.schema([("ts", pa.int64()), ("_own", pa.int64()), ("k", pa.int64())])
    streams = tuple(Stream(name, schema, "ts") for name in "AB")
    queries = {
        "one": "SELECT A._own AS a, B._own AS b FROM A [RANGE 5], B [RANGE 5] WHERE A.k = B.k",
        "two": "SELECT A._own AS a, B.k AS b FROM A [RANGE 5], B [RANGE 5] WHERE A._own = B._own AND A.k > 1",
    }
    table = pa.table([[1, 2, 3], [3, 2, 1], [1, 2, 3]], schema=schema)
    case = Case(0, streams, {}, queries["one"], "", (Push(dict.fromkeys("AB", table)),))
    cluster = Cluster(build_spec(case, queries, 3))
    outputs = cluster.push(Push(dict.fromkeys("AB", table)))
    assert run_embedded(case, queries)["two"].num_rows
    check(0, case, cluster, outputs, queries)


def check_restart_builds_nothing(rows: int) -> None:
    """A restarted cell, and the cells after a rescale, load base rows; they build what later rows ask for."""
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    streams = tuple(Stream(name, schema, "ts") for name in "ABCDE")
    where = " AND ".join(f"A.k = {name}.k" for name in "BCDE")
    text = f"SELECT A.k FROM {', '.join(f'{name} [RANGE 100000000]' for name in 'ABCDE')} WHERE {where}"
    case = Case(0, streams, {}, text, "", ())
    cluster = Cluster(build_spec(case, {"q": text}, 1, "((((A B) C) D) E)"))
    times = np.arange(rows // 5)
    keys = {name: np.random.default_rng(place).permutation(rows // 5) for place, name in enumerate("ABCDE")}
    tables = {name: pa.table({"ts": times, "k": keys[name]}, schema=schema) for name in "ABCDE"}
    outputs = cluster.push(Push(tables))
    assert sum(table.num_rows for table in cluster.decode_tables(outputs, "result", "q")) >= rows // 5 - 1
    cluster.caches[0] = CellCache()
    one = {name: pa.table({"ts": [rows], "k": [7 if name == "A" else -1]}, schema=schema) for name in "ABCDE"}
    outputs = cluster.push(Push(one))
    assert cluster.cache_outcomes == ["new", "rebuild"]
    (report,) = (json.loads(data) for _, kind, _, _, data in outputs if kind == METRICS)
    assert report["base_rows"] == 5 * (rows // 5) + 5
    found = report["cell"]["q"]
    assert found["built"] == 4  # the rows of A's tuple with one partner in each stream, as its key was asked for
    assert found["completed"] <= 5 * POLICIES["auto"].pace, (
        found
    )  # a few for each tuple, so that states become complete
    assert sum(table.num_rows for table in cluster.decode_tables(outputs, "result", "q")) == 1


def test_restarted_cell_builds_what_is_asked_for() -> None:
    check_restart_builds_nothing(2_000)


@pytest.mark.soak
def test_restarted_cell_with_a_million_base_rows() -> None:
    check_restart_builds_nothing(1_000_000)
