"""Results by subscription and by iteration, in threads and in tasks, and engines in `with` blocks."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from notebook import show_html

import penstock as ps
from penstock.join.stored_rows import StoredRows

PATIENCE = 60
"""Seconds after which a test that waits has failed."""


def make_engine(**options: Any) -> ps.Engine:
    engine = ps.Engine(**options)
    engine.stream("A", {"ts": "bigint", "x": "bigint"}, time="ts")
    engine.stream("B", {"ts": "bigint", "x": "bigint"}, time="ts")
    engine.query("q", "SELECT x FROM A")
    engine.query("pairs", "SELECT A.x FROM A [RANGE 10], B [RANGE 10] WHERE A.x = B.x")
    return engine


def row(number: int) -> dict[str, list[dict[str, int]]]:
    return {"A": [{"ts": number, "x": number}]}


def list_values(tables: list[pa.Table]) -> list[int]:
    return [value for table in tables for value in table.column("x").to_pylist()]


def in_thread(function: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


# ── subscribe ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_subscriber_gets_results_of_push() -> None:
    engine, found = make_engine(), []
    subscription = engine.subscribe("Q", found.append)
    out = engine.push(row(1))
    assert [table.to_pylist() for table in found] == [[{"x": 1, "_ts": 1}]]
    assert (out["q"].num_rows, out["q"].schema) == (0, found[0].schema)
    assert set(out) == {"q", "pairs"}
    engine.push({"B": [{"ts": 1, "x": 1}]})  # no result of q: the function is not called
    assert len(found) == 1
    subscription.close()
    subscription.close()
    assert engine.push(row(2))["q"].num_rows == 1
    assert len(found) == 1


def test_subscribers_share_results() -> None:
    """Two subscriptions of a query get the same rows; flush and joins deliver too."""
    engine, first, second = make_engine(), [], []
    engine.subscribe("pairs", first.append)
    with engine.subscribe("pairs", second.append):
        engine.push({**row(1), "B": [{"ts": 1, "x": 1}]})
        assert engine.flush()["pairs"].num_rows == 0
    assert list_values(first) == list_values(second) == [1]


def test_subscription_follows_alter_and_ends_with_drop() -> None:
    engine, found = make_engine(), []
    engine.subscribe("q", found.append)
    engine.alter("q", "SELECT x + 100 AS x FROM A")
    engine.push(row(1))
    engine.drop("q")
    engine.query("q", "SELECT x FROM A")
    assert engine.push(row(2))["q"].num_rows == 1
    assert list_values(found) == [101]


def test_raising_subscriber_leaves_engine_intact() -> None:
    engine, found = make_engine(), []
    engine.query("other", "SELECT x FROM A")

    def fail(rows: pa.Table) -> None:
        raise KeyError(rows.num_rows)

    engine.subscribe("q", fail)
    engine.subscribe("q", found.append)
    with pytest.raises(ps.QueryError, match=r"SUBSCRIBER_FAILED.*KeyError.*do not repeat it") as caught:
        engine.push(row(1))
    assert isinstance(caught.value.__cause__, KeyError)
    assert list_values([caught.value.parameters["results"]["other"]]) == [1]
    assert list_values(found) == [1]
    with pytest.raises(ps.QueryError):
        engine.push(row(2))
    assert list_values(found) == [1, 2]


def test_interrupted_subscriber_leaves_engine_intact() -> None:
    engine = make_engine()

    def interrupt(_rows: pa.Table) -> None:
        raise KeyboardInterrupt

    subscription = engine.subscribe("q", interrupt)
    with pytest.raises(KeyboardInterrupt):
        engine.push(row(1))
    subscription.close()
    assert list_values([engine.push(row(2))["q"]]) == [2]


def test_subscriber_must_not_call_the_engine() -> None:
    engine = make_engine()
    engine.subscribe("q", lambda _rows: engine.push({}))
    with pytest.raises(ps.QueryError, match="REENTRANT_CALL"):
        engine.push(row(1))


@pytest.mark.parametrize(
    ("condition", "mistake"),
    [
        ("UNKNOWN_QUERY", lambda engine: engine.subscribe("nothing", print)),
        ("NOT_CALLABLE", lambda engine: engine.subscribe("q", "print")),
        ("DERIVED_STREAM", lambda engine: engine.subscribe("d", print)),
        ("UNKNOWN_QUERY", lambda engine: engine.results("nothing")),
        ("DERIVED_STREAM", lambda engine: engine.results("d")),
        ("BAD_LIMIT", lambda engine: engine.results("q", capacity=0)),
        ("BAD_LIMIT", lambda engine: engine.results("q", capacity=True)),
    ],
)
def test_wrong_subscription_refused(condition: str, mistake: Callable[[ps.Engine], Any]) -> None:
    engine = make_engine()
    engine.derive("d", "SELECT x FROM A")
    with pytest.raises(ps.QueryError) as caught:
        mistake(engine)
    assert caught.value.condition == condition
    assert engine.push(row(1))["q"].num_rows == 1


# ── iteration ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_iterate_in_another_thread() -> None:
    engine, found = make_engine(), []
    results = engine.results("q", capacity=2)

    def read() -> None:
        found.extend(results)

    reader = in_thread(read)
    for number in range(50):
        assert engine.push(row(number))["q"].num_rows == 0
    engine.flush()
    reader.join(PATIENCE)
    assert list_values(found) == list(range(50))


def test_full_buffer_holds_pushes_back() -> None:
    engine = make_engine()
    results = engine.results("q", capacity=3)
    pushed: list[int] = []
    moved = threading.Condition()

    def push() -> None:
        for number in range(10):
            engine.push(row(number))
            with moved:
                pushed.append(number)
                moved.notify()

    pusher = in_thread(push)
    read: list[int] = []
    for rows in results:
        read += list_values([rows])
        with moved:
            assert len(pushed) <= len(read) + 4  # three in the buffer, and one that was just pushed
        assert engine.metrics("q")["emitted"] is not None  # the push that waits does not hold the lock
        if len(read) == 10:
            break
    pusher.join(PATIENCE)
    assert read == list(range(10))


def test_push_by_the_reader_of_a_full_buffer_refused() -> None:
    engine = make_engine()
    results = engine.results("q", capacity=1)
    engine.push(row(1))
    assert list_values([next(results)]) == [1]
    engine.push(row(2))
    with pytest.raises(ps.ResourceError, match=r"RESULTS_NOT_READ.*asyncio\.to_thread"):
        engine.push(row(3))
    engine.flush()
    assert list_values(list(results)) == [2]


def test_reader_that_stops_releases_the_push() -> None:
    """The reader leaves its loop while a push waits; the push continues and returns rows again."""
    engine = make_engine()
    reading, returned = threading.Event(), []

    def read() -> None:
        iterator = engine.results("q", capacity=1)
        reading.set()
        for _rows in iterator:
            break

    reader = in_thread(read)
    assert reading.wait(PATIENCE)
    for number in range(5):
        returned.append(engine.push(row(number))["q"])
    reader.join(PATIENCE)
    gc.collect()
    assert engine.push(row(9))["q"].num_rows == 1
    assert len(returned) == 5


@pytest.mark.parametrize("end", ["drop", "flush", "close", "with"])
def test_iteration_ends(end: str) -> None:
    engine = make_engine()
    results = engine.results("q")
    engine.push(row(1))
    ends: dict[str, Callable[[], object]] = {
        "drop": lambda: engine.drop("q"),
        "flush": engine.flush,
        "close": engine.close,
        "with": lambda: engine.__exit__(None, None, None),
    }
    ends[end]()
    assert list_values(list(results)) == [1]  # tables from before are still read
    assert "ended" in repr(results)


def test_closed_iterator_drops_tables() -> None:
    engine = make_engine()
    with engine.results("q") as results:
        engine.push(row(1))
    assert list(results) == []
    assert engine.push(row(2))["q"].num_rows == 1


def test_iteration_raises_error_of_query() -> None:
    class Failing:
        def iterate(self, _value: int) -> None:
            raise ValueError("no")

        def terminate(self) -> float:
            return 0.0

    engine = make_engine()
    engine.aggregate("failing", Failing)
    engine.query("bad", "SELECT failing(x) AS n FROM A")
    results = engine.results("bad")
    with pytest.warns(RuntimeWarning):
        engine.push({"A": [{"ts": 1, "x": 1}, {"ts": 2, "x": 1}]})
    with pytest.raises(ps.QueryError, match="no"):
        list(results)


def test_iteration_raises_when_the_engine_breaks() -> None:
    times = iter([5, 5])
    engine = ps.Engine(clock=lambda: next(times))
    engine.stream("A", {"ts": "bigint", "x": "bigint"}, time="ts", timestamps="internal")
    engine.query("q", "SELECT x FROM A")
    results = engine.results("q")
    with pytest.raises(StopIteration):
        engine.push({"A": [{"x": 1}]})
    with pytest.raises(ps.InternalError, match="ENGINE_BROKEN"):
        next(results)


# ── asyncio ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def run_async(main: Any) -> Any:
    async def limited() -> Any:
        return await asyncio.wait_for(main(), PATIENCE)

    return asyncio.run(limited())


def test_async_for_while_a_thread_pushes() -> None:
    engine = make_engine()

    async def main() -> list[pa.Table]:
        results = engine.results("q", capacity=2)

        def push() -> None:
            for number in range(50):
                engine.push(row(number))
            engine.flush()

        pusher = asyncio.create_task(asyncio.to_thread(push))
        found = [rows async for rows in results]
        await pusher
        return found

    assert list_values(run_async(main)) == list(range(50))


def test_async_for_while_a_task_pushes() -> None:
    engine = make_engine()

    async def push() -> None:
        for number in range(10):
            engine.push(row(number))
            await asyncio.sleep(0)
        engine.flush()

    async def main() -> list[pa.Table]:
        results = engine.results("q", capacity=16)
        pusher = asyncio.create_task(push())
        found = [rows async for rows in results]
        await pusher
        return found

    assert list_values(run_async(main)) == list(range(10))


def test_push_by_the_loop_of_the_reader_refused() -> None:
    engine = make_engine()

    async def main() -> None:
        results = engine.results("q", capacity=1)
        engine.push(row(1))
        with pytest.raises(ps.ResourceError, match="RESULTS_NOT_READ"):
            engine.push(row(2))
        assert list_values([await anext(results)]) == [1]

    run_async(main)


def test_cancelled_wait_loses_no_table() -> None:
    engine = make_engine()

    async def main() -> list[pa.Table]:
        results = engine.results("q")
        waiting = asyncio.ensure_future(anext(results))
        await asyncio.sleep(0)
        waiting.cancel()
        engine.push(row(1))  # wakes the task that is being cancelled
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(engine.results("pairs")), 0.01)
        first = await anext(results)
        engine.flush()
        return [first, *[rows async for rows in results]]

    assert list_values(run_async(main)) == [1]


def test_two_tasks_share_an_iterator() -> None:
    engine = make_engine()

    async def main() -> list[pa.Table]:
        results = engine.results("q")

        async def read() -> list[pa.Table]:
            return [rows async for rows in results]

        tasks = [asyncio.create_task(read()) for _ in range(2)]
        for number in range(20):
            engine.push(row(number))
            await asyncio.sleep(0)
        engine.flush()
        return [rows for task in tasks for rows in await task]

    assert sorted(list_values(run_async(main))) == list(range(20))


# ── with ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_with_block_frees_the_engine() -> None:
    with make_engine() as engine:
        out = engine.push({**row(1), "B": [{"ts": 1, "x": 1}]})
        waiting = engine.push({})
    assert out["q"].to_pylist() == [{"x": 1, "_ts": 1}]
    assert waiting["pairs"].num_rows in (0, 1)
    assert repr(engine) == "<penstock.Engine: closed>"
    assert "closed" in show_html(engine)
    for call in (lambda: engine.push({}), engine.flush, engine.snapshot, lambda: engine.queries, lambda: engine.graph):
        with pytest.raises(ps.QueryError, match="ENGINE_CLOSED"):
            call()
    engine.close()


def test_with_block_after_an_error() -> None:
    engine = make_engine(adapt=True)

    def fail() -> None:
        with engine:
            engine.push(row(1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(ps.QueryError, match="ENGINE_CLOSED"):
        engine.push(row(2))


def test_with_block_in_a_with_block() -> None:
    with make_engine() as engine, engine:
        pass
    with pytest.raises(ps.QueryError, match="ENGINE_CLOSED"):
        engine.push(row(1))


def test_with_block_ends_during_parallel_track() -> None:
    """Both trees have the same windows, which were freed twice."""
    with make_engine() as engine:
        engine.push({**row(1), "B": [{"ts": 1, "x": 1}]})
        engine.migrate("pairs", "(B A)", how="parallel-track")
        out = engine.push({"A": [{"ts": 2, "x": 1}], "B": [{"ts": 2, "x": 7}]})
    assert out["pairs"].num_rows == 1


def test_with_block_of_broken_engine_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error that broke the engine leaves the block, not one of a copy of results that are refused anyway."""
    engine = make_engine()
    out = engine.push({**row(1), "B": [{"ts": 1, "x": 1}]})

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(StoredRows, "append", fail)
    monkeypatch.setattr(StoredRows, "materialize_viewers", lambda _: pytest.fail("rows were copied"))
    with pytest.raises(MemoryError), engine:
        engine.push({**row(2), "B": [{"ts": 2, "x": 2}]})
    with pytest.raises(ps.errors.InternalError, match="ENGINE_BROKEN"):
        out["pairs"].to_pylist()


def test_with_block_does_not_flush() -> None:
    with make_engine() as engine:
        found: list[pa.Table] = []
        engine.subscribe("pairs", found.append)
        engine.push({**row(1)})
    assert not found
