"""The law for crowds: many random queries with their own windows and filters share one join.

They are added and dropped during the run, several between two pushes, with snapshots in between. Queries that run from
the start are compared with DuckDB, the others with the same query in an engine without sharing.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from law_support import CHUNKS, list_seeds, make_engine
from sharing_runs import SharingRun, run_queries

import penstock as ps
from penstock.state import Maintenance
from penstock.testing import difference, expected_by_duckdb

STREAMS = {"A": {"ts": "bigint", "k": "bigint", "v": "bigint", "d": "double"},
           "B": {"ts": "bigint", "k": "bigint", "v": "bigint", "d": "double"}}  # fmt: skip
SAMPLE = 6


def draw_crowd(seed: int) -> SharingRun:
    rng = random.Random(f"crowd {seed}")
    run, steps, time = SharingRun(rng), rng.randint(4, 9), 0
    for _ in range(steps):
        run.pushes.append({name: _draw_rows(rng, time) for name in STREAMS if rng.random() < 0.9})
        time += 21  # no tuple is late
    for number in range(rng.choice([5, 12, 30])):
        name = f"q{number}"
        run.texts[name] = _draw_query(rng)
        run.added_at[name] = rng.choice([0, 0, rng.randrange(steps)])
        run.dropped_at[name] = rng.choice([steps, steps, rng.randint(run.added_at[name], steps)])
    return run


def _draw_rows(rng: random.Random, time: int) -> pa.Table:
    count = rng.choice([0, 2, 10, 30])
    numbers = [None, *range(8)]
    return pa.table({
        "ts": pa.array([time + rng.randint(0, 20) for _ in range(count)], pa.int64()),
        "k": pa.array([rng.randrange(4) for _ in range(count)], pa.int64()),
        "v": pa.array([rng.choice(numbers) for _ in range(count)], pa.int64()),
        "d": pa.array([rng.choice([None, float("nan"), -0.0, 0.0, 0.5, 2.0]) for _ in range(count)], pa.float64()),
    })  # fmt: skip


def _draw_query(rng: random.Random) -> str:
    window, other = rng.randint(1, 50), rng.randint(1, 50)
    windows = [window, window if rng.random() < 0.7 else other]
    where = ["A.k = B.k"]
    for alias in "AB":
        low = rng.randrange(8)
        where += rng.choice([
            [], [], [f"{alias}.v > {low}"], [f"{alias}.v <= {low}"], [f"{alias}.v BETWEEN {low} AND {low + 3}"],
            [f"{alias}.v IN ({low}, {rng.randrange(8)})"], [f"{alias}.v = {low}"], [f"{low} > {alias}.v"],
            [f"{alias}.d >= 0.5"], [f"{alias}.d < 0.5", f"{alias}.v > {low}"], [f"{alias}.d = 0.0"],
            [f"{alias}.v % 3 = {low % 3}"], [f"{alias}.v > {low}", f"{alias}.ts % 2 = 0"],
        ])  # fmt: skip
    items = f"A [RANGE {windows[0]}], B [RANGE {windows[1]}]"
    return f"SELECT A.k, A.v AS av, B.v AS bv FROM {items} WHERE {' AND '.join(where)}"


def build_engine(**options: Any) -> Any:
    eng = make_engine(**options)
    for name, columns in STREAMS.items():
        eng.stream(name, columns, time="ts")
    return eng


def check_crowd(seed: int) -> None:
    run = draw_crowd(seed)
    rng = run.rng
    options = {"state": rng.choice(["eager", "lazy", "jit", "auto", "none"]), "batch": rng.choice([1, 7, 4096])}

    def happens(eng: Any, _step: int) -> Any:
        return ps.Engine.restore(eng.snapshot()) if rng.random() < 0.15 else eng

    together = run_queries(build_engine(**options), run, list(run.texts), happens)
    whole = {
        name: pa.concat_tables([push[name] for push in run.pushes if name in push] or [_draw_rows(rng, 0)[:0]])
        for name in STREAMS
    }
    for name in rng.sample(sorted(run.texts), min(SAMPLE, len(run.texts))):
        if run.added_at[name] == 0 and run.dropped_at[name] == len(run.pushes):
            wanted = expected_by_duckdb(run.texts[name], whole, time="ts")
        else:
            wanted = run_queries(build_engine(share=False, state="eager"), run, [name])[name]
        fault = difference(together[name], wanted)
        assert fault is None, f"seed {seed}, {options}, {name}: {run.texts[name]}\n{fault}"


@pytest.mark.parametrize("chunk", CHUNKS)
def test_crowd(chunk: int) -> None:
    for seed in list_seeds(chunk)[::10]:
        check_crowd(seed)


def test_identical_queries_added_while_running_merge() -> None:
    """Queries that differ only in their start become one filter group, and keep giving what each gives alone."""
    eng, alone = build_engine(maintenance=Maintenance(unite_every=2)), build_engine(share=False)
    rng, text = random.Random(3), "SELECT A.v, B.v AS w FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k AND A.v > 1"
    for step in range(40):
        if step < 25:
            for each in (eng, alone):
                each.query(f"q{step}", text)
        push = {name: _draw_rows(rng, 20 * step) for name in STREAMS}
        found, wanted = eng.push(push), alone.push(push)
        for name in found:
            assert difference(found[name], wanted[name]) is None
    assert "want the same tuples" in eng.explain("q3")
    assert eng.metrics("q20")["emitted"] == alone.metrics("q20")["emitted"]
