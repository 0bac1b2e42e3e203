"""The law for just-in-time state: policies, plans and lives change under way, the answer does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from adventures import adventure, eddy, small
from lawkit import CHUNKS, seeds

import penstock as ps


@pytest.mark.parametrize("chunk", CHUNKS[::2])
def test_whatever_happens_the_answer_is_the_oracles(chunk: int) -> None:
    for seed in seeds(chunk):
        life = adventure(seed)
        fault = life.fault()
        assert fault is None, f"{life}\n{fault}"


@pytest.mark.parametrize("chunk", CHUNKS[1::2])
def test_rows_put_off_or_missing_come_when_they_are_needed(chunk: int) -> None:
    for seed in seeds(chunk):
        life = replace(small(seed), demand=("exact", "bloom")[seed % 2])
        fault = life.fault()
        assert fault is None, f"{life}\n{fault}"


def test_a_gate_that_opens_over_an_incomplete_state_lacks_newer_rows_too() -> None:
    """The state kept the marks of the migration before: rows of tuples that came under the gate stayed missing."""
    life = replace(adventure(267), state="auto", demand="exact", eddies=0.0, restarts=0.0, switches=0.0, pace=0)
    fault = life.fault()
    assert fault is None, f"{life}\n{fault}"


@pytest.mark.parametrize("seed", [3055, 20165])
def test_a_filter_that_is_often_mistaken_loses_nothing(seed: int) -> None:
    """Rows were lost while the filter alone said what is demanded: a key that is added lets others pass unnoticed."""
    life = replace(small(seed), demand="bloom")
    fault = life.fault()
    assert fault is None, f"{life}\n{fault}"


@pytest.mark.parametrize("chunk", CHUNKS[::5])
def test_an_eddy_may_route_as_it_likes(chunk: int) -> None:
    for seed in seeds(chunk):
        life = adventure(seed)
        life = replace(life, plan=eddy(life.case.plan), state=("none", "jit")[seed % 2], migrates=0.0, switches=0.0)
        fault = life.fault()
        assert fault is None, f"{life}\n{fault}"


def test_policies_per_node_can_be_named_and_mistaken() -> None:
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
