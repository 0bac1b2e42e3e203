"""When a gate pays, as pure functions of counts; and the metrics of Bloom filters in place of exact sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from inspect_engine import demand_of

import penstock as ps
from penstock.join import BATCH_COST, REQUEST_COST, TEST_COST
from penstock.join.demand.gate_cost import KEY_COST, MARGIN, GateReview, GateSample, GateWork, may_pay_off, pays_off
from penstock.state import Maintenance


def test_work_difference_and_cost_in_rows() -> None:
    work = GateWork(7, 900, 50, 30, 4_000, 60, 80).subtract(GateWork(5, 400, 20, 10, 1_000, 20, 70))
    assert work == GateWork(2, 500, 30, 20, 3_000, 40, 80)
    assert work.compute_cost(closed=True) == 2 * BATCH_COST + 3_000 * TEST_COST + 40 * REQUEST_COST + 80 * KEY_COST
    assert work.compute_cost(closed=False) == 2 * BATCH_COST + 500 * TEST_COST + 20 * REQUEST_COST + 80 * KEY_COST
    assert work.driver_rows_per_batch == 10


def test_gate_not_measured_below_cost() -> None:
    assert not may_pay_off(GateWork(batches=1, built=round(BATCH_COST)))
    assert may_pay_off(GateWork(batches=1, built=round(2 * BATCH_COST)))


@pytest.mark.parametrize("balance", [0.5, 1.0, 2.0])
def test_gate_hysteresis_between_margins(balance: float) -> None:
    work = GateWork(batches=1, arrived=1_000, tested=1_000)
    sample = GateSample(balance * work.compute_cost(closed=True) / 1_000, 0.0)
    assert pays_off(sample, work, closed=False) == (balance > MARGIN)
    assert pays_off(sample, work, closed=True) == (balance > 1 / MARGIN)


def test_gate_scan_for_new_keys_counts_against_closing() -> None:
    """Rows to scan for new keys count against closing an open gate."""
    work = GateWork(batches=1, arrived=1_000)
    assert pays_off(GateSample(10.0, 0.0), work, closed=False)
    assert not pays_off(GateSample(10.0, 50_000.0), work, closed=False)


def test_gate_backoff_doubles_with_each_failure() -> None:
    look, rests = GateReview(), []
    for _ in range(4):
        look = look.record(GateWork(), was_closed=False, closed=False)
        rests.append(look.skips)
    assert rests == [2, 4, 8, 16]
    assert look.skip(GateWork()).skips == 15
    tried = look.record(GateWork(), was_closed=False, closed=True)
    assert tried.record(GateWork(), was_closed=True, closed=False).skips == 32
    assert tried.record(GateWork(), was_closed=True, closed=True).failures == 0


def futile(state: str, **options: Any) -> ps.Engine:
    """Many pairs of A and B on k; most values of A's x do not occur in C."""
    engine = ps.Engine(state=state, **options)
    for name in "ABC":
        engine.stream(name, dict.fromkeys(("ts", "k", "x", "y"), "bigint"), time="ts")
    text = "SELECT A.ts AS a FROM A, B, C WHERE A.k = B.k AND A.x = C.x AND B.y = C.y WINDOW 1000"
    engine.query("q", text, plan="((A B) C)")
    return engine


def fed(engine: ps.Engine, used: bool) -> ps.Engine:
    rng = np.random.default_rng(3)
    for number in range(20):
        times = np.arange(100 * number, 100 * number + 100)
        values = {"A": rng.integers(0, 100, 100), "B": rng.integers(0, 100, 100)}
        values["C"] = rng.integers(0, 100, 100) + (0 if used else 1_000)
        engine.push({name: pa.table({"ts": times, "k": times % 9, "x": x, "y": x[::-1]}) for name, x in values.items()})
    return engine


def test_auto_closes_gate_over_unused_rows() -> None:
    built = {state: fed(futile(state), used=False).metrics("q")["built"]["(A B)"] for state in ("eager", "auto", "jit")}
    assert built["jit"] == 0
    assert built["auto"] < built["eager"] / 4


def test_metrics_false_positives_of_bloom_filter() -> None:
    exact = fed(futile("jit"), used=True)
    assert exact.metrics("q")["false_positives"] == {}
    few = Maintenance(bloom_bits=64, bloom_bits_per_key=1)
    engine = fed(futile("jit", demand="bloom", maintenance=few), used=True)
    rates = engine.metrics("q")["false_positives"]["(A B)"]
    assert rates["tested"] > 100
    assert 0 < rates["estimated"] < 1
    assert 0 < rates["measured"] < 1
    assert engine.metrics("q")["built"]["(A B)"] == exact.metrics("q")["built"]["(A B)"]
    restored = ps.Engine.restore(engine.snapshot())
    assert restored.metrics("q")["demand"] == "bloom"


def test_demand_option_validated() -> None:
    with pytest.raises(ps.QueryError, match="exact, bloom"):
        ps.Engine(demand="cuckoo")
    engine = futile("jit")
    with pytest.raises(ps.QueryError, match="jit and auto"):
        engine.query("other", "SELECT ts FROM A", state="eager", demand="bloom")
    engine = ps.Engine(demand="bloom", state="eager")
    assert demand_of(ps.Engine.restore(engine.snapshot())) == "bloom"
