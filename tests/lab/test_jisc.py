"""The JISC lab on tiny data: all rivals give the same results for all migrations. No test asserts a time."""

from __future__ import annotations

import json

import pytest

from penstock.lab.papers.jisc import experiments as jisc
from penstock.lab.papers.jisc.stopwatch import build_filled, time_batches
from penstock.lab.papers.jisc.streams import RoundRobinStreams

TINY = jisc.JiscScale(
    joins=(3, 4),
    window=40,
    batch=25,
    rounds=1,
    latency_windows=(40,),
    theta_windows=(40,),
    order_window=50,
    large_window=60,
    large_joins=2,
    frequent_joins=3,
    change_periods=(0.5, 1),
    rare_joins=2,
    rare_periods=(2, 3),
    paces=(0, 2),
    draws=1_000,
)


@pytest.mark.parametrize("states", ["one", "all"])
@pytest.mark.parametrize("name", jisc.STRATEGIES)
def test_migration_strategies_give_same_results(name: str, states: str) -> None:
    streams = RoundRobinStreams(joins=4, window=40)
    batches = list(streams.cut_batches(40, 160, 23))
    changes = {3: streams.swap_order(states), 5: streams.names, 14: streams.swap_order(states)}
    found = time_batches(build_filled(jisc.STRATEGIES[name], streams), batches, changes)
    plain = time_batches(build_filled(jisc.MovingState, streams), batches, {})
    assert found.results == plain.results > 0


def test_one_or_all_states_incomplete() -> None:
    streams = RoundRobinStreams(joins=5, window=10)
    running = jisc.Jisc(streams, streams.names)
    running.migrate(streams.swap_order("one"))
    complete = [node.state is None or node.complete for node in running.tree.walk_joins()]
    assert complete == [True, True, True, False, True]
    running = jisc.Jisc(streams, streams.names)
    running.migrate(streams.swap_order("all"))
    assert [node.state is None or node.complete for node in running.tree.walk_joins()] == [False] * 4 + [True]


def test_report_checks_tables_and_figures() -> None:
    report = jisc.run(scale=TINY)
    value = json.loads(json.dumps(report.as_json()))
    assert {check["name"] for check in value["checks"]} >= {
        "stage_vs_moving_state", "stage_vs_parallel_track", "slowest_batch_of_migration", "lazy_vs_eager",
        "rate_vs_cacq", "migrate_call_vs_stall", "proposition_1_monte_carlo",
        "first_push_of_theta_join", "first_push_in_other_order",
    }  # fmt: skip
    assert next(check for check in report.checks if check.name == "stage_results_differ").ok
    assert {f"jisc-figure-{number}.png" for number in (7, 8, 9, 10, "10b", 11, 12)} <= report.figures.keys()
