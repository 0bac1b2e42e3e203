"""The JIT lab on tiny data: all policies give the same rows, the counts add up. No test asserts a time."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

import penstock as ps
from penstock.lab.papers.jit import experiments as jit
from penstock.lab.papers.jit.clique import HOT, SWEEPS, WITH_RESULTS, Clique
from penstock.lab.papers.jit.runs import POLICIES, Tally, add_push, run_policies

TINY = jit.JitScale(
    sweeps=(replace(SWEEPS[0], values=(10, 20)), replace(SWEEPS[4], values=(5, 10))), windows=0.3, default_windows=0.4,
    rounds=1, fast_hours=0.02, fast_rounds=1, hot=(replace(HOT[1], hours=0.01),),
    with_results=tuple(replace(point, hours=0.04) for point in WITH_RESULTS[::6]),
)  # fmt: skip


@pytest.mark.parametrize("point", WITH_RESULTS[1::9], ids=lambda point: point.shape)
def test_policies_give_rows_of_ref(point: Clique) -> None:
    found = run_policies(replace(point, hours=0.06), rounds=1)
    ref = found["eager"].tally
    assert ref.results > 0
    assert all(found[state].tally.has_same_answer(ref) for state in POLICIES)
    jit_ = found["jit"].tally
    assert jit_.built < ref.built
    assert jit_.resumed > 0
    assert jit_.nested_loop_hashed < jit_.nested_loop
    assert ref.nested_loop == ref.nested_loop_hashed
    assert ref.sought == ref.tested == 0


def test_every_comparison_of_resume_is_counted() -> None:
    """100 tuples of A and of B wait for one c: the scan of both windows, all pairs of them, and each look-up count."""
    engine = ps.Engine(state="jit")
    for name in "ABC":
        engine.stream(name, {"ts": "bigint", "x": "bigint", "y": "bigint"}, time="ts")
    where = "A.x = C.x AND B.x = C.x AND A.y = B.y"
    engine.query("q", f"SELECT A.ts FROM A, B, C WHERE {where} WINDOW 1000", plan="((A B) C)")
    waiting = pa.table({"ts": [1] * 100, "x": [5] * 100, "y": list(range(100))})
    engine.push({"A": waiting, "B": waiting, "C": pa.table({"ts": [0], "x": [6], "y": [0]})})
    for name in "ABC":
        engine.advance(name, 2)
    engine.push({})
    before = engine.metrics("q")
    for name in "AB":
        engine.advance(name, 3)
    assert engine.push({"C": pa.table({"ts": [2], "x": [5], "y": [0]})})["q"].num_rows == 100
    tally = Tally()
    add_push(tally, before, engine.metrics("q"))
    scanned, joined, checked, probed = 2 * 100, 100 * 100, 100, 50  # the state that c probes has 0 rows, then 100
    assert tally.nested_loop_hashed >= 2 + joined + checked + probed
    assert tally.nested_loop == tally.nested_loop_hashed + scanned - 2


def test_sweep_includes_default_point() -> None:
    assert [point for sweep in TINY.sweeps for point in TINY.list_points(sweep)][1::2] == list(TINY.defaults.values())


def test_report_checks_tables_and_figures() -> None:
    report = jit.run(scale=TINY)
    value = json.loads(json.dumps(report.as_json()))
    assert {check["name"] for check in value["checks"]} == {
        "bushy_nested_loop_ref_over_jit", "bushy_peak_state_rows_below_ref", "left_deep_built_ref_over_jit",
        "left_deep_nested_loop_ref_over_jit", "left_deep_10x_rate_cpu_ref_over_jit",
        "auto_over_best_of_others", "auto_changes_of_a_node", "points_with_results", "answers_as_ref",
    }  # fmt: skip
    assert next(check for check in report.checks if check.name == "answers_as_ref").ok
    assert set(report.figures) == {"jit-figure-10.png", "jit-figure-14.png"}
    assert {row["shape"] for row in value["mns"]} == {"bushy", "left-deep"}
    assert len(value["gains"]) == 4 + 2 + 1 + 1
