"""The union operator alone, and UNION ALL, EXCEPT and DISTINCT in the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.graph import Buffer, Reader
from penstock.ops import Batch, Changes, UnionOperator
from penstock.ops.protocol import StreamRows

FOREVER = 2**63 - 1


def batch(*times: int, sign: int | None = None) -> Batch:
    numbers = np.arange(len(times))
    columns = {"x": pa.array(times)}
    if sign is None:
        return StreamRows(np.array(times, np.int64), columns, None, numbers)
    return Changes(np.array(times, np.int64), columns, np.full(len(times), sign, np.int8), numbers)


def union(count: int = 2, *, whole: bool = False) -> tuple[UnionOperator, list[Buffer], Reader]:
    arcs, outlet = [Buffer() for _ in range(count)], Buffer()
    reader = outlet.open()
    return UnionOperator("u", [arc.open() for arc in arcs], outlet, ["x"], whole=whole), arcs, reader


def drained(operator: UnionOperator, reader: Reader, budget: int = 100) -> list[int]:
    while operator.has_work():
        operator.run(budget)
    return [int(time) for each in reader.read(FOREVER) for time in each.times]


@pytest.mark.parametrize("budget", [1, 2, 100])
def test_union_merges_by_time(budget: int) -> None:
    operator, (a, b, c), reader = union(3)
    for arc, times in ((a, (1, 4, 9)), (b, (2, 2, 5)), (c, (0, 7))):
        arc.write(batch(*times))
        arc.advance(10)
    assert drained(operator, reader, budget) == [0, 1, 2, 2, 4, 5, 7, 9]
    assert reader.frontier == 10


def test_tuple_waits_for_lowest_frontier() -> None:
    operator, (a, b), reader = union()
    a.write(batch(1, 3, 5))
    a.advance(5)
    assert drained(operator, reader) == []
    b.advance(3)
    assert drained(operator, reader) == [1, 3]  # simultaneous tuples do not wait for each other
    assert reader.frontier == 3
    b.write(batch(3))
    b.advance(6)
    assert drained(operator, reader) == [3, 5]


def test_whole_instants_wait_for_frontier() -> None:
    operator, (a, b), reader = union(whole=True)
    a.write(batch(1, 3))
    a.advance(5)
    b.advance(3)
    assert drained(operator, reader) == [1]
    assert reader.frontier == 3
    b.advance(4)
    assert drained(operator, reader) == [3]


def test_row_numbers_stay_unique() -> None:
    operator, (a, b), reader = union()
    for arc in (a, b):
        arc.write(batch(1, 2, sign=1))
        arc.advance(9)
    operator.run(100)
    (merged,) = reader.read(FOREVER)
    assert merged.numbers is not None
    assert sorted(merged.numbers.tolist()) == [0, 1, 2, 3]


# ── through the engine ───────────────────────────────────────────────────────────────────────────────────────────────


def answers(text: str, **streams: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """All results of a query over streams of rows (ts, x)."""
    engine = ps.Engine()
    for name in streams:
        engine.stream(name, {"ts": "bigint", "x": "bigint"}, time="ts")
    engine.query("q", text)
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
    data = {n: pa.Table.from_pylist([{"ts": t, "x": x} for t, x in rows], schema) for n, rows in streams.items()}
    table = pa.concat_tables([engine.push(data)["q"], engine.flush()["q"]])
    return [tuple(row.values()) for row in table.to_pylist()]


A = [(1, 1), (2, 1), (4, None), (6, 2)]
B = [(2, 1), (5, None)]


def test_union_all_keeps_rows_and_left_names() -> None:
    engine = ps.Engine()
    engine.stream("A", {"ts": "bigint", "x": "int"}, time="ts")
    engine.query("q", "SELECT x AS left_name FROM A UNION ALL SELECT ts FROM A UNION ALL SELECT 7 FROM A")
    out = engine.push({"A": pa.table({"ts": [1], "x": [5]})})["q"]
    assert out.column_names == ["left_name", "_ts"]
    assert sorted(out.column("left_name").to_pylist()) == [1, 5, 7]


def test_distinct_row_lives_while_any_duplicate() -> None:
    assert answers("SELECT DISTINCT x FROM A [RANGE 2]", A=A) == [(1, 1), (None, 4), (2, 6)]
    assert answers("DSTREAM (SELECT DISTINCT x FROM A [RANGE 2])", A=A) == [(1, 4), (None, 6), (2, 8)]


def test_except_follows_both_windows() -> None:
    """EXCEPT is the set difference of both windows at every instant."""
    text = "SELECT x FROM A [RANGE 3] EXCEPT SELECT x FROM B [RANGE 2]"
    assert answers(text, A=A, B=B) == [(1, 1), (None, 4), (1, 4), (2, 6)]
    # 1 leaves when it arrives in B, returns when it expires there, and leaves with its own expiration; NULL equals NULL
    assert answers(f"DSTREAM ({text})", A=A, B=B) == [(1, 2), (None, 5), (1, 5), (2, 9)]


def test_set_operations_nest() -> None:
    text = "(SELECT x FROM A [NOW] UNION ALL SELECT x FROM B [NOW]) EXCEPT SELECT x FROM A [RANGE 2]"
    assert answers(text, A=A, B=[*B, (6, 3)]) == [(3, 6)]
    engine = ps.Engine()
    for name in "AB":
        engine.stream(name, {"ts": "bigint", "x": "bigint"}, time="ts")
    engine.query("q", text, plan="A; B; A")
    assert engine.explain("q").splitlines()[:4] == [
        "q: ISTREAM, plan A; B; A", "except", "├─ union all", "│  ├─ stream A [NOW]",
    ]  # fmt: skip
    with pytest.raises(ps.QueryError, match="3 joins, but 2 plans"):
        engine.query("r", text, plan="A; B")


# ── chains of EXCEPT ─────────────────────────────────────────────────────────────────────────────────────────────────


def chain() -> ps.Engine:
    engine = ps.Engine()
    for name in "ABCD":
        engine.stream(name, {"ts": "bigint", "x": "bigint"}, time="ts")
    selects = (f"SELECT {name}.x FROM {name} [RANGE 10]" for name in "ABCD")
    engine.query("q", "RSTREAM (" + " EXCEPT ".join(selects) + ")")
    return engine


def test_except_chain_in_order_of_plan() -> None:
    """A chain of EXCEPT is one operator that takes its inputs in the order of the plan."""
    engine = chain()
    assert engine.metrics("q")["plan"] == "A; B; C; D"
    assert [name for name in engine.metrics("q")["operators"] if "except" in name] == ["q: except"]
    engine.migrate("q", "a; (d); b; C")
    assert engine.metrics("q")["plan"] == "A; D; B; C"
    shown = [line.split()[2] for line in engine.explain("q").splitlines() if "stream " in line]
    assert shown == ["A", "D", "B", "C"]
    assert ps.Engine.restore(engine.snapshot()).metrics("q")["plan"] == "A; D; B; C"


@pytest.mark.parametrize("plan", ["B; A; C; D", "A; B; C", "A; D; D; B", "A; B; C; E"])
def test_except_plan_with_other_inputs_refused(plan: str) -> None:
    engine = chain()
    with pytest.raises(ps.QueryError):
        engine.migrate("q", plan)
    assert engine.metrics("q")["plan"] == "A; B; C; D"


def test_except_migration_to_other_order() -> None:
    """((A − B) − C) − D becomes ((A − D) − B) − C: tuples of all inner streams, before and after the change, count."""
    engine = chain()
    seen: dict[int, set[int]] = {}

    def push(**values: list[int]) -> None:
        time = len(seen) + 1
        data = {name: pa.table({"ts": [time] * len(x), "x": x}) for name, x in values.items()}
        out = engine.push(data)["q"].to_pylist()
        for name in "ABCD":
            engine.advance(name, time + 1)
        out += engine.push({})["q"].to_pylist()
        seen[time] = {row["x"] for row in out if row["_ts"] == time}

    push(A=[1, 2, 3, 4, 5], B=[1])
    push(C=[2])
    engine.migrate("q", "A; D; B; C")
    push(D=[3, 8])
    push(B=[4])
    engine.migrate("q", "A; C; D; B")
    push(A=[2, 3, 6, 7, 8], C=[6])
    assert list(seen.values()) == [{2, 3, 4, 5}, {3, 4, 5}, {4, 5}, {5}, {5, 7}]
