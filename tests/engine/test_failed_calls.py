"""After a call that raised, an engine is unchanged, or refuses every call until it is restored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from injected_errors import fail_at
from inspect_engine import joins_of, running_query

import penstock as ps

JOIN = "SELECT A.x AS a, B.x AS b FROM A [RANGE 10], B [RANGE 10] WHERE A.x = B.x"


def started(**options: Any) -> ps.Engine:
    engine = ps.Engine(**options)
    for name in "AB":
        engine.stream(name, {"ts": "bigint", "x": "bigint"}, time="ts")
    engine.query("q", JOIN)
    return engine


def rows(*values: tuple[int, int]) -> pa.Table:
    return pa.table({"ts": [ts for ts, _ in values], "x": [x for _, x in values]})


def answered(engine: ps.Engine, data: dict[str, pa.Table], query: str = "q") -> list[dict[str, Any]]:
    """The results of a query for these tuples and the end of the streams."""
    return [row for out in (engine.push(data), engine.flush()) for row in out[query].to_pylist()]


# ── refused: nothing has changed ─────────────────────────────────────────────────────────────────────────────────────

REFUSED: tuple[tuple[str, Callable[[ps.Engine], object]], ...] = (
    ("TIME_TYPE", lambda engine: engine.push({"A": rows((1, 1))}, {"A": "soon"})),  # type: ignore[dict-item]
    ("UNKNOWN_STREAM", lambda engine: engine.push({"A": rows((1, 1))}, {"C": 5})),
    ("NOT_A_MAPPING", lambda engine: engine.push({"A": rows((1, 1))}, [5])),  # type: ignore[arg-type]
    ("COLUMNS_DIFFER", lambda engine: engine.push({"A": rows((1, 1)), "B": pa.table({"ts": [1]})})),
)


@pytest.mark.parametrize(("condition", "call"), REFUSED)
def test_refused_push_takes_nothing(condition: str, call: Callable[[ps.Engine], object]) -> None:
    engine = started()
    with pytest.raises(ps.DataError, match=condition):
        call(engine)
    assert len(answered(engine, {"A": rows((1, 1)), "B": rows((1, 1))})) == 1
    assert engine.metrics("q")["streams"]["A"]["arrived"] == 1  # type: ignore[index]


def test_refused_migration_changes_no_join() -> None:
    """The second join cannot migrate in this way, so the first does not migrate either."""
    engine = started()
    joins = "SELECT A.x FROM A [RANGE 5], B [RANGE 5] WHERE A.x = B.x"
    endless = "SELECT A.x FROM A [UNBOUNDED], C [RANGE 5] WHERE A.x = C.x"
    engine.stream("C", {"ts": "bigint", "x": "bigint"}, time="ts")
    engine.query("two", f"{joins} UNION ALL {endless}", plan="(A B); (A C)")
    with pytest.raises(ps.UnsupportedError, match="PARALLEL_TRACK_NEVER_ENDS"):
        engine.migrate("two", "(B A); (C A)", how="parallel-track")
    assert all(len(join.trees.plans) == 1 for join in running_query(engine, "two").joins)
    assert engine.metrics("two")["plan"] == "(A B); (A C)"


def test_refused_query_with_budget_leaves_shared_join() -> None:
    engine = started()
    engine.query("fresh", JOIN)
    engine.budget(100)
    (join,) = joins_of(engine)
    before = [each.name for each in join.shared_join.members]
    with pytest.raises(ps.UnsupportedError, match="BUDGET_WOULD_DISTORT"):
        engine.query("distinct", f"SELECT DISTINCT {JOIN[7:]}")
    assert [each.name for each in join.shared_join.members] == before


def test_memory_error_while_binding_query(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = started()
    with monkeypatch.context() as patch:
        fail_at("bind query", MemoryError(), patch)
        with pytest.raises(MemoryError):
            engine.query("p", JOIN)
    engine.query("p", JOIN)
    assert len(answered(engine, {"A": rows((1, 1)), "B": rows((1, 1))}, "p")) == 1


# ── broken: calls are refused until a restore ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("error", [MemoryError("full"), pa.ArrowMemoryError("full"), KeyboardInterrupt(), OSError()])
def test_failed_push_breaks_engine(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = started()
    engine.push({"A": rows((1, 1))})
    saved = engine.snapshot()
    with monkeypatch.context() as patch:
        fail_at("join step", error, patch)
        with pytest.raises(type(error)) as caught:
            engine.push({"B": rows((1, 1))})
    assert caught.value is error
    with pytest.raises(ps.InternalError, match=r"ENGINE_BROKEN.*push failed.*Engine\.restore") as refused:
        engine.push({"B": rows((1, 1))})
    assert refused.value.__cause__ is error
    assert refused.value.parameters == {"call": "push"}
    engine.close()
    again = ps.Engine.restore(saved)
    assert len(answered(again, {"B": rows((1, 1))})) == 1


def test_penstock_error_in_middle_of_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PenstockError in the middle of a change breaks the engine: it does not mean that the call was refused."""
    engine = started()
    with monkeypatch.context() as patch:
        fail_at("change policy", ps.UnsupportedError("NOT_YET", "half-way"), patch)
        with pytest.raises(ps.UnsupportedError):
            engine.policy("q", "jit")
    with pytest.raises(ps.InternalError, match="ENGINE_BROKEN"):
        engine.push({})


def test_unread_results_of_broken_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unread results would be read from half-written windows."""
    engine = started()
    read = engine.push({"A": rows((1, 1)), "B": rows((1, 1), (3, 3))}, {"A": 2})
    assert read["q"].num_rows == 1
    unread = engine.push({"A": rows((3, 3))}, {"A": 4, "B": 4})
    with monkeypatch.context() as patch:
        fail_at("join step", MemoryError(), patch)
        with pytest.raises(MemoryError):
            engine.push({"A": rows((5, 1)), "B": rows((5, 1))})
    assert read["q"].num_rows == 1
    with pytest.raises(ps.InternalError, match="ENGINE_BROKEN"):
        unread["q"]


def test_results_can_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = started()
    out = engine.push({"A": rows((1, 1)), "B": rows((1, 1))}, {"A": 2, "B": 2})
    with monkeypatch.context() as patch:
        fail_at("build results", pa.ArrowMemoryError("full"), patch)
        with pytest.raises(MemoryError):
            out["q"]
    assert out["q"].to_pylist() == [{"a": 1, "b": 1, "_ts": 1}]
    assert not engine.failures()


# ── out of memory: no query is stopped ───────────────────────────────────────────────────────────────────────────────


def test_memory_error_in_filter_stops_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = started()
    engine.query("filtered", f"{JOIN} AND A.x > 0")
    with monkeypatch.context() as patch:
        fail_at("filter", pa.ArrowMemoryError("full"), patch)
        with pytest.raises(MemoryError):
            engine.push({"A": rows((1, 1)), "B": rows((1, 1))}, {"A": 5, "B": 5})
    with pytest.raises(ps.InternalError, match="ENGINE_BROKEN"):
        engine.failures()


def test_memory_error_in_aggregate_stops_no_query() -> None:
    class Full:
        type = "bigint"

        def iterate(self, value: int) -> None:
            raise MemoryError(value)

        def terminate(self) -> int:
            return 0

    engine = started()
    engine.aggregate("filled", Full)
    engine.query("f", "SELECT filled(A.x) AS n FROM A")
    with pytest.raises(MemoryError):
        engine.push({"A": rows((1, 1))}, {"A": 5})
    with pytest.raises(ps.InternalError, match="ENGINE_BROKEN"):
        engine.failures()


def test_stopped_query_is_stopped_after_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped query lacks rows, so it stays stopped after a restore."""
    engine = started()
    with monkeypatch.context() as patch:
        fail_at("build results", pa.ArrowInvalid("cannot"), patch)
        with pytest.warns(RuntimeWarning, match="cannot"):
            engine.push({"A": rows((1, 1)), "B": rows((1, 1))}, {"A": 5, "B": 5})["q"]
    again = ps.Engine.restore(engine.snapshot())
    with pytest.warns(RuntimeWarning, match="cannot"):
        found = answered(again, {"A": rows((6, 1)), "B": rows((6, 1))})
    assert found == []
    assert "cannot" in str(again.failures()["q"])
