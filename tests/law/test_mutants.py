"""A test of the tests: every rule of just-in-time state, when it is broken, makes a known case come out wrong.

Each seed is also a regression test: unbroken, the case comes out right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import mutants
import pyarrow as pa
import pytest
from adventures import small
from straits import Strait, narrow, strait

import penstock as ps
from penstock.join import tree as join_tree

Mutant = Callable[[pytest.MonkeyPatch], None]

SEEDS: dict[Mutant, int] = {
    mutants.only_the_rows_a_lookup_computes: 261,
    mutants.one_set_for_demand_and_completeness: 940,
    mutants.both_children_lazy: 5,
    mutants.resumed_drivers_demand_nothing: 1,
    mutants.no_thaw: 50,
    mutants.gates_forgotten_in_a_migration: 2611,
    mutants.same_leaves_mean_complete: 58,
    mutants.lower_states_read_as_they_are: 57,
    mutants.demand_from_an_incomplete_driver: 55,
    mutants.complete_only_if_the_key_is_unknown: 8,
    mutants.insert_without_looking: 3,
    mutants.new_pairs_from_both_sides: 0,
    mutants.completeness_by_a_lossy_hash: 37,
    mutants.resume_only_what_came_since: 1,
}


SHEDDING: dict[Mutant, Strait] = {
    mutants.shedding_leaves_states_complete: narrow(11),
    mutants.losses_stay_where_they_arose: strait(20),
    mutants.a_budget_suffices_at_once: narrow(60),
}


@pytest.mark.parametrize(("mutant", "life"), SHEDDING.items(), ids=[mutant.__name__ for mutant in SHEDDING])
def test_the_suite_notices_under_budgets(mutant: Mutant, life: Strait, monkeypatch: pytest.MonkeyPatch) -> None:
    assert life.fault() is None
    mutant(monkeypatch)
    assert life.fault() is not None


@pytest.mark.parametrize(("mutant", "seed"), SEEDS.items(), ids=[mutant.__name__ for mutant in SEEDS])
def test_the_suite_notices(mutant: Mutant, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert small(seed).fault() is None
    mutant(monkeypatch)
    assert small(seed).fault() is not None


def chain_of_four(monkeypatch: pytest.MonkeyPatch) -> int:
    """A state that is incomplete under one key is taken over under another, whose codes mean other values."""
    monkeypatch.setitem(join_tree.POLICIES, "lazy", join_tree.StatePolicy(lazy=True, pace=0.0))
    engine = ps.Engine(state="lazy")
    for name, columns in {"A": ["x"], "B": ["x", "b"], "C": ["b", "y"], "D": ["y"]}.items():
        engine.stream(name, {"ts": "bigint"} | dict.fromkeys(columns, "bigint"), time="ts")
    where = "A.x = B.x AND B.b = C.b AND C.y = D.y"
    engine.query("q", f"SELECT A.x FROM A, B, C, D WHERE {where} WINDOW 1000", plan="((A B) (C D))")
    old = {"B": pa.table({"ts": [1, 1], "x": [10, 11], "b": [1, 1]}), "C": pa.table({"ts": [1], "b": [1], "y": [20]})}
    steps = [
        (1, old, "(((B C) A) D)"),
        (2, {"A": pa.table({"ts": [2], "x": [10]})}, "(((B C) D) A)"),
        (3, {"A": pa.table({"ts": [3], "x": [11]})}, None),
        (4, {"D": pa.table({"ts": [4], "y": [20]})}, None),
    ]
    results = 0
    for time, tuples, plan in steps:
        for name in "ABCD":
            engine.advance(name, time)
        results += engine.push(tuples)["q"].num_rows
        if plan is not None:
            engine.migrate("q", plan)
    return results + engine.flush()["q"].num_rows


def test_complete_keys_are_not_kept_under_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chain_of_four(monkeypatch) == 2
    mutants.complete_keys_kept_under_another_key(monkeypatch)
    assert chain_of_four(monkeypatch) < 2


def test_a_filter_does_not_tell_new_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    life = replace(small(14), demand="bloom")
    assert life.fault() is None
    mutants.new_keys_told_by_the_filter(monkeypatch)
    assert life.fault() is not None


def test_every_mutant_is_hunted() -> None:
    directed = {mutants.complete_keys_kept_under_another_key, mutants.new_keys_told_by_the_filter}
    hunted = {*SEEDS, *SHEDDING, *directed}
    assert set(mutants.MUTANTS) == hunted
