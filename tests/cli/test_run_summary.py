"""The end of `penstock run`."""

from __future__ import annotations

from penstock.cli.run_summary import QuerySummary, RunSummary, RunTotals


def test_summary_names_queries_that_stopped() -> None:
    error = "stopped in cells 0, 2: [EVALUATION] broken"
    queries = {"good": QuerySummary(3, "memory"), "bad": QuerySummary(1, "memory", error)}
    summary = RunSummary("completed", queries, {}, RunTotals(2, 8, 0.5, 3), None, None)
    assert list(summary.format_lines())[1:] == [
        "  good: 3 results, memory",
        "  bad: 1 results, memory",
        f"  bad: {error}",
    ]
    assert summary.as_json()["queries"]["bad"]["error"] == error
    assert summary.as_json()["queries"]["good"]["error"] is None
