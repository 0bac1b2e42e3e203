"""Bad input: the error has the right class and a clear message, and the engine keeps all earlier tuples."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps

PAIRS = "SELECT A.x, B.s FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.x = B.x"
A = {"ts": "timestamp", "x": "bigint"}
B = {"ts": "timestamp", "x": "bigint", "s": "string"}


def at(second: int) -> datetime:
    return datetime(2026, 1, 1, 0, 0, second)


def a(*rows: tuple[int, int]) -> pa.Table:
    return pa.table({"ts": [at(second) for second, _ in rows], "x": [x for _, x in rows]})


def b(*rows: tuple[int, int, str]) -> pa.Table:
    return pa.table({"ts": [at(r[0]) for r in rows], "x": [r[1] for r in rows], "s": [r[2] for r in rows]})


@pytest.fixture
def engine() -> ps.Engine:
    engine = ps.Engine()
    engine.stream("A", A, time="ts")
    engine.stream("B", B, time="ts")
    engine.table("rooms", pa.table({"x": [1], "name": ["hall"]}))
    engine.query("pairs", PAIRS)
    engine.push({"A": a((1, 1))})
    return engine


MISTAKES: list[tuple[type[ps.PenstockError], str, Callable[[ps.Engine], Any]]] = [
    (ps.QueryError, "unknown stream", lambda e: e.query("q", "SELECT * FROM nowhere")),
    (ps.QueryError, "unknown column", lambda e: e.query("q", "SELECT A.vaule FROM A")),
    (ps.QueryError, "cannot", lambda e: e.query("q", "SELECT A.x FROM A, B WHERE A.x = B.s")),
    (ps.QueryError, "", lambda e: e.query("q", "SELECT x FROM A [RANGE 5]")),
    (ps.QueryError, "", lambda e: e.query("q", "SELECT x FROM A [ROWS 0]")),
    (ps.QueryError, "", lambda e: e.query("q", "SELECT x FROM A [RANGE]")),
    (ps.QueryError, "", lambda e: e.query("q", "SELECT x FROM rooms [ROWS 5]")),
    (ps.QueryError, "", lambda e: e.query("q", "SELECT name FROM rooms")),
    (ps.QueryError, "already", lambda e: e.query("PAIRS", "SELECT x FROM A")),
    (ps.QueryError, "already", lambda e: e.stream("a", A, time="ts")),
    (ps.QueryError, "already", lambda e: e.table("A", pa.table({"x": [1]}))),
    (ps.QueryError, "", lambda e: e.stream("C", {"ts": "string", "x": "bigint"}, time="ts")),
    (ps.QueryError, "", lambda e: e.stream("C", A, time="when")),
    (ps.QueryError, "", lambda e: e.stream("C", {"ts": "timestamp", "x": "bignit"}, time="ts")),
    (ps.QueryError, "time= must be", lambda e: e.stream("C", A, time=None)),
    (ps.QueryError, "SQL type", lambda e: e.stream("C", {"ts": pa.int64()}, time="ts")),
    (ps.QueryError, "SQL type", lambda e: e.stream("C", {"ts": "bigint", 5: "int"}, time="ts")),
    (ps.QueryError, "no query None", lambda e: e.drop(None)),
    (ps.QueryError, "a plan is a text", lambda e: e.migrate("pairs", None)),
    (ps.DataError, "no stream 5", lambda e: e.push({5: a((1, 1))})),
    (ps.QueryError, "", lambda e: e.stream("C", A, time="ts", lateness="soon")),
    (ps.QueryError, "", lambda e: e.stream("C", A, time="ts", lateness=-1)),
    (ps.QueryError, "", lambda e: e.query("q", "SELECT A.x AS y, B.x AS y FROM A, B WHERE A.x = B.x")),
    (ps.QueryError, "", lambda e: e.query("q", "SELECT a.x FROM A AS a, B AS a")),
    (ps.QueryError, "twice", lambda e: e.query("q", PAIRS, plan="((A B) A)")),
    (ps.QueryError, "nowhere", lambda e: e.query("q", PAIRS, plan="A")),
    (ps.QueryError, "no stream C", lambda e: e.query("q", PAIRS, plan="(A C)")),
    (ps.QueryError, "brackets", lambda e: e.query("q", PAIRS, plan="((A B)")),
    (ps.QueryError, "empty", lambda e: e.query("q", PAIRS, plan="")),
    (ps.QueryError, "", lambda e: e.migrate("pairs", "(A C)")),
    (ps.QueryError, "no query", lambda e: e.migrate("gone", "(A B)")),
    (ps.QueryError, "no query", lambda e: e.drop("gone")),
    (ps.QueryError, "no query", lambda e: e.explain("gone")),
    (ps.QueryError, "no query", lambda e: e.metrics("gone")),
    (ps.QueryError, "", lambda e: e.migrate("pairs", "(B A)", how="magic")),
    (ps.QueryError, "", lambda e: e.schedule("soon")),
    (ps.DataError, "no stream", lambda e: e.push({"nowhere": a((2, 1))})),
    (ps.DataError, "static table", lambda e: e.push({"rooms": a((2, 1))})),
    (ps.DataError, "lacks x", lambda e: e.push({"A": a((2, 1)).drop_columns(["x"])})),
    (ps.DataError, "unknown extra", lambda e: e.push({"A": a((2, 1)).append_column("extra", pa.array([1]))})),
    (ps.DataError, "x", lambda e: e.push({"A": a((2, 1)).set_column(1, "x", pa.array(["one"]))})),
    (ps.DataError, "ts", lambda e: e.push({"A": pa.table({"ts": [3], "x": [1]})})),
    (ps.DataError, "", lambda e: e.push({"A": [1, 2]})),
    (ps.DataError, "by stream", lambda e: e.push(None)),
    (ps.DataError, "", lambda e: e.push({"B": b((2, 1, "x")).set_column(2, "s", pa.array([7]).dictionary_encode())})),
    (ps.DataError, "", lambda e: e.advance("A", 1.5)),
    (ps.QueryError, "text", lambda e: e.query("q", None)),
    (ps.QueryError, "plan", lambda e: e.query("q", PAIRS, plan=("A", "B"))),
    (ps.QueryError, "columns", lambda e: e.stream("C", None, time="ts")),
    (ps.DataError, "two columns", lambda e: e.push({"A": pa.table([[at(2)], [1], [1]], names=["ts", "x", "X"])})),
    (ps.DataError, "", lambda e: e.advance("A", "tomorrow")),
    (ps.DataError, "", lambda e: e.advance("nowhere", at(1))),
    (ps.DataError, "", lambda e: e.late("rooms")),
    (ps.DataError, "snapshot", lambda _: ps.Engine.restore(b"not a snapshot")),
    (ps.QueryError, "", lambda _: ps.Engine(state="clever")),
    (ps.QueryError, "", lambda _: ps.Engine(batch=0)),
]


@pytest.mark.parametrize(("kind", "says", "mistake"), MISTAKES)
def test_invalid_call_refused_and_engine_continues(
    engine: ps.Engine, kind: type[ps.PenstockError], says: str, mistake: Callable[[ps.Engine], Any]
) -> None:
    with pytest.raises(kind) as caught:
        mistake(engine)
    assert says in str(caught.value)
    assert caught.value.condition.isupper()
    engine.push({"B": b((2, 1, "one"))})
    assert engine.flush()["pairs"].column("s").to_pylist() == ["one"]


def test_mismatched_push_takes_nothing(engine: ps.Engine) -> None:
    with pytest.raises(ps.DataError):
        engine.push({"B": b((2, 1, "lost?")), "A": pa.table({"x": [1]})})
    engine.push({"B": b((3, 1, "kept"))})
    assert engine.flush()["pairs"].column("s").to_pylist() == ["kept"]


def test_null_timestamp_to_dead_letters(engine: ps.Engine) -> None:
    engine.push({"A": pa.table({"ts": pa.array([None, at(2)], pa.timestamp("us")), "x": [9, 2]})})
    assert engine.dead_letters("A").to_pylist() == [{"ts": None, "x": 9, "_reason": "ts is NULL"}]
    engine.push({"B": b((3, 2, "two"))})
    assert engine.flush()["pairs"].column("s").to_pylist() == ["two"]


def test_largest_timestamp_to_dead_letters() -> None:
    engine = ps.Engine()
    engine.stream("A", {"ts": "bigint", "x": "bigint"}, time="ts")
    engine.query("q", "SELECT x FROM A")
    out = engine.push({"A": pa.table({"ts": [2**63 - 1, 5], "x": [1, 2]})})["q"]
    assert out.column("x").to_pylist() == [2]
    assert engine.flush()["q"].num_rows == 0
    assert engine.dead_letters("A").column("x").to_pylist() == [1]


def test_time_beyond_narrow_column_type() -> None:
    """Instants that do not fit a narrow time column lose no rows."""
    engine = ps.Engine()
    engine.stream("A", {"ts": "int", "x": "bigint"}, time="ts")
    engine.stream("B", {"ts": "bigint", "x": "bigint"}, time="ts")
    engine.query("ends", "DSTREAM (SELECT x FROM A [RANGE 10])")
    engine.query("wide", "SELECT a.x FROM A AS a, B [RANGE 10] AS b WHERE a.x = b.x")
    engine.push({"A": pa.table({"ts": pa.array([2**31 - 3], pa.int32()), "x": [1]})})
    engine.push({"B": pa.table({"ts": [2**40], "x": [1]})})
    out = engine.flush()
    assert out["ends"].column("_ts").to_pylist() == [2**31 - 1]
    assert out["wide"].column("_ts").to_pylist() == [2**40]


def test_late_tuple_to_late_output(engine: ps.Engine) -> None:
    engine.push({"A": a((8, 1))})
    engine.push({"A": a((7, 1), (9, 1))})
    assert engine.late("A").column("ts").to_pylist() == [at(7)]


@pytest.mark.parametrize("test", ["A.l > A.l", "A.m BETWEEN A.m AND A.m", "A.l > 3"])
def test_filter_without_order_is_refused_in_shared_join(test: str) -> None:
    engine = ps.Engine()
    for name in "AB":
        columns = {"ts": "bigint", "k": "bigint", "l": "array<bigint>", "m": "map<string, bigint>"}
        engine.stream(name, columns, time="ts")
    text = "SELECT A.k FROM A, B WHERE A.k = B.k AND {} WINDOW 5"
    engine.query("fine", text.format("A.k > 1"))
    with pytest.raises(ps.PenstockError, match=r"cannot compare .*line 1, column 42"):
        engine.query("bad", text.format(test))
    assert list(engine.queries) == ["fine"]
