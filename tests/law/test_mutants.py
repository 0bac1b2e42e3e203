"""Mutation tests: every broken rule of just-in-time state makes a known case fail.

Each seed is also a regression test: without the mutant it passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import mutants
import pyarrow as pa
import pytest
from budget_cases import BudgetCase, draw_budget_case, draw_changed_budget_case, draw_scarce_budget_case
from migration_runs import draw_small_run, draw_theta_run

import penstock as ps
from penstock.join import tree as join_tree

Mutant = Callable[[pytest.MonkeyPatch], None]

SEEDS: dict[Mutant, int] = {
    mutants.mark_key_complete_after_lookup: 261,
    mutants.mark_demanded_keys_complete: 940,
    mutants.gate_driver_by_lazy_child: 5,
    mutants.skip_demand_of_resumed_rows: 1,
    mutants.skip_resume_all: 50,
    mutants.ignore_gates_in_migration: 2611,
    mutants.inherit_incomplete_as_complete: 58,
    mutants.skip_completion_below: 57,
    mutants.use_demand_of_incomplete_driver: 61,
    mutants.mark_known_keys_complete: 8,
    mutants.insert_present_rows_again: 5,
    mutants.mark_complete_with_first_keys: 22,
    mutants.join_new_pairs_twice: 0,
    mutants.hash_complete_keys_lossily: 37,
    mutants.resume_new_rows_only: 1,
    mutants.swap_freely_over_held_back_rows: 186,
}


SHEDDING: dict[Mutant, BudgetCase] = {
    mutants.ignore_shed_probes: draw_scarce_budget_case(11),
    mutants.mark_only_shed_node_incomplete: draw_budget_case(20),
    mutants.mark_complete_before_turnover: draw_scarce_budget_case(60),
    mutants.complete_nothing_under_budget: draw_changed_budget_case(14),
    mutants.forget_losses_with_the_budget: draw_scarce_budget_case(14),
    mutants.forget_losses_of_kept_states: draw_changed_budget_case(232),
}


@pytest.mark.parametrize(("mutant", "run"), SHEDDING.items(), ids=[mutant.__name__ for mutant in SHEDDING])
def test_budget_mutant_is_detected(mutant: Mutant, run: BudgetCase, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run.find_fault() is None
    mutant(monkeypatch)
    assert run.find_fault() is not None


@pytest.mark.parametrize(("mutant", "seed"), SEEDS.items(), ids=[mutant.__name__ for mutant in SEEDS])
def test_mutant_is_detected(mutant: Mutant, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert draw_small_run(seed).find_fault() is None
    mutant(monkeypatch)
    assert draw_small_run(seed).find_fault() is not None


def run_chain_of_four(monkeypatch: pytest.MonkeyPatch) -> int:
    """An incomplete state is inherited under another key, whose codes stand for other values."""
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


def test_mutant_complete_keys_of_other_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_chain_of_four(monkeypatch) == 2
    mutants.keep_complete_keys_of_other_key(monkeypatch)
    assert run_chain_of_four(monkeypatch) < 2


def test_mutant_filter_tells_new_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    run = replace(draw_small_run(12), demand="bloom")
    assert run.find_fault() is None
    mutants.trust_filter_for_new_keys(monkeypatch)
    assert run.find_fault() is not None


def test_mutant_table_of_opened_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    run = replace(draw_small_run(54), state="auto", state_chance=0.4)
    assert run.find_fault() is None
    mutants.keep_table_of_opened_gate(monkeypatch)
    assert run.find_fault() is not None


def test_mutant_all_leaf_rows_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    run = draw_theta_run(78)
    assert run.find_fault() is None
    mutants.mark_all_leaf_rows_complete(monkeypatch)
    assert run.find_fault() is not None


SUSPENDED = (mutants.leave_resumed_rows_suspended, mutants.seek_suspended_rows_among_demanded)
"""Detected in tests/join/test_suspended_rows.py; that of eddies in tests/join/test_eddy.py."""
STATES = (
    mutants.add_state_as_complete, mutants.read_demand_of_driver_without_state, mutants.resume_only_states,
)  # fmt: skip
"""Detected in tests/join/test_state_choice.py."""
SIDES = (mutants.swap_sides_over_held_back_rows, mutants.keep_demand_below_new_driver)
"""Detected in test_sides.py."""


def test_all_mutants_have_case() -> None:
    directed = {
        mutants.keep_complete_keys_of_other_key, mutants.trust_filter_for_new_keys, mutants.mark_all_leaf_rows_complete,
        *SIDES, *STATES, *SUSPENDED, mutants.keep_table_of_opened_gate,
        mutants.close_eddy_gate_with_old_keys,
    }  # fmt: skip
    hunted = {*SEEDS, *SHEDDING, *directed}
    assert set(mutants.MUTANTS) == hunted
