"""The law for cells, faults and restarts, without a Spark session: many seeds in little time."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from cell_support import Cluster, build_spec
from spark_support import merge_pushes, run_embedded

from penstock.cql.catalog import Stream
from penstock.engine import Engine
from penstock.join.leaf_store import LeafStore
from penstock.join.match_batch import PayloadView
from penstock.join.operator import JoinOperator
from penstock.join.sharing.member import Member
from penstock.join.sharing.result_counts import ResultCounts
from penstock.join.tree import JoinTree
from penstock.ops.source import SourceOperator
from penstock.spark.worker.cell_state import CellCache, OutputRow
from penstock.state.maintenance import SHIPPED, SMALLEST, Maintenance
from penstock.testing import Case, Push, another_query, difference, random_case

FIRST = int(os.environ.get("PENSTOCK_FIRST_SEED", "0"))
CHUNKS = range(FIRST, FIRST + int(os.environ.get("PENSTOCK_SEEDS", "60")), 10)


class InjectedError(Exception):
    pass


def choose_maintenance(seed: int) -> Maintenance:
    """Every other seed has all thresholds at their smallest."""
    return SMALLEST if seed % 2 else SHIPPED


def list_pushes(case: Case) -> list[Push]:
    return [step for step in case.steps if isinstance(step, Push)]


def check(seed: int, case: Case, cluster: Cluster, outputs: list[OutputRow], queries: dict[str, str]) -> None:
    wanted = run_embedded(case, queries)
    for name, text in queries.items():
        tables = cluster.decode_tables(outputs, "result", name)
        found = pa.concat_tables([wanted[name].schema.empty_table(), *tables])
        fault = difference(found, wanted[name])
        assert fault is None, f"seed {seed}, {len(cluster.states)} cells, {name}: {text}\n{fault}"


def draw_case(seed: int, most: int) -> tuple[Case, dict[str, str], random.Random]:
    rng = random.Random(seed)
    case = merge_pushes(random_case(seed, limit=1000), most)
    return case, {"q": case.query, **{f"q{i}": another_query(case, 10 * seed + i) for i in range(2)}}, rng


@pytest.mark.parametrize("chunk", CHUNKS)
def test_each_result_from_one_cell(chunk: int) -> None:
    for seed in range(chunk, chunk + 10):
        case, queries, rng = draw_case(seed, 4)
        spec = build_spec(case, queries, rng.choice((1, 2, 3, 4, 5, 6, 8, 12)))
        cluster = Cluster(replace(spec, maintenance=choose_maintenance(seed)))
        outputs = [row for step in list_pushes(case) for row in cluster.push(step)]
        check(seed, case, cluster, outputs, queries)
        assert set(cluster.cache_outcomes) <= {"new", "hit"} or cluster.layout.spec.maintenance is SMALLEST


def push_until_committed(cluster: Cluster, step: Push, rng: random.Random) -> list[OutputRow]:
    """A micro-batch whose attempts may fail anywhere, on workers that rotate and sometimes lose their memory."""
    while True:
        fault = (rng.choice(("ready", "mutated", "stored", "published")), rng.randrange(3), rng.random() < 0.3)

        def passed(stage: str, cell: int, version: int, fault: tuple[str, int, bool] = fault) -> None:
            del version
            if (stage, cell, True) == fault:
                raise InjectedError

        if rng.random() < 0.1:
            cluster.caches[rng.randrange(2)] = CellCache()
        try:
            return cluster.push(step, lambda: rng.randrange(2), passed)
        except InjectedError:
            continue


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


INSIDE = (
    (JoinTree, "step"),
    (JoinOperator, "_emit"),
    (Member, "build_inserts"),
    (LeafStore, "ingest"),
    (ResultCounts, "_flush"),
    (PayloadView, "materialize"),
    (SourceOperator, "run"),
    (Engine, "query"),
    (JoinOperator, "metrics"),
)


class FailingCalls:
    """Makes one call of some method of the engine raise."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left = -1
        self.error: BaseException = MemoryError()
        for owner, name in INSIDE:
            patch.setattr(owner, name, self._wrapped(getattr(owner, name)))

    def _wrapped(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left == -1:
                raise self.error
            return method(*args, **kwargs)

        return call


@pytest.mark.parametrize("chunk", CHUNKS)
def test_broken_engine_is_not_reused(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts fail inside the engine: it leaves the worker's cache, and the next attempt builds another."""
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
                for cached in cluster.caches[0]._items.values():
                    cached.cell._engine.failures()  # it is not broken
                outputs += cluster.push(step)
        failing.left = -1
        check(seed, case, cluster, outputs, queries)
    assert failed


def test_segments_stay_small() -> None:
    """With a window of 100 ticks the state holds little more than 100 ticks, however long the stream."""
    from penstock.cql.catalog import Stream
    from penstock.spark.worker.cell_state import HEADER_KEY, StateHeader

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


def test_long_lived_rows_do_not_keep_others() -> None:
    """A few rows live for ever in each segment, most of its rows are of a short window."""
    from penstock.cql.catalog import Stream
    from penstock.spark.worker.cell_state import HEADER_KEY, StateHeader

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
    """One that was named like a column of the packing's own, in a stream that two queries cut in different ways."""
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
