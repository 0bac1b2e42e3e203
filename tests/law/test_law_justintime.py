"""The law for just-in-time state: policies, plans and restarts during a run do not change results."""

from __future__ import annotations

from dataclasses import replace

import pytest
from law_support import CHUNKS, list_seeds
from migration_runs import draw_migration_run, draw_range_gate_run, draw_small_run, draw_theta_run, to_eddy_plan

import penstock as ps


@pytest.mark.parametrize("chunk", CHUNKS[::2])
def test_random_runs_match_oracle(chunk: int) -> None:
    for seed in list_seeds(chunk):
        run = draw_migration_run(seed)
        fault = run.find_fault()
        assert fault is None, f"{run}\n{fault}"


@pytest.mark.parametrize("chunk", CHUNKS[1::2])
def test_deferred_and_missing_rows_are_completed(chunk: int) -> None:
    for seed in list_seeds(chunk):
        run = replace(draw_small_run(seed), demand=("exact", "bloom")[seed % 2])
        fault = run.find_fault()
        assert fault is None, f"{run}\n{fault}"


@pytest.mark.parametrize("chunk", CHUNKS[::2])
def test_states_and_gates_change_while_running(chunk: int) -> None:
    """`auto` with states that are dropped and kept again at random, and gates over joins that keep no rows."""
    for seed in list_seeds(chunk)[::2]:
        state = ("auto", "auto", "none")[seed // 2 % 3]
        run = replace(draw_small_run(seed), state=state, state_chance=0.4)
        fault = run.find_fault()
        assert fault is None, f"{run}\n{fault}"


@pytest.mark.parametrize("chunk", CHUNKS[::4])
def test_missing_rows_of_theta_joins_are_completed(chunk: int) -> None:
    for seed in list_seeds(chunk)[::4]:
        run = draw_theta_run(seed)
        fault = run.find_fault()
        assert fault is None, f"{run}\n{fault}"


@pytest.mark.parametrize("chunk", CHUNKS[::2])
def test_gates_by_ranges_match_oracle(chunk: int) -> None:
    """Joins of joins by bands and inequalities: gates close, open and change sides while numbers are demanded."""
    for seed in list_seeds(chunk)[::2]:
        run = draw_range_gate_run(seed)
        fault = run.find_fault()
        assert fault is None, f"{run}\n{fault}"


def test_gate_opens_over_incomplete_state() -> None:
    """The state kept the marks of the previous migration, so rows of tuples held back by the gate stayed missing."""
    run = replace(
        draw_migration_run(267),
        state="auto",
        demand="exact",
        eddy_chance=0.0,
        restart_chance=0.0,
        policy_chance=0.0,
        pace=0,
    )
    fault = run.find_fault()
    assert fault is None, f"{run}\n{fault}"


@pytest.mark.parametrize("seed", [3055, 20165])
def test_bloom_false_positives_lose_no_rows(seed: int) -> None:
    """Rows were lost while only the Bloom filter decided: an added key admits other keys, which were not resumed."""
    run = replace(draw_small_run(seed), demand="bloom")
    fault = run.find_fault()
    assert fault is None, f"{run}\n{fault}"


@pytest.mark.parametrize("chunk", CHUNKS[::5])
def test_eddy_runs_match_oracle(chunk: int) -> None:
    for seed in list_seeds(chunk):
        run = draw_migration_run(seed)
        run = replace(
            run,
            plan=to_eddy_plan(run.case.plan),
            state=("none", "jit", "auto")[seed % 3],
            migrate_chance=0.0,
            policy_chance=0.0,
        )
        fault = run.find_fault()
        assert fault is None, f"{run}\n{fault}"


def test_policy_per_node_and_invalid_options() -> None:
    engine = ps.Engine()
    for name in "ABC":
        engine.stream(name, {"ts": "bigint", "x": "bigint"}, time="ts")
    engine.query("q", "SELECT A.x FROM A, B, C WHERE A.x = B.x AND B.x = C.x WINDOW 9", plan="((A B) C)", state="jit")
    engine.policy("q", "none", node="(A B)")
    engine.policy("q", "lazy")
    engine.policy("q", "jit", demand="bloom")
    assert engine.metrics("q")["demand"] == "bloom"
    with pytest.raises(ps.QueryError, match="jit and auto"):
        engine.policy("q", "lazy", demand="bloom")
    for state, node in (("clever", None), ("jit", "(B C)"), ("jit", "((A B) C)")):
        with pytest.raises(ps.QueryError):
            engine.policy("q", state, node=node)
