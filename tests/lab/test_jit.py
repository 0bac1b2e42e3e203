"""The JIT lab on tiny data: all policies give the same rows, the counts add up. No test asserts a time."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from penstock.lab.papers.jit import experiments as jit
from penstock.lab.papers.jit.clique import SWEEPS, WITH_RESULTS, Clique
from penstock.lab.papers.jit.runs import POLICIES, run_policies

TINY = jit.JitScale(
    sweeps=(replace(SWEEPS[0], values=(10, 20)), replace(SWEEPS[4], values=(5, 10))), windows=0.3, default_windows=0.4,
    rounds=1, fast_hours=0.02, fast_rounds=1, with_results=tuple(replace(point, hours=0.04) for point in WITH_RESULTS),
)  # fmt: skip


@pytest.mark.parametrize("point", WITH_RESULTS, ids=lambda point: point.shape)
def test_policies_give_rows_of_ref(point: Clique) -> None:
    found = run_policies(replace(point, hours=0.06), rounds=1)
    ref = found["eager"].tally
    assert ref.results > 0
    assert all(found[state].tally.has_same_answer(ref) for state in POLICIES)
    jit_ = found["jit"].tally
    assert jit_.built < ref.built
    assert jit_.resumed > 0
    assert jit_.nested_loop <= jit_.nested_loop_scanned
    assert ref.nested_loop == ref.nested_loop_scanned
    assert ref.sought == ref.tested == 0


def test_sweep_includes_default_point() -> None:
    assert [point for sweep in TINY.sweeps for point in TINY.list_points(sweep)][1::2] == list(TINY.defaults.values())


def test_report_checks_tables_and_figures() -> None:
    report = jit.run(scale=TINY)
    value = json.loads(json.dumps(report.as_json()))
    assert {check["name"] for check in value["checks"]} == {
        "bushy_nested_loop_ref_over_jit", "bushy_peak_state_rows_below_ref", "left_deep_built_ref_over_jit",
        "left_deep_nested_loop_ref_over_jit", "left_deep_10x_rate_cpu_ref_over_jit",
        "auto_over_better_of_eager_and_jit", "points_with_results", "answers_as_ref",
    }  # fmt: skip
    assert next(check for check in report.checks if check.name == "answers_as_ref").ok
    assert set(report.figures) == {"jit-figure-10.png", "jit-figure-14.png"}
    assert {row["shape"] for row in value["mns"]} == {"bushy", "left-deep"}
    assert len(value["gains"]) == 4 + len(WITH_RESULTS) + 1
