"""The lab of many queries: its parts, and a run of it small enough for a test."""

from __future__ import annotations

import pytest

from penstock.lab.crowd.experiments import CrowdScale, fit_exponent, run

TINY = CrowdScale(
    queries=(1, 2, 4), read=(1, 2), grouped=(1, 3), added=12, filters=3, pushes=1, rows=400, group_rows=200
)  # fmt: skip


def test_crowd_report() -> None:
    report = run(scale=TINY)
    checks = {check.name: check for check in report.checks}
    for kind in ("windows", "filters", "aggregates"):
        assert checks[f"differences_{kind}"].value == 0
    assert {"start_exponent", "read_ms_per_million_rows", "aggregates_3_push_ms"} <= checks.keys()
    assert [row["queries"] for row in report.sections[0].rows] == [1, 2, 4]
    assert report.figures["crowd.png"].startswith(b"\x89PNG")


def test_exponent_of_a_line() -> None:
    assert fit_exponent([1, 10, 100, 1000], [5.0, 2.0, 20.0, 200.0]) == pytest.approx(1.0)
