"""The lab's parts on tiny data: the references agree, reports have their shape. No test asserts a time."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

from penstock.errors import UnsupportedError
from penstock.lab import LABS, select_labs
from penstock.lab.core import experiments as core
from penstock.lab.core.latency import LatencyGrid, fit_exponent
from penstock.lab.core.reference import BatchDatabase, CompiledJoin
from penstock.lab.core.throughput import Grid
from penstock.lab.report import Report, check_at_most, check_equals, combine_reports, split_columns
from penstock.lab.timing import TurnTimer
from penstock.lab.workloads import KeyedStreams, build_steady, build_w3, concat_pushes

TINY = core.CoreScale(
    Grid(ways=(2, 3), windows=(200,), pushes=((50, 3), (200, 2))),
    rows=1_200,
    keys=40,
    seconds=600,
    rounds=1,
    latency=LatencyGrid((2, 3), (100, 200), (1, 4), window=100, pushes=8, idle_queries=3),
    limited=(3_000, 1_000),
    tops=(50, 200),
    range_rows=200,
    hot=(12, 2),
)


def test_history_batches_seeded_and_disjoint() -> None:
    streams = build_w3(rows=1_000, keys=10, seconds=100)
    first, second = list(streams.generate_pushes(2))
    assert list(streams.generate_pushes(2))[1]["b"].equals(second["b"])
    assert first["a"].column("ts")[-1].as_py() < second["a"].column("ts")[0].as_py()
    assert first["a"].num_rows + second["a"].num_rows == 1_000
    assert len(list(streams.generate_pushes(2, history=4))) == 8


@pytest.mark.parametrize(
    "streams", [build_w3(600, 20, 900), build_steady(2, 100), build_steady(5, 60)], ids=lambda s: f"{s.ways}-way"
)
def test_engine_loop_and_database_agree(streams: KeyedStreams) -> None:
    pushes = list(streams.generate_pushes(4, history=3))
    engine = streams.build_engine()
    tables = [*(engine.push(push)["q"] for push in pushes), engine.flush()["q"]]
    from_engine = sorted(tuple(row.values())[:-1] for table in tables for row in table.to_pylist())
    loop = CompiledJoin(streams, streams.rows * 3)
    from_loop = sorted(tuple(row) for push in pushes for row in loop.push(push).tolist())
    database = BatchDatabase(streams, concat_pushes(pushes))
    from_database = sorted(tuple(row.values()) for row in database.join().to_pylist())
    assert from_engine == from_loop == from_database
    assert from_database


def test_core_measures_checks_and_draws(tmp_path) -> None:
    report = core.run(scale=TINY)
    for path in report.write(tmp_path):
        assert path.stat().st_size > 0
    found = json.loads((tmp_path / "core.json").read_text())
    assert {"name", "value", "unit", "goal", "ok"} == set(found["checks"][0])
    checks = {check["name"]: check for check in found["checks"]}
    assert checks["w3_count_matches_duckdb"]["ok"]
    assert checks["w3_count_matches_duckdb"]["value"] > 0
    assert {"w3_time_vs_duckdb", "rss_4x_over_1x"} <= set(checks)
    assert len(found["throughput"]) == 4
    assert all(row["engine_rows_s"] > 0 and row["loop_rows_s"] > 0 for row in found["throughput"])
    assert [row["history"] for row in found["memory"]] == ["1x", "4x"]
    assert {"push of 3 tuples, 3-way join, p50", "3 idle queries", "exponent of a push over window rows"} <= set(checks)
    assert all(0 < row["p50 µs"] <= row["p99 µs"] for row in found["latency_streams"])
    assert checks["results under a memory limit as in memory and in DuckDB"]["ok"]
    assert found["limited"][1]["results"] > 0
    assert checks["join on a range: other than DuckDB's"]["ok"]
    assert checks["join on a range and two keys: other than DuckDB's"]["ok"]
    assert checks["hot key: missing results"]["ok"]
    assert found["hot_key"][0]["results"] == 24**3
    assert found["profile"]
    assert found["machine"]["cores"] >= 1
    assert (tmp_path / "core-throughput.png").read_bytes().startswith(b"\x89PNG")


def test_exponent_of_cost() -> None:
    rows = [{"rows": size, "p50 µs": 3.0 * size**0.5} for size in (1, 10, 1_000)]
    assert round(fit_exponent(rows, "rows"), 6) == 0.5


def test_check_goal() -> None:
    assert check_at_most("time", 1.5, 2, "times").ok
    assert not check_at_most("time", 2.5, 2, "times").ok
    assert check_equals("count", 3, 3, "rows").goal == "== 3"
    report = Report("core", quick=True, checks=[check_equals("count", 3, 4, "rows")])
    assert not report.ok
    both = combine_reports([report, report])
    assert len(both["checks"]) == 2
    assert len(both["labs"]) == 2


def test_every_lab_module_exists() -> None:
    assert all(find_spec(lab.module) is not None for lab in LABS.values())
    assert select_labs("all") == tuple(LABS)


def test_timer_takes_best_round_of_each_step() -> None:
    times = iter([0, 3, 10, 11, 20, 22, 30, 34])  # begin and end of each call
    timer = TurnTimer(["a"], 2, 2, lambda: float(next(times)))
    for round_number, step in ((0, 0), (0, 1), (1, 0), (1, 1)):
        assert timer.run("a", round_number, step, lambda: "done") == "done"
    assert timer.best("a").tolist() == [2, 1]
    assert timer.total("a") == 3
    assert timer.total("a", first=1) == 1


def test_timer_rotates_order() -> None:
    timer = TurnTimer(["a", "b", "c"], 1, 4)
    assert [timer.order(step)[0] for step in range(4)] == ["a", "b", "c", "a"]
    assert sorted(timer.order(1)) == ["a", "b", "c"]


def test_unknown_lab_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"nonsense.*choose core"):
        select_labs("nonsense")


def test_wide_table_split_with_key_columns() -> None:
    figures = {f"figure_{n}": n * 1000 for n in range(8)}
    rows: list[dict[str, object]] = [{"kind": kind, "rate": rate, **figures} for kind in "ab" for rate in (1, 2)]
    parts = list(split_columns(rows, 60))
    assert len(parts) > 1
    assert all(part[:2] == ["kind", "rate"] for part in parts)
    assert [name for part in parts for name in part[2:]] == list(figures)
    assert list(split_columns(rows, 400)) == [list(rows[0])]
    assert list(split_columns([], 80)) == [[]]
