"""The graph lab on tiny data: its shape, and what is exact in virtual time. No test asserts a measured time."""

from __future__ import annotations

import json

from penstock.lab.papers.query_graph import experiments as graph

TINY = graph.GraphScale(
    seconds=2,
    slide_seconds=1,
    periods=(1_000, 100_000),
    bursts=(1, 20),
    slides=(1, 50),
    burst_sizes=(1, 7),
    pushes=4,
    rounds=1,
)
EXACT = (
    "burst_latency_exact",
    "latency_none_over_ets",
    "latency_best_heartbeat_over_ets",
    "bfs_over_dfs_in_bursts",
    "ets_arcs_below_punctuation",
    "burstiness_none_over_ets",
)


def test_figures_checks_and_json(tmp_path) -> None:
    report = graph.run(scale=TINY)
    for path in report.write(tmp_path):
        assert path.stat().st_size > 0
    checks = {check["name"]: check for check in json.loads((tmp_path / "graph.json").read_text())["checks"]}
    assert all(checks[name]["ok"] for name in EXACT)
    measured = {"ets_arcs_below_punctuation_measured", "scheduling_overhead_join", "scheduling_overhead_union"}
    assert measured <= set(checks)
