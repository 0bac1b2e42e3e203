"""Gates over joins that meet their sibling by a band or an inequality: rows in no demanded range are held back."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import mutants
import numpy as np
import pytest
from inspect_engine import purged_until, tree_of

import penstock as ps
from penstock.join import JoinRows
from penstock.join.demand import gate_cost
from penstock.join.demand.range_gate import RangeGate
from penstock.state import Maintenance, SortedIndex

COLUMNS = {"A": ("k", "x"), "B": ("k",), "C": ("k", "lo", "hi"), "D": ("k",)}
Tuples = dict[str, list[tuple[float | None, ...]]]
BAND = "C.lo BETWEEN A.x - 1 AND A.x + 1"


def make_engine(where: str, state: str = "jit", window: int = 1000, gated: str = "(C D)") -> ps.Engine:
    """A and B join on k, C and D on k, and both pairs by `where`. If `gated` is given, that pair is lazy."""
    engine = ps.Engine(state="eager" if gated else state, maintenance=Maintenance(demand_rows=100))
    for name, columns in COLUMNS.items():
        engine.stream(name, {"ts": "bigint", **dict.fromkeys(columns, "double")}, time="ts")
    text = f"SELECT A.x, C.lo, C.hi FROM A, B, C, D WHERE A.k = B.k AND C.k = D.k AND {where} WINDOW {window}"
    engine.query("q", text, plan="((A B) (C D))")
    if gated:
        engine.policy("q", state, node=gated)
    return engine


def push(engine: ps.Engine, time: int, tuples: Tuples) -> int:
    """The number of results of a push at one time."""
    tables: dict[str, Any] = {
        name: {"ts": [time] * len(rows), **{key: [row[at] for row in rows] for at, key in enumerate(COLUMNS[name])}}
        for name, rows in tuples.items()
    }
    results = engine.push(tables)["q"].num_rows
    for name in COLUMNS:
        engine.advance(name, time + 1)
    return results + engine.push({})["q"].num_rows


def read_counts(engine: ps.Engine, node: str = "(C D)") -> tuple[int, int]:
    """The rows of a join that were built from new tuples, and those that were resumed."""
    metrics = engine.metrics("q")
    return metrics["built"][node], metrics["resumed"][node]


def test_rows_in_no_demanded_range_are_not_built() -> None:
    engine = make_engine(BAND)
    push(engine, 1, {"D": [(1,)], "A": [(1, 10), (1, None)], "B": [(1,)]})
    assert push(engine, 2, {"C": [(1, number, 0) for number in (8, 9, 10, 11, 12, None, float("nan"))]}) == 3
    assert read_counts(engine) == (3, 0)
    assert engine.metrics("q")["suppressed"]["C"]["type I"] == 4
    assert "keeps its rows of 1 ranges that (A B) demands" in engine.explain("q")
    assert push(engine, 3, {"A": [(1, 10.5)]}) == 2  # 10 and 11; the range ends before 12
    assert read_counts(engine) == (3, 0)
    assert push(engine, 4, {"A": [(1, 11.5)]}) == 2  # 11 and 12
    assert read_counts(engine) == (3, 1)
    assert push(engine, 5, {"D": [(1,)]}) == 4 * 1 + 4 - 1  # 9, 10, 11 for 10; 10, 11 for 10.5; 11, 12 for 11.5
    assert read_counts(engine) == (7, 1)


@pytest.mark.parametrize("where", ["A.x < C.lo", "A.x >= C.hi"])
def test_inequality_demands_one_side(where: str) -> None:
    engine = make_engine(where)
    push(engine, 1, {"D": [(1,)], "A": [(1, 5), (1, 6), (1, -5)], "B": [(2,)]})
    assert push(engine, 2, {"C": [(1, number, -number) for number in range(-7, 8)]}) == 0
    assert read_counts(engine) == (0, 0)
    push(engine, 3, {"A": [(2, 5), (2, -5)]})
    assert read_counts(engine) == (0, len(range(-5, 8)))


def test_expired_driver_rows_demand_nothing() -> None:
    engine = make_engine(BAND, window=10)
    push(engine, 1, {"D": [(1,)], "A": [(1, 10)], "B": [(1,)]})
    push(engine, 20, {"D": [(1,)]})
    tree_of(engine).refresh_gates()
    assert push(engine, 21, {"C": [(1, 10, 0)]}) == 0
    assert read_counts(engine) == (0, 0)
    assert engine.metrics("q")["suppressed"]["C"] == {"empty": 1}
    assert push(engine, 22, {"A": [(1, 10)], "B": [(1,)]}) == 1
    assert read_counts(engine) == (0, 1)


INTERVALS: dict[str, Callable[[float, float, float], bool]] = {
    BAND: lambda x, lo, _hi: abs(x - lo) <= 1,
    "A.x >= C.lo + 2": lambda x, lo, _hi: x >= lo + 2,
    "A.x BETWEEN C.lo AND C.hi": lambda x, lo, hi: lo <= x <= hi,
}


@pytest.mark.parametrize("where", INTERVALS)
def test_gate_admits_what_driver_rows_demand(where: str) -> None:
    """Against a nested loop, tuple by tuple; of two ranges only the first is exact where A drives."""
    for seed in range(6):
        rng, matches = random.Random(seed), INTERVALS[where]
        engine = make_engine(where, window=8, gated="")
        tree = tree_of(engine)
        for time in range(1, 40):
            low = rng.randrange(30)
            name = rng.choice("ABCD")
            push(engine, time, {name: [(1, low, low + rng.randrange(4))[: len(COLUMNS[name])]]})
            tree.refresh_gates()
            node = next(node for node in tree.walk_joins() if isinstance(node.gate, RangeGate))
            gate = node.gate
            assert gate is not None
            assert gate.closed
            driver, lazy = ("A", "C") if "C" in node.plan.aliases else ("C", "A")
            living = {alias: read_living(tree, alias) for alias in COLUMNS}
            partner = "B" if driver == "A" else "D"
            wanted = [row for row in living[driver] if living[partner]]
            ids = [int(row["id"]) for row in living[lazy]]
            leaf = next(leaf for leaf in tree.walk_leaves() if leaf.plan.alias == lazy)
            rows = JoinRows(np.array([ids], np.int64), np.zeros(len(ids), np.int64), np.ones(len(ids), np.int64))
            admitted = gate.find_demanded(leaf.plan, leaf, rows)
            for row, passes in zip(living[lazy], admitted, strict=True):
                pairs = [(one, row) if lazy == "C" else (row, one) for one in wanted]
                demanded = any(matches(a["x"], c["lo"], c["hi"]) for a, c in pairs)
                assert passes >= demanded
                assert passes == demanded or (lazy == "C" and "C.hi" in where)


def read_living(tree: Any, alias: str) -> list[dict[str, float]]:
    """The ids and numbers of the living rows of a leaf, after a review."""
    leaf = next(leaf for leaf in tree.walk_leaves() if leaf.plan.alias == alias)
    rows = leaf.read_living()
    ids = rows.ids[0][rows.dies > purged_until(tree)]
    columns = {name: leaf.store.rows.take(name, ids).to_pylist() for name in leaf.store.rows.columns}
    return [{"id": int(id_), **{name: part[place] for name, part in columns.items()}} for place, id_ in enumerate(ids)]


def test_auto_closes_range_gate_over_unused_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_cost, "BATCH_COST", 10.0)
    counts = {}
    for state in ("eager", "auto", "jit"):
        engine = make_engine(BAND, state)
        push(engine, 1, {"A": [(1, 5)], "B": [(1,)]})
        for time in range(2, 40):
            push(engine, time, {"C": [(1, 100 + time, 0)] * 20, "D": [(1,)] * 20})
        counts[state] = read_counts(engine)[0]
    assert counts["jit"] == 0
    assert counts["auto"] < counts["eager"] / 4


def test_mutant_resume_nothing_in_new_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    def count_results() -> int:
        engine = make_engine(BAND)
        push(engine, 1, {"D": [(1,)], "A": [(1, 10)], "B": [(1,)]})
        return push(engine, 2, {"C": [(1, 20, 0)]}) + push(engine, 3, {"A": [(1, 20)]})

    assert count_results() == 1
    mutants.add_ranges_unnoticed(monkeypatch)
    assert count_results() == 0


def test_sorted_index_without_probes_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tuples of C were sorted for one tuple of A; when none follow, new ones are not sorted any more."""
    sorted_rows = 0
    add = SortedIndex.add

    def count(self: SortedIndex, keys: np.ndarray, *given: Any) -> None:
        nonlocal sorted_rows
        sorted_rows += keys.size
        add(self, keys, *given)

    monkeypatch.setattr(SortedIndex, "add", count)
    engine = make_engine(BAND)
    push(engine, 1, {"C": [(1, 10, 0)], "D": [(1,)]})
    push(engine, 2, {"A": [(1, 50)], "B": [(1,)]})
    before = sorted_rows
    for time in range(3, 13):
        push(engine, time, {"C": [(1, 90, 0)] * 100})
    assert before < sorted_rows < 600
    assert push(engine, 13, {"A": [(1, 90)]}) == 1000
