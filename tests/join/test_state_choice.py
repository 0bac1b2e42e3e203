"""Which joins keep rows under `auto`, decided by counts; gates over joins that keep none."""

from __future__ import annotations

from collections.abc import Callable

import mutants
import numpy as np
import pyarrow as pa
import pytest
from inspect_engine import tree_of

import penstock as ps
from penstock.join import tree as join_tree
from penstock.join.leaf_indexes import LeafIndexes
from penstock.join.state_cost import StateReview, StateWork, compute_state_cost, compute_store_cost

AB = frozenset("AB")


def test_state_cost_grows_with_classes_and_new_keys() -> None:
    work = StateWork(batches=2, rows=1_000, probes=10).subtract(StateWork(batches=1))
    costs = [compute_state_cost(work, key, new) for key, new in (((1,), 1.0), ((1, 2), 0.0), ((1, 2), 1.0))]
    assert costs == sorted(costs)
    assert compute_store_cost(10, (1,), 1.0) == compute_store_cost(10, (1,), 0.0)


def test_change_needs_loss_and_each_change_more() -> None:
    review = StateReview().compare(StateWork(), cost=110, other=100)
    assert not review.is_change_due(storing=0)  # within the margin
    review = review.compare(StateWork(), cost=200, other=100)
    assert review.is_change_due(storing=1_000)
    review = review.change(StateWork()).compare(StateWork(), cost=200, other=100)
    assert not review.is_change_due(storing=1_000)
    for _ in range(10):
        review = review.compare(StateWork(), cost=200, other=100)
    assert review.is_change_due(storing=1_000)
    assert not review.change(StateWork()).compare(StateWork(), cost=2_000, other=500).is_change_due(storing=1_000)


def test_measurements_without_change_become_rare() -> None:
    review = StateReview()
    assert review.is_measurement_due(cost=100_000, windows=2)
    for _ in range(4):
        review = review.compare(StateWork(), cost=100, other=100)
    assert not review.is_measurement_due(cost=100_000, windows=2)


FUTILE = "A.k = B.k AND A.x = C.x AND B.y = C.y AND A.y = C.k"
"""C is joined by three columns and never matches."""
FREQUENT = "A.k = B.k AND A.k = C.k"
READ_BY_K = "A.x = B.x AND B.k = C.k"
"""C probes (A B) by k. Only lookups in its place read tuples of B by k."""


def make_engine(where: str = FUTILE) -> ps.Engine:
    engine = ps.Engine(state="auto")
    for name in "ABC":
        engine.stream(name, dict.fromkeys(("ts", "k", "x", "y"), "bigint"), time="ts")
    engine.query("q", f"SELECT A.ts AS a FROM A, B, C WHERE {where} WINDOW 1000", plan="((A B) C)")
    return engine


def feed(engine: ps.Engine, pushes: int, per_push: int, domain: int, others: int = 10_000) -> list[bool]:
    """Push equally many tuples of each stream; returns after which pushes (A B) had a state."""
    rng, kept = np.random.default_rng(3), []
    for number in range(pushes):
        times = np.sort(rng.integers(100 * number, 100 * number + 100, per_push))
        keys = [rng.integers(0, domain, per_push), *rng.integers(0, others, (2, per_push))]
        table = pa.table(dict(zip(("ts", "k", "x", "y"), (times, *keys), strict=True)))
        engine.push(dict.fromkeys("ABC", table))
        for name in "ABC":
            engine.advance(name, 100 * number + 100)
        kept.append(any(node.state is not None for node in tree_of(engine).walk_joins()))
    return kept


def test_auto_drops_state_that_costs_more_than_lookups() -> None:
    """A tuple of C finds no tuple of A with its two values: looking up costs nothing, storing each pair does."""
    engine = make_engine()
    kept = feed(engine, pushes=30, per_push=300, domain=100)
    assert not kept[-1]
    assert engine.metrics("q")["changes"]["(A B)"] <= 2
    assert engine.metrics("q")["state_rows"] == {}
    assert "keeps no rows" in engine.explain("q")


def test_auto_keeps_state_that_is_read_often() -> None:
    """Each stored pair is part of many results: without a state it would be joined again for each of them."""
    engine = make_engine(FREQUENT)
    assert all(feed(engine, pushes=30, per_push=300, domain=100))
    assert engine.metrics("q")["changes"]["(A B)"] == 0


def test_index_of_a_sample_is_dropped_with_the_review(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample of lookups builds an index that no batch reads. Left in place, each tuple would be entered into it."""
    ends: list[tuple[int, int]] = []
    original = LeafIndexes.end_review

    def end_review(self: LeafIndexes) -> None:
        before = self.nbytes
        original(self)
        ends.append((before, self.nbytes))

    monkeypatch.setattr(LeafIndexes, "end_review", end_review)
    assert all(feed(make_engine(READ_BY_K), pushes=60, per_push=20, domain=1_000, others=20))
    assert any(after < before for before, after in ends)


def test_dropped_state_survives_other_changes() -> None:
    engine = make_engine()
    feed(engine, pushes=30, per_push=300, domain=100)
    engine.query("other", f"SELECT B.ts AS b FROM A, B, C WHERE {FUTILE} WINDOW 500", plan="((A B) C)")
    engine.push({})
    assert engine.metrics("q")["state_rows"] == {}
    engine.policy("q", "lazy")
    assert engine.metrics("q")["state_rows"] != {}


def push(engine: ps.Engine, time: int, **tuples: tuple[int, int, int]) -> int:
    """One tuple of some streams, as (k, x, y); returns the number of results."""
    found = 0
    for name, (k, x, y) in tuples.items():
        found += engine.push({name: pa.table({"ts": [time], "k": [k], "x": [x], "y": [y]})})["q"].num_rows
    for name in "ABC":
        engine.advance(name, time + 1)
    return found + engine.push({})["q"].num_rows


def run_added_state(_patch: pytest.MonkeyPatch) -> int:
    """A pair arises while there is no state; then there is one; then its partner arrives."""
    engine = make_engine()
    tree = tree_of(engine)
    tree.keep_rows(AB, keeps=False)
    found = push(engine, 1, A=(1, 5, 7), B=(1, 0, 6))
    tree.keep_rows(AB, keeps=True)
    return found + push(engine, 2, C=(7, 5, 6))


def run_driver_without_state(patch: pytest.MonkeyPatch) -> int:
    """A row of (A B) demands one of (C D), which arises while (A B) has no state."""
    patch.setitem(join_tree.POLICIES, "auto", join_tree.StatePolicy("measured", lazy=True, gated="always", pace=0.0))
    engine = ps.Engine(state="auto")
    for name in "ABCD":
        engine.stream(name, {"ts": "bigint", "x": "bigint", "k": "bigint"}, time="ts")
    where = "A.x = B.x AND B.k = C.k AND C.x = D.x"
    engine.query("q", f"SELECT A.ts FROM A, B, C, D WHERE {where} WINDOW 1000", plan="((A B) (C D))")
    found = 0
    for time, names, k in ((0, "CD", 9), (1, "AB", 1), (2, "CD", 1)):  # the first keep (A B) the driver
        found += engine.push({name: pa.table({"ts": [time], "x": [time], "k": [k]}) for name in names})["q"].num_rows
        for name in "ABCD":
            engine.advance(name, time + 1)
        found += engine.push({})["q"].num_rows
        tree_of(engine).keep_rows(AB, keeps=time != 1)
    return found


def run_gate_below_join_without_state(patch: pytest.MonkeyPatch) -> int:
    """No join keeps rows. d waits for c, so that its demand for (A B) must be made up for when c arrives."""
    patch.setitem(join_tree.POLICIES, "none", join_tree.StatePolicy("never", gated="always"))
    engine = ps.Engine(state="none")
    for name in "ABCD":
        engine.stream(name, {"ts": "bigint", "x": "bigint", "k": "bigint"}, time="ts")
    where = "A.x = B.x AND B.k = D.k AND D.x = C.x"
    engine.query("q", f"SELECT A.ts FROM A, B, C, D WHERE {where} WINDOW 1000", plan="(((A B) D) C)")
    found = 0
    for time, names in enumerate(("D", "C", "AB")):
        found += engine.push({name: pa.table({"ts": [time], "x": [5], "k": [1]}) for name in names})["q"].num_rows
        for name in "ABCD":
            engine.advance(name, time + 1)
        found += engine.push({})["q"].num_rows
    return found


@pytest.mark.parametrize(
    ("run", "mutant"),
    [
        (run_added_state, mutants.add_state_as_complete),
        (run_driver_without_state, mutants.read_demand_of_driver_without_state),
        (run_gate_below_join_without_state, mutants.resume_only_states),
    ],
)
def test_mutant_of_state_choice_is_detected(
    run: Callable[[pytest.MonkeyPatch], int],
    mutant: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run(monkeypatch) == 1
    mutant(monkeypatch)
    assert run(monkeypatch) == 0
