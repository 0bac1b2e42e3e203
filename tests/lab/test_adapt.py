"""The lab of the drifting workload: its parts, and a run of it small enough for a test."""

from __future__ import annotations

from penstock.adapt import Decision, SetPolicy, ShedLoad
from penstock.lab.adapt.experiments import (
    NAMES,
    AdaptScale,
    count_busiest_minute,
    find_overloads,
    generate_arrivals,
    run,
)

TINY = AdaptScale(phase=20, window=8, rate=30, burst=4, burst_factor=2)


def test_report_checks_and_figure() -> None:
    report = run(scale=TINY)
    checks = {check.name: check for check in report.checks}
    for name in ("pushes_that_differ_outside_overload", "pushes_with_more_than_the_exact_results"):
        assert checks[name].value == 0
    assert checks["decisions_that_failed"].value == 0
    assert checks["decisions_in_a_minute"].ok
    assert {"cpu_adaptive_over_fixed", "matters_decided_on", "budgets_left_over"} <= checks.keys()
    assert len(next(section.rows for section in report.sections if section.key == "phases")) == 5
    assert report.figures["adapt.png"].startswith(b"\x89PNG")


def decision(push: int, limit: str | None = None) -> Decision:
    return Decision(ShedLoad("q", limit), float(push), {}, push)


def test_overload_spans_of_decisions() -> None:
    assert find_overloads([], 10) == set()
    both = [
        decision(2, "5 ms"),
        decision(3, "6 ms"),
        Decision(SetPolicy("q", "auto"), 4.0, {}, 4),
        decision(5),
        decision(8, "5 ms"),
    ]
    assert find_overloads(both, 10) == {2, 3, 4, 8, 9}


def test_busiest_minute() -> None:
    assert count_busiest_minute([]) == 0
    assert count_busiest_minute([decision(at) for at in (0, 30, 59, 60, 200)]) == 3


def test_arrivals_are_deterministic() -> None:
    begin = TINY.burst_seconds.start
    assert generate_arrivals(TINY, begin) == generate_arrivals(TINY, begin)
    assert {name: table.num_rows for name, table in generate_arrivals(TINY, begin).items()} == dict.fromkeys(NAMES, 60)
    assert generate_arrivals(TINY, begin - 1)["a"].num_rows == 30
