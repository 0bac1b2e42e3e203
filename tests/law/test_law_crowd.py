"""The law for crowds: many random queries with their own windows and filters share one join.

Their keys are equal, or they bound the same terms by different constants. They are added, altered and dropped during
the run, several between two pushes, with snapshots in between. Queries that
run from the start are compared with DuckDB, others with the same query in an engine without sharing. An altered query
has, from the time on that the engine names, the results of its new text over all tuples, and no others before.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import law_support
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from bound_runs import draw_bounds
from law_support import CHUNKS, check_fails, list_seeds, make_engine
from sharing_mutants import CROWD_MUTANTS, ROW_COUNT_MUTANTS, Mutant
from sharing_runs import SharingRun, run_queries

import penstock as ps
from penstock.state import SHIPPED, Maintenance
from penstock.testing import difference, expected_by_duckdb

STREAMS = {"A": {"ts": "bigint", "k": "bigint", "v": "bigint", "d": "double"},
           "B": {"ts": "bigint", "k": "bigint", "v": "bigint", "d": "double"}}  # fmt: skip
SAMPLE = 6
MANY_SETS = (
    Maintenance(narrow_sets=4, recycle_codes=8, unite_every=2),
    Maintenance(narrow_sets=4, recycle_codes=8, unite_every=2, bit_groups=0, known_intersections=0.0),
    Maintenance(narrow_sets=4, recycle_codes=8, unite_every=2, bit_groups=0, known_intersections=0.8),
)
"""Intersections of sets of filter groups are rows of bits, or have codes, or change from codes to bits."""


@dataclass
class CrowdRun(SharingRun):
    """A run in which queries are altered, too: the step before which each is, and its new text."""

    altered: dict[str, tuple[int, str]] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    """From when on an altered query misses no result, as the engine says."""


Drawn = Callable[[random.Random], str]


def draw_crowd(seed: int, queries: int | None, draw_query: Drawn) -> CrowdRun:
    rng = random.Random(f"crowd {seed}")
    run, steps, time = CrowdRun(rng), rng.randint(4, 9), 0
    for _ in range(steps):
        run.pushes.append({name: _draw_rows(rng, time) for name in STREAMS if rng.random() < 0.9})
        time += 21  # no tuple is late
    for number in range(queries or rng.choice([5, 12, 30])):
        name = f"q{number}"
        run.texts[name] = draw_query(rng)
        run.added_at[name] = rng.choice([0, 0, rng.randrange(steps)])
        run.dropped_at[name] = rng.choice([steps, steps, rng.randint(run.added_at[name], steps)])
        if run.dropped_at[name] == steps and run.added_at[name] < steps - 1 and rng.random() < 0.3:
            run.altered[name] = rng.randint(run.added_at[name] + 1, steps - 1), draw_query(rng)
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
            [f"({alias}.v * {rng.randint(2, 99)} + {alias}.ts) % 7 > {low}"],
            [f"{alias}.v % 3 = {low % 3}"], [f"{alias}.v > {low}", f"{alias}.ts % 2 = 0"],
        ])  # fmt: skip
    items = f"A [RANGE {windows[0]}], B [RANGE {windows[1]}]"
    return f"SELECT A.k, A.v AS av, B.v AS bv FROM {items} WHERE {' AND '.join(where)}"


def _choose_bounds(seed: int) -> Drawn:
    """Queries of one run: bounds for two terms, by constants of their own."""
    column, form = "vd"[seed % 2], ("less", "band", "distance")[seed % 3]

    def draw(rng: random.Random) -> str:
        where = draw_bounds(rng, form, f"A.{column}", f"B.{column}")
        where += rng.choice([[], [], [f"A.v > {rng.randrange(5)}"], ["B.d >= 0.5"]])
        items = f"A [RANGE {rng.randint(1, 50)}], B [RANGE {rng.randint(1, 50)}]"
        return f"SELECT A.k, A.v AS av, B.v AS bv FROM {items} WHERE {' AND '.join(where)}"

    return draw


def _choose_counts(seed: int) -> Drawn:
    """Queries of one run: windows of rows with sizes of their own, and mostly the same filters."""
    partition = ("", "", "PARTITION BY k ")[seed % 3]
    common = ([], [], ["A.v > 2"], ["A.v > 2", "B.d >= 0.5"])[seed % 4]

    def draw(rng: random.Random) -> str:
        sizes = [rng.choice([1, 2, 3, 5, 8, 20, 60]) for _ in "AB"]
        where = ["A.k = B.k", *(common if rng.random() < 0.9 else ["B.v < 5"])]
        where += rng.choice([[], [], [], ["A.v < B.v"], ["A.v <= B.v + 2"]])
        emit = rng.choice(["ISTREAM"] * 8 + ["DSTREAM", "RSTREAM"])
        items = f"A [{partition}ROWS {sizes[0]}], B [{partition}ROWS {sizes[1]}]"
        return f"{emit} (SELECT A.k, A.v AS av, B.v AS bv FROM {items} WHERE {' AND '.join(where)})"

    return draw


def build_engine(**options: Any) -> Any:
    eng = make_engine(**options)
    for name, columns in STREAMS.items():
        eng.stream(name, columns, time="ts")
    return eng


def check_crowd(seed: int, queries: int | None = None, sample: int = SAMPLE, draw_query: Drawn = _draw_query) -> None:
    run = draw_crowd(seed, queries, draw_query)
    rng = run.rng
    options: dict[str, Any] = {
        "state": rng.choice(["eager", "lazy", "jit", "auto", "none"]), "batch": rng.choice([1, 7, 4096])
    }  # fmt: skip
    if law_support.MAINTENANCE is SHIPPED:
        options["maintenance"] = rng.choice([SHIPPED, *MANY_SETS])

    def happens(eng: Any, step: int) -> Any:
        for name, (at, text) in run.altered.items():
            if at == step:
                eng.alter(name, text)
                run.since[name] = eng.metrics(name)["complete_since"]
        return ps.Engine.restore(eng.snapshot()) if rng.random() < 0.15 else eng

    together = run_queries(build_engine(**options), run, list(run.texts), happens)
    whole = {
        name: pa.concat_tables([push[name] for push in run.pushes if name in push] or [_draw_rows(rng, 0)[:0]])
        for name in STREAMS
    }
    for name in rng.sample(sorted(run.texts), min(sample, len(run.texts))):
        if name in run.altered:
            fault = _find_fault_of_altered(together[name], run, name, whole)
            assert fault is None, f"seed {seed}, {options}, {name}: {run.texts[name]}, {run.altered[name]}\n{fault}"
            continue
        if run.added_at[name] == 0 and run.dropped_at[name] == len(run.pushes):
            wanted = expected_by_duckdb(run.texts[name], whole, time="ts")
        else:
            wanted = run_queries(build_engine(share=False, state="eager"), run, [name])[name]
        fault = difference(together[name], wanted)
        assert fault is None, f"seed {seed}, {options}, {name}: {run.texts[name]}\n{fault}"


def _find_fault_of_altered(found: pa.Table, run: CrowdRun, name: str, whole: dict[str, pa.Table]) -> str | None:
    step, text = run.altered[name]
    since = run.since[name]
    wanted, former = (expected_by_duckdb(each, whole, time="ts") for each in (text, run.texts[name]))
    before = found.filter(pc.less(found.column("_ts"), since))
    foreign = _count_rows(before) - _count_rows(wanted) - _count_rows(former)
    if foreign:
        return f"altered before step {step}, complete since {since}: of neither text {foreign}"
    return difference(*(rows.filter(pc.greater_equal(rows.column("_ts"), since)) for rows in (found, wanted)))


def _count_rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*table.to_pydict().values(), strict=True))


@pytest.mark.parametrize("chunk", CHUNKS)
def test_crowd(chunk: int) -> None:
    for seed in list_seeds(chunk)[::10]:
        check_crowd(seed)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_crowd_of_bounds(chunk: int) -> None:
    for seed in list_seeds(chunk)[::10]:
        check_crowd(seed // 10, draw_query=_choose_bounds(seed // 10))


@pytest.mark.parametrize("chunk", CHUNKS)
def test_crowd_of_row_counts(chunk: int) -> None:
    for seed in list_seeds(chunk)[::10]:
        check_crowd(seed // 10, draw_query=_choose_counts(seed // 10))


@pytest.mark.parametrize("mutant", ROW_COUNT_MUTANTS, ids=lambda mutant: mutant.method)
def test_row_count_mutant_is_detected(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert any(check_fails(partial(check_crowd, draw_query=_choose_counts(seed)), seed) for seed in mutant.seeds)


@pytest.mark.parametrize("mutant", CROWD_MUTANTS, ids=lambda mutant: mutant.method)
def test_crowd_mutant_is_detected(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(law_support, "MAINTENANCE", MANY_SETS[0])
    mutant.apply(monkeypatch)
    assert any(check_fails(check_crowd, seed) for seed in mutant.seeds)


def test_results_are_counted_without_numbered_sets() -> None:
    """The figures of a query are those of its own rows, also after queries were added and dropped."""
    eng, rng, read = build_engine(maintenance=MANY_SETS[0]), random.Random(5), Counter[str]()
    for step in range(8):
        for place in range(3):
            window, low = rng.randint(5, 40), rng.randrange(7)
            where = f"A.k = B.k AND (A.v * {step + 2} + A.ts) % 7 > {low} AND B.v % {place + 2} = 0"
            eng.query(f"q{step}_{place}", f"SELECT A.v, B.v AS w FROM A, B WHERE {where} WINDOW {window}")
        if step % 3 == 2:
            eng.drop(f"q{step - 1}_0")
        read.update(
            {name: rows.num_rows for name, rows in eng.push({s: _draw_rows(rng, 21 * step) for s in "AB"}).items()}
        )
    assert all(eng.metrics(name)["emitted"] == read[name] for name in eng.queries)
    assert read.total() > 300
    assert "too many to number" in eng.explain("q7_0")


def test_crowd_of_a_hundred_queries() -> None:
    check_crowd(7, queries=100, sample=8)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_crowd_of_a_thousand_queries(seed: int) -> None:
    check_crowd(1000 + seed, queries=1000, sample=60)


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
    assert "with the same filters" in eng.explain("q3")
    assert eng.metrics("q20")["emitted"] == alone.metrics("q20")["emitted"]
