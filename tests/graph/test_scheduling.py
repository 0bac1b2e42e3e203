"""Scheduling through the engine: strategies, break nodes, the table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock import Engine
from penstock.errors import QueryError

SCHEMA = {"ts": "bigint", "x": "bigint"}
PAIRS = "SELECT A.x FROM A [RANGE 10], B [RANGE 10] WHERE A.x = B.x"


def engine(**options: object) -> Engine:
    eng = Engine(**options)  # type: ignore[arg-type]
    for name in "AB":
        eng.stream(name, SCHEMA, time="ts")
    eng.query("pairs", PAIRS)
    return eng


def rows(*times: int) -> pa.Table:
    return pa.table({"ts": list(times), "x": [7] * len(times)})


def lines(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()[1:]]


def test_state_table_of_query() -> None:
    assert lines(engine(schedule="bfs").explain("pairs", format="table")) == [
        ["source A", "-", "pairs: join", "BFS-Source"],
        ["source B", "-", "pairs: join", "BFS-Source"],
        ["pairs: join", "source A, source B", "-", "BFS-Sink"],
    ]


def test_shared_stream_has_fork() -> None:
    eng = engine()
    eng.query("alone", "SELECT x FROM A [RANGE 1]")
    table = eng.explain("alone", format="table")
    assert ["source A", "-", "fork source A", "DFS-Source"] in lines(table)
    assert ["fork source A", "source A", "pairs: join", "DFS-Fork"] in lines(table)
    assert ["fork source A", "source A", "alone: join", "DFS-Fork"] in lines(table)
    assert "source B" not in table


def test_schedule_parts_and_break_nodes_at_runtime() -> None:
    eng = engine()
    eng.push({"A": rows(1)})
    eng.schedule("rr", part="pairs")
    eng.break_after("source A")
    table = lines(eng.explain("pairs", format="table"))
    assert table[0] == ["source A", "-", "-", "DFS-Source-Sink"]
    assert table[2] == ["pairs: join", "-", "-", "RR-Source-Sink"]
    eng.push({"B": rows(2)})
    eng.clear_break("source A")
    eng.schedule("dfs")
    assert lines(eng.explain("pairs", format="table"))[2][3] == "DFS-Sink"
    assert eng.flush()["pairs"].to_pylist() == [{"x": 7, "_ts": 2}]


@pytest.mark.parametrize("strategy", ["dfs", "bfs", "rr"])
def test_strategies_give_same_results(strategy: str) -> None:
    eng = engine(schedule=strategy, batch=1)
    out = [eng.push({"A": rows(1, 3, 5), "B": rows(2, 4)}), eng.flush()]
    assert sorted(row["_ts"] for part in out for row in part["pairs"].to_pylist()) == [2, 3, 4, 4, 5, 5]


def test_invalid_schedule_refused() -> None:
    eng = engine()
    with pytest.raises(QueryError, match="unknown schedule 'chain'; known: dfs, bfs, rr"):
        eng.schedule("chain")
    with pytest.raises(QueryError, match="no query or operator nobody; operators: source A, source B, pairs: join"):
        eng.break_after("nobody")
    with pytest.raises(QueryError, match="unknown kind of timestamps"):
        eng.stream("C", SCHEMA, time="ts", timestamps="latest")  # type: ignore[arg-type]


def test_drop_removes_strategy_and_break_nodes() -> None:
    eng = engine()
    eng.break_after("pairs")
    eng.schedule("bfs", part="pairs")
    eng.drop("pairs")
    eng.query("pairs", PAIRS)
    assert lines(eng.explain("pairs", format="table"))[2][3] == "DFS-Sink"


def test_restore_strategies_and_break_nodes() -> None:
    eng = engine(schedule="bfs")
    eng.query("counts", "SELECT x, COUNT(*) AS n FROM A [RANGE 5] GROUP BY x")
    eng.schedule("rr", part="counts")
    eng.schedule("dfs", part="source B")
    eng.break_after("source A")
    eng.break_after("pairs")
    tables = [eng.explain(name, format="table") for name in ("pairs", "counts")]
    again = Engine.restore(eng.snapshot())
    assert [again.explain(name, format="table") for name in ("pairs", "counts")] == tables
