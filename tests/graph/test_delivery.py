"""When results leave: operators advance after each turn, and subscribed functions are called during the push."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as ps
from penstock.lab.papers.query_graph.bursts import report_bursts
from penstock.lab.report import Report
from penstock.ops.timed_outer_join import TimedOuterJoinOperator
from penstock.testing import expected, random_operators_case, same_rows

SCHEMA = {"ts": "bigint", "x": "bigint"}
TEXTS = (
    "SELECT x FROM a",
    "SELECT x FROM a [ROWS 5] WHERE x > 1",
    "SELECT x, COUNT(*) AS n FROM a [RANGE 7] GROUP BY x",
    "SELECT COUNT(*) AS n FROM a [RANGE 7 SLIDE 3]",
    "SELECT DISTINCT x FROM a [RANGE 4]",
    "DSTREAM (SELECT x FROM a [RANGE 4])",
    "RSTREAM (SELECT x FROM a [RANGE 3])",
    "SELECT a.x FROM a [RANGE 5], b [RANGE 5] WHERE a.x = b.x",
    "SELECT x FROM a [RANGE 4] UNION ALL SELECT x FROM b [RANGE 4]",
    "SELECT x FROM a [RANGE 4] EXCEPT SELECT x FROM b [RANGE 4]",
    "SELECT x FROM chosen [RANGE 4]",
    "SELECT p.x FROM SEQ(a AS p, b AS q) MODE RECENT WHERE p.x = q.x",
    "SELECT a.x, b.x AS y FROM a [RANGE 5] LEFT JOIN b [RANGE 5] ON a.x = b.x EMIT CHANGES",
)


def make_engine(**options: Any) -> ps.Engine:
    engine = ps.Engine(warn=False, **options)
    for name in "ab":
        engine.stream(name, SCHEMA, time="ts")
    engine.derive("chosen", "SELECT x FROM a [NOW] WHERE x <> 1")
    return engine


def make_rows(count: int) -> dict[str, pa.Table]:
    times = list(range(count))
    return {
        "a": pa.table({"ts": times, "x": [time * 7 % 5 for time in times]}),
        "b": pa.table({"ts": times, "x": [time * 3 % 4 for time in times]}),
    }


@pytest.mark.parametrize("strategy", ["dfs", "bfs", "rr"])
@pytest.mark.parametrize("batch", [1, 3, 4096])
def test_deliveries_are_the_results_of_a_push(strategy: str, batch: int) -> None:
    """Whatever the strategy and the size of turns, functions get the rows of `push` in temporal order, each once."""
    plain, steps = make_engine(), make_engine(schedule=strategy, batch=batch)
    found: dict[str, list[dict[str, Any]]] = {}
    calls: dict[str, int] = {}

    def collect(name: str, rows: pa.Table) -> None:
        found.setdefault(name, []).extend(rows.to_pylist())
        calls[name] = calls.get(name, 0) + 1

    for number, text in enumerate(TEXTS):
        for engine in (plain, steps):
            engine.query(f"q{number}", text)
        steps.subscribe(f"q{number}", lambda rows, name=f"q{number}": collect(name, rows))
    rows = make_rows(60)
    whole = plain.push(rows), plain.flush()
    rest = steps.push(rows), steps.flush()
    for name in plain.queries:
        assert [table.num_rows for out in rest if (table := out.get(name)) is not None] in ([0, 0], [])
        if name in found:
            assert [row["_ts"] for row in found[name]] == sorted(row["_ts"] for row in found[name])
        given = pa.concat_tables(out[name] for out in whole if name in out)
        assert sorted(map(str, found.get(name, []))) == sorted(map(str, given.to_pylist())), name
    if batch == 1:
        calls.pop(f"q{len(TEXTS) - 1}")  # an outer join takes all that waits
        assert min(calls.values()) > 5, calls


def test_burst_leaves_earlier_depth_first() -> None:
    """In virtual time exactly as in the paper, on the operators of an engine."""
    report = Report("graph", quick=True)
    report_bursts(report, (1, 2, 9), rounds=1)
    (check,) = (check for check in report.checks if check.name == "burst_latency_exact")
    assert check.ok


def test_aggregate_keeps_to_the_batch() -> None:
    """Rows that wait leave in several turns, whole instants at a time."""
    engine, sizes = make_engine(batch=4), list[int]()
    engine.query("q", "SELECT x, COUNT(*) AS n FROM a [RANGE 7] GROUP BY x")
    engine.scheduler.on_step = lambda node, done: sizes.append(done) if "aggregate" in node.id else None
    engine.push({"a": make_rows(100)["a"]})
    assert len(sizes) > 10
    assert max(sizes) < 40


@pytest.mark.parametrize("strategy", ["dfs", "bfs", "rr"])
def test_operator_waits_for_rows_while_nobody_gets_results(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outer join runs a few times in a push of many turns, and more often if its results leave during the push."""
    runs, run = list[int](), TimedOuterJoinOperator.run

    def count_run(operator: TimedOuterJoinOperator, budget: int) -> int:
        runs.append(run(operator, budget))
        return runs[-1]

    monkeypatch.setattr(TimedOuterJoinOperator, "run", count_run)
    waiting, prompt = make_engine(batch=4, schedule=strategy), make_engine(batch=4)
    for engine in (waiting, prompt):
        engine.query("q", TEXTS[-1])
    rows = make_rows(200)
    rows["b"] = rows["b"].set_column(1, "x", pc.add(rows["b"]["x"], 4))  # few pairs
    given = waiting.push(rows)["q"]
    few = len(runs)
    found: list[pa.Table] = []
    prompt.subscribe("q", found.append)
    prompt.push(rows)
    assert few > (strategy == "dfs"), "depth first, what waits does not grow with the push"
    assert len(runs) - few > 3 * few
    same_rows(pa.concat_tables(found), given)


def test_random_operators_are_delivered() -> None:
    for seed in range(5):
        case = random_operators_case(seed + 31)
        engine, found = ps.Engine(warn=False, batch=2), []
        for stream in case.declarations:
            engine.declare(stream)
        engine.query("q", case.query)
        engine.subscribe("q", found.append)
        engine.push(case.accepted)
        engine.flush()
        wanted = expected(case.query, case.accepted, case.tables, case.times)
        same_rows(pa.concat_tables(found) if found else wanted.slice(0, 0), wanted)
