"""Calls of one engine from several threads, and from inside its own callbacks."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.adapt import Rules

ROWS, PUSHES, LATENESS = 5, 60, 10_000
JOIN = "SELECT A.x AS a, B.x AS b FROM A [RANGE 40], B [RANGE 40] WHERE A.x % 7 = B.x % 7"


def started(**options: Any) -> ps.Engine:
    engine = ps.Engine(**options)
    for name in "AB":
        engine.stream(name, {"ts": "bigint", "x": "bigint"}, time="ts", lateness=LATENESS)
    return engine


def rows(push: int) -> pa.Table:
    return pa.table({"ts": [push] * ROWS, "x": [push * ROWS + place for place in range(ROWS)]})


def in_threads(*works: Callable[[], object]) -> None:
    """Run functions in parallel; an exception of one of them is raised here."""
    raised: list[BaseException] = []
    begin = threading.Barrier(len(works))

    def work(each: Callable[[], object]) -> None:
        begin.wait()
        try:
            each()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=work, args=(each,)) for each in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def counted(tables: list[pa.Table]) -> Counter[str]:
    return Counter(str(row) for table in tables for row in table.to_pylist())


def pushed_by_one(text: str) -> Counter[str]:
    engine = started()
    engine.query("q", text)
    tables = [engine.push({"A": rows(push), "B": rows(push)})["q"] for push in range(PUSHES)]
    return counted([*tables, engine.flush()["q"]])


@pytest.mark.parametrize("text", [JOIN, f"DSTREAM ({JOIN})", "SELECT A.x, COUNT(*) AS n FROM A [RANGE 9] GROUP BY A.x"])
@pytest.mark.parametrize("batch", [3, 4096])
def test_two_threads_push(text: str, batch: int) -> None:
    engine = started(batch=batch)
    engine.query("q", text)
    tables: list[pa.Table] = []

    def push(name: str) -> None:
        for number in range(PUSHES):
            tables.append(engine.push({name: rows(number)})["q"])

    in_threads(lambda: push("A"), lambda: push("B"))
    tables.append(engine.flush()["q"])
    assert counted(tables) == pushed_by_one(text)


def test_threads_read_and_change_during_pushes() -> None:
    engine = started(batch=7)
    engine.query("q", JOIN)
    tables: list[pa.Table] = []
    pushing = threading.Event()
    pushing.set()

    def push() -> None:
        try:
            for number in range(PUSHES):
                tables.append(engine.push({"A": rows(number), "B": rows(number)})["q"])
        finally:
            pushing.clear()

    def read() -> None:
        while pushing.is_set():
            assert engine.metrics("q")["emitted"] >= 0  # type: ignore[operator]
            assert ps.Engine.restore(engine.snapshot()).explain("q").startswith("q: ISTREAM")

    def change() -> None:
        number = 0
        while pushing.is_set():
            engine.query("other", JOIN)
            engine.migrate("q", ("(A B)", "(B A)")[number % 2])
            engine.policy("q", ("eager", "lazy", "jit")[number % 3])
            engine.drop("other")
            number += 1

    in_threads(push, read, change)
    tables.append(engine.flush()["q"])
    assert counted(tables) == pushed_by_one(JOIN)


def test_results_read_in_another_thread() -> None:
    """Result tables are built when they are read, from windows that later pushes write to."""
    engine = started()
    engine.query("q", JOIN)
    outs: list[dict[str, pa.Table]] = []
    tables: list[pa.Table] = []
    some = threading.Semaphore(0)

    def push() -> None:
        for number in range(PUSHES):
            outs.append(engine.push({"A": rows(number), "B": rows(number)}, {"A": number, "B": number}))
            some.release()

    def read() -> None:
        for number in range(PUSHES):
            some.acquire()
            tables.append(outs[number]["q"])

    in_threads(push, read)
    tables.append(engine.flush()["q"])
    assert counted(tables) == pushed_by_one(JOIN)


# ── calls from inside a call ─────────────────────────────────────────────────────────────────────────────────────────

ONE = pa.table({"ts": [1], "x": [1]})
REFUSED: dict[str, Callable[[ps.Engine], object]] = {
    "push": lambda engine: engine.push({"A": ONE}),
    "advance": lambda engine: engine.advance("A", 5),
    "flush": lambda engine: engine.flush(),
    "query": lambda engine: engine.query("p", JOIN),
    "drop": lambda engine: engine.drop("q"),
    "migrate": lambda engine: engine.migrate("join", "(B A)"),
    "policy": lambda engine: engine.policy("join", "jit"),
    "snapshot": lambda engine: engine.snapshot(),
    "metrics": lambda engine: engine.metrics("q"),
}
ALLOWED: dict[str, Callable[[ps.Engine], object]] = {
    "failures": lambda engine: engine.failures(),
    "decisions": lambda engine: engine.decisions(),
    "late": lambda engine: engine.late("A"),
    "close": lambda engine: engine.close(),
}


def with_callback(calls: list[Callable[[], object]]) -> ps.Engine:
    """An engine with an aggregate that makes the calls."""

    class Calling:
        type = "bigint"

        def iterate(self, _value: int) -> None:
            for call in calls:
                call()

        def terminate(self) -> int:
            return 1

    engine = started()
    engine.aggregate("calling", Calling)
    engine.query("q", "SELECT calling(A.x) AS n FROM A")
    engine.query("join", JOIN)
    return engine


@pytest.mark.parametrize("name", REFUSED)
def test_call_from_aggregate_is_refused(name: str) -> None:
    calls: list[Callable[[], object]] = []
    engine = with_callback(calls)
    calls.append(lambda: REFUSED[name](engine))
    with pytest.warns(RuntimeWarning, match="REENTRANT_CALL"):
        joined = pa.concat_tables([out["join"] for out in (engine.push({"A": ONE, "B": ONE}), engine.flush())])
    assert name in str(engine.failures()["q"])
    assert joined.to_pylist() == [{"a": 1, "b": 1, "_ts": 1}]  # the other queries run on


@pytest.mark.parametrize("name", ALLOWED)
def test_call_from_aggregate_works(name: str) -> None:
    calls: list[Callable[[], object]] = []
    engine = with_callback(calls)
    calls.append(lambda: ALLOWED[name](engine))
    engine.push({"A": ONE})
    assert engine.flush()["q"].num_rows == 1
    assert not engine.failures()


def test_results_read_from_aggregate_refused() -> None:
    calls: list[Callable[[], object]] = []
    engine = with_callback(calls)
    before = engine.push({}, {"A": 0})
    calls.append(lambda: before["join"])
    with pytest.warns(RuntimeWarning, match=r"REENTRANT_CALL.*reading results"):
        engine.push({"A": ONE}, {"A": 5})
    assert before["join"].num_rows == 0


def test_call_from_clock_is_refused() -> None:
    calls: list[Callable[[], object]] = []

    def clock() -> int:
        for call in calls:
            call()
        return 5

    engine = ps.Engine(clock=clock)
    engine.stream("A", {"ts": "bigint", "x": "bigint"}, time="ts", timestamps="internal")
    engine.query("q", "SELECT x FROM A")
    raised: list[ps.QueryError] = []

    def push() -> None:
        try:
            engine.push({})
        except ps.QueryError as error:
            raised.append(error)

    calls.append(push)
    assert engine.push({"A": pa.table({"x": [1]})})["q"].num_rows == 1
    assert {error.condition for error in raised} == {"REENTRANT_CALL"}
    assert {error.parameters["call"] for error in raised} == {"push"}


def test_raising_clock_breaks_engine() -> None:
    """The push has started: its tuples are in the sources."""
    fails = False

    def clock() -> int:
        if fails:
            raise OSError("no clock")
        return 5

    engine = ps.Engine(clock=clock)
    engine.stream("A", {"ts": "bigint", "x": "bigint"}, time="ts", timestamps="internal")
    fails = True
    with pytest.raises(OSError, match="no clock"):
        engine.push({"A": pa.table({"x": [1]})})
    fails = False
    with pytest.raises(ps.InternalError, match=r"ENGINE_BROKEN.*push failed.*OSError: no clock.*Engine.restore"):
        engine.push({"A": pa.table({"x": [1]})})
    engine.close()


def test_controller_commands_and_threads() -> None:
    """The controller's commands are calls of the engine inside a push; its thread never waits for the engine."""
    rules = Rules(margin=0, least=0, confirm=1, cool_down=0, per_minute=1_000_000, effort=1.0, wait=True, full=1e9)
    engine = started(adapt=rules)
    engine.query("q", JOIN)
    tables: list[pa.Table] = []

    def push(name: str) -> None:
        for number in range(PUSHES):
            frontiers = {name: number - 30} if number > 30 else {}
            tables.append(engine.push({name: rows(number)}, frontiers)["q"])

    in_threads(lambda: push("A"), lambda: push("B"), engine.decisions)
    engine.close()
    tables.append(engine.flush()["q"])
    assert counted(tables) == pushed_by_one(JOIN)
