"""The State-Slice lab on tiny data: all contenders give every query the same rows. No test asserts a time."""

from __future__ import annotations

import json

import numpy as np
import pytest

from penstock.lab.papers.state_slice import experiments as lab
from penstock.lab.papers.state_slice.chains import TABLE_4, spread_windows
from penstock.lab.papers.state_slice.many_queries import QueryMix, measure_scaling
from penstock.lab.papers.state_slice.rivals import SHARING_STRATEGIES
from penstock.lab.papers.state_slice.runs import compute_mean_minimum, run_side_by_side
from penstock.lab.papers.state_slice.scale import SliceScale
from penstock.lab.papers.state_slice.streams import (
    SECOND,
    PoissonStreams,
    SliceQuery,
    compute_key_odds,
    count_least_rows,
)

TINY = SliceScale(
    seconds=8, rates=(20,), memory_rates=(30,), sigmas=(0.5,), joins=(0.1, 0.4), counts=(12, 24), query_counts=(1, 30),
    scaling_streams=PoissonStreams(60, 22, 0.05), scaling_window=2,
    fast_rate=40, fast_seconds=8, read_queries=8, sample=3, changing_queries=5, rounds=1,
)  # fmt: skip

QUERIES = [SliceQuery(SECOND), SliceQuery(3 * SECOND, 0.5), SliceQuery(2 * SECOND, 0.2), SliceQuery(4 * SECOND, 0.5)]


@pytest.mark.parametrize("joins", [0.005, 0.025, 0.1, 0.4, 0.5, 1])
def test_key_odds_match_join_selectivity(joins: float) -> None:
    odds = compute_key_odds(joins)
    assert odds.sum() == pytest.approx(1)
    assert (odds**2).sum() == pytest.approx(joins)


def test_strategies_give_same_rows_in_order() -> None:
    pushes = list(PoissonStreams(30, 8, 0.2).generate_pushes())
    running = {name: make(QUERIES) for name, make in SHARING_STRATEGIES.items()}
    found = 0
    for push in pushes:
        answers = {name: contender.push(push) for name, contender in running.items()}
        for tables in zip(*answers.values(), strict=True):
            rows = [sorted(tuple(row.values()) for row in table.to_pylist()) for table in tables]
            assert all(each == rows[0] for each in rows)
            assert all(np.all(np.diff(table.column("_ts").to_numpy()) >= 0) for table in tables)
            found += len(rows[0])
    assert found > 0


def test_state_sizes_of_strategies() -> None:
    """Pull-up holds the largest window, push-down a copy of B per part; slices hold the fewest tuples."""
    queries = QUERIES[:2]
    pushes = list(PoissonStreams(400, 8, 0.01).generate_pushes())
    states = {name: outcome.state.rows for name, outcome in run_side_by_side(queries, pushes, 1).items()}
    ends = [push["A"].column("ts")[-1].as_py() for push in pushes]
    plain = np.mean([count_least_rows(pushes[: at + 1], [SliceQuery(3 * SECOND)], ends[at]) for at in range(3, 8)])
    assert states["pull_up"] == pytest.approx(plain, abs=1)
    assert (
        round(compute_mean_minimum(queries, pushes)) <= states["state_slice"] < states["push_down"] < states["unshared"]
    )
    assert states["state_slice"] < states["pull_up"]


def test_least_rows_counts_usable_tuples() -> None:
    pushes = list(PoissonStreams(50, 5, 0.1).generate_pushes())
    now = 5 * SECOND - 1
    rows = [row for push in pushes for row in push["A"].to_pylist()]
    needed = sum(r["ts"] + SECOND > now or (r["v"] < 0.5 and r["ts"] + 3 * SECOND > now) for r in rows)
    needed += sum(r["ts"] + 3 * SECOND > now for push in pushes for r in push["B"].to_pylist())
    assert count_least_rows(pushes, QUERIES[:2], now) == needed


def test_many_queries_answer_as_each_alone() -> None:
    queries = QueryMix(40, 2 * SECOND, 20).build_queries()
    assert len({query.window for query in queries}) == 40
    assert len({query.share for query in queries}) == 20
    assert queries[0] == SliceQuery(2 * SECOND)
    found = measure_scaling(queries, list(PoissonStreams(60, 10, 0.05).generate_pushes()), [0, 7, 39], 2)
    assert found.wrong == 0


@pytest.mark.parametrize("count", [12, 24, 36])
def test_spread_windows_keep_distribution(count: int) -> None:
    for ends in TABLE_4.values():
        more = spread_windows(ends, count)
        assert len(set(more)) == count
        assert set(ends) <= set(more)


def test_report_checks_tables_and_figures() -> None:
    report = lab.run(scale=TINY)
    value = json.loads(json.dumps(report.as_json()))
    checks = {check["name"]: check for check in value["checks"]}
    assert checks.keys() >= {
        "rows_vs_minimum", "bytes_saved_over_pull_up", "bytes_saved_over_push_down", "service_rate_vs_best_rival",
        "cpu_vs_largest_query", "row_bytes_vs_largest_query", "slowest_batch_of_a_change", "all_windows_vs_one",
        "service_rate_over_unshared", "crowd_read_over_unshared",
    }  # fmt: skip
    assert checks["service_results_differ"]["ok"]
    assert checks["sampled_queries_differ"]["ok"]
    assert {f"slice-figure-{number}.png" for number in (17, 18, 19)} <= report.figures.keys()
    assert len(value["memory"]) == 3
    assert len(value["beyond"]) == 2
    assert [row["queries"] for row in value["crowds"]] == [1, 30]
