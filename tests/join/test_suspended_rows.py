"""Suspended tuples leave the probed window (the JIT paper's blacklist): pairs with them are not even made."""

from __future__ import annotations

from collections.abc import Callable

import mutants
import pyarrow as pa
import pytest
from inspect_engine import tree_of

import penstock as ps

COLUMNS = ("k", "x")


def make_engine(static: bool = False) -> ps.Engine:
    """A and B join on k, A and C on x; C is a stream, or a static table with x = 0."""
    engine = ps.Engine(state="jit")
    for name in "AB" if static else "ABC":
        engine.stream(name, dict.fromkeys(("ts", *COLUMNS), "bigint"), time="ts")
    if static:
        engine.table("C", pa.table({"k": [0], "x": [0]}))
    text = "SELECT A.ts AS a, B.ts AS b FROM A [RANGE 100000], B [RANGE 100000], C{} WHERE A.k = B.k AND A.x = C.x"
    engine.query("q", text.format("" if static else " [RANGE 100000]"), plan="((A B) C)")
    return engine


def push(engine: ps.Engine, time: int, **tuples: list[tuple[int, int]]) -> int:
    """Tuples of some streams, as (k, x); returns the number of results."""
    tables = {}
    for name, rows in tuples.items():
        columns = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
        tables[name] = pa.table({"ts": [time] * len(rows), **columns})
    found = engine.push(tables)["q"].num_rows
    for alias, store in tree_of(engine).stores.items():
        if store.table is None:
            engine.advance(alias, time + 1)
    return found + engine.push({})["q"].num_rows


def count_pairs(engine: ps.Engine) -> int:
    """Pairs of A and B that were made, whether they were kept or discarded."""
    metrics = engine.metrics("q")
    return metrics["built"]["(A B)"] + sum(metrics["suppressed"]["(A B)"].values())


def run_waiting_tuple() -> tuple[int, int]:
    """One a waits for a c while 10,000 tuples of b match it; returns the pairs made before c, and the results after."""
    engine = make_engine()
    push(engine, 0, C=[(0, 9)])  # the gate is not empty
    for time in range(1, 4):
        push(engine, time, A=[(7, 9)])  # demand is computed, and the table of demanded rows is made
    made = count_pairs(engine)
    push(engine, 5, A=[(1, 5)])
    for part in range(10):
        push(engine, 6 + part, B=[(1, 0)] * 1_000)
    made = count_pairs(engine) - made
    return made, push(engine, 20, C=[(0, 5)])


def test_no_pair_with_suspended_tuple() -> None:
    made, results = run_waiting_tuple()
    assert made == 0
    assert results == 10_000


def test_no_pair_with_dead_ends_of_static_table() -> None:
    """No tuple of a has the only value of C, and C never changes."""
    engine = make_engine(static=True)
    push(engine, 0, A=[(1, 0)])
    push(engine, 1, A=[(1, 5)] * 10_000)
    for part in range(10):
        push(engine, 2 + part, B=[(1, 0)])
    assert count_pairs(engine) == 10
    assert engine.metrics("q")["demanded_rows"] == {"A": 1}


def run_resume_after_recompute() -> int:
    """A tuple is suspended in its window, its key is demanded later, then its partner b arrives."""
    engine = make_engine()
    push(engine, 0, C=[(0, 9)], A=[(1, 5)])
    tree_of(engine).refresh_gates()
    push(engine, 1, C=[(0, 5)])
    return push(engine, 2, B=[(1, 0)])


@pytest.mark.parametrize(
    ("run", "mutant"),
    [
        (run_resume_after_recompute, mutants.leave_resumed_rows_suspended),
        (run_resume_after_recompute, mutants.seek_suspended_rows_among_demanded),
    ],
)
def test_mutant_of_suspended_rows_is_detected(
    run: Callable[[], int], mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run() == 1
    mutant(monkeypatch)
    assert run() == 0
