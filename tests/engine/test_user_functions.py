"""User-defined scalar functions: declaration, failure, snapshots."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as ps
from penstock.errors import QueryError

COLUMNS = {"ts": "bigint", "k": "bigint", "x": "bigint"}
PLAIN = "SELECT x FROM A"

pytestmark = pytest.mark.filterwarnings("ignore:.*FUNCTION_FAILED:RuntimeWarning")


def fail_on_nine(values: pa.Array) -> pa.Array:
    if 9 in values.to_pylist():
        raise KeyError("nine")
    return values


def make_engine() -> ps.Engine:
    engine = ps.Engine(warn=False)
    for name in "AB":
        engine.stream(name, COLUMNS, time="ts")
    return engine


def push(engine: ps.Engine, *rows: tuple[int, int, int]) -> Any:
    table = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    return engine.push({"A": table, "B": table})


@pytest.mark.parametrize(
    "text",
    [
        "SELECT f(x) AS v FROM A",
        "SELECT x FROM A WHERE f(x) > 0",
        "SELECT A.x FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k AND f(A.x) < f(B.x) + 1",
        "SELECT A.x FROM A [RANGE 9], B [RANGE 9] WHERE f(A.x) = B.x",
        "SELECT A.x, f(B.x) AS y FROM A [RANGE 9], B [RANGE 9] WHERE A.x = B.x",
        "SELECT A.x, B.x AS y FROM A [RANGE 9] LEFT JOIN B [RANGE 9] ON A.k = B.k AND f(B.x) = A.x",
        "SELECT f(x) AS v, COUNT(*) AS n FROM A [RANGE 9] GROUP BY f(x)",
        "SELECT k, f(SUM(x)) AS s FROM A [RANGE 1] GROUP BY k",
        "SELECT k FROM A [RANGE 1] GROUP BY k HAVING f(MAX(x)) > 0",
        "SELECT A.x, B.x AS y FROM SEQ(A, B) MODE RECENT WHERE f(A.x) = f(B.x)",
        "SELECT v FROM (SELECT f(x) AS v FROM A [RANGE 9]) AS t",
        "SELECT DISTINCT f(x) AS v FROM A [RANGE 5]",
        "SELECT ROW_NUMBER() OVER (PARTITION BY k ORDER BY f(x)) AS n FROM A [RANGE 9]",
    ],
)
def test_failing_function_stops_only_its_query(text: str) -> None:
    engine = make_engine()
    engine.function("f", fail_on_nine, "bigint")
    engine.query("bad", text)
    engine.query("good", PLAIN)
    engine.query("other", text)
    engine.drop("other")
    assert push(engine, (1, 1, 1), (2, 1, 2))["good"].num_rows == 2
    with pytest.warns(RuntimeWarning, match="FUNCTION_FAILED.*raised KeyError: 'nine'"):
        out = push(engine, (3, 1, 9), (4, 1, 3)).copy()
    assert out["bad"].num_rows <= 1  # of the rows before the one that failed
    assert out["good"].num_rows == 2
    assert engine.failures()["bad"].condition == "FUNCTION_FAILED"
    assert "error" in engine.metrics("bad")
    again = ps.Engine.restore(engine.snapshot(), functions={"f": (fail_on_nine, "bigint")})
    for each in (engine, again):
        out = push(each, (50, 1, 1), (51, 1, 2))
        assert (out["bad"].num_rows, out["good"].num_rows) == (0, 2)
        assert list(each.failures()) == ["bad"]
        each.drop("bad")
        each.query("bad", text)
        push(each, (60, 1, 1), (62, 1, 1))
        each.flush()
        assert each.failures() == {}


def test_failing_function_over_static_table() -> None:
    engine = make_engine()
    engine.function("f", fail_on_nine, "bigint")
    engine.table("t", {"x": [1, 9]})
    engine.query("bad", "SELECT A.x FROM A [NOW], t WHERE A.x = f(t.x)")
    engine.query("good", PLAIN)
    assert push(engine, (1, 1, 1))["good"].num_rows == 1
    assert list(engine.failures()) == ["bad"]


def test_failing_function_in_view() -> None:
    engine = make_engine()
    engine.function("f", fail_on_nine, "bigint")
    engine.view("v", "SELECT k, f(x) AS x FROM A [RANGE 9]")
    engine.query("reader", "SELECT COUNT(*) AS n FROM v")
    engine.query("good", PLAIN)
    push(engine, (1, 1, 1))
    with pytest.warns(RuntimeWarning, match="FUNCTION_FAILED"):
        assert push(engine, (2, 1, 9), (3, 1, 9))["good"].num_rows == 2
    assert list(engine.failures()) == ["v"]


@pytest.mark.parametrize(
    ("function", "returns", "problem"),
    [
        (lambda x: x.slice(1), "bigint", "returned 1 values for 2 rows"),
        (lambda _x: 7, "bigint", "returned int, not an array"),
        (lambda _x: "ab", "string", "returned str, not an array"),
        (lambda x: x.cast("string"), "bigint", "returned string, but is declared to return int64"),
        (lambda x: pc.add(pc.cast(x, "double"), 0.5), "bigint", "do not fit int64"),
        (lambda _x: [1, "a"], "bigint", "no array"),
    ],
)
def test_wrong_results_of_functions(function: Any, returns: str, problem: str) -> None:
    engine = make_engine()
    engine.function("f", function, returns)
    engine.query("bad", "SELECT f(x) AS v FROM A")
    with pytest.warns(RuntimeWarning, match=problem):
        assert push(engine, (1, 1, 1), (2, 1, 2))["bad"].num_rows == 0


def test_results_are_converted_without_loss() -> None:
    engine = make_engine()
    engine.function("a", lambda x: x.to_numpy(zero_copy_only=False) * 2.0, pa.float64())
    engine.function("b", lambda x: [value % 2 == 0 for value in x.to_pylist()], "boolean")
    engine.function("c", lambda x: pa.nulls(len(x)), "timestamp")
    engine.function("d", lambda x, y: pa.chunked_array([pc.add(x, y)]), "int")
    engine.query("q", "SELECT a(x) AS a, b(x) AS b, c(x) AS c, d(x, 1) AS d FROM A")
    out = push(engine, (1, 1, 1), (2, 1, 2))["q"]
    assert [str(field.type) for field in out.schema] == ["double", "bool", "timestamp[us]", "int32", "int64"]
    assert out.drop_columns("_ts").to_pylist() == [
        {"a": 2.0, "b": False, "c": None, "d": 2}, {"a": 4.0, "b": True, "c": None, "d": 3}
    ]  # fmt: skip


def test_declarations_are_checked() -> None:
    engine = make_engine()
    engine.function("twice", fail_on_nine, "bigint")
    engine.function("TWICE", fail_on_nine, "bigint")  # the same
    engine.aggregate("total", type("Total", (), {"iterate": lambda *_: None, "terminate": lambda _: 1.0}))
    wrong: list[tuple[Any, Any, Any, str]] = [
        ("a b", fail_on_nine, "bigint", "BAD_NAME"),
        ("upper", fail_on_nine, "bigint", "DUPLICATE_NAME"),
        ("sum", fail_on_nine, "bigint", "DUPLICATE_NAME"),
        ("total", fail_on_nine, "bigint", "DUPLICATE_NAME"),
        ("twice", print, "bigint", "DUPLICATE_NAME"),
        ("f", 7, "bigint", "BAD_FUNCTION"),
        ("f", fail_on_nine, "bigit", "UNKNOWN_TYPE"),
        ("f", fail_on_nine, pa.month_day_nano_interval(), "UNKNOWN_TYPE"),
        ("f", fail_on_nine, None, "UNKNOWN_TYPE"),
    ]
    for name, function, returns, condition in wrong:
        with pytest.raises(QueryError) as error:
            engine.function(name, function, returns)
        assert error.value.condition == condition
    with pytest.raises(QueryError, match="DUPLICATE_NAME"):
        engine.aggregate("twice", object)
    for text, message in (
        ("SELECT twic(x) AS v FROM A", "did you mean TWICE"),
        ("SELECT twice() AS v FROM A", "ARGUMENT_COUNT"),
        ("SELECT twice(x, x) AS v FROM A", "ARGUMENT_COUNT"),
    ):
        with pytest.raises(QueryError, match=message):
            engine.query("q", text)


def test_restore_needs_the_functions() -> None:
    engine = make_engine()
    engine.function("f", fail_on_nine, "bigint")
    engine.query("q", "SELECT f(x) AS v FROM A")
    blob = engine.snapshot()
    given: list[tuple[Any, str]] = [
        (None, "MISSING_FUNCTIONS"),
        ({"f": (fail_on_nine, "double")}, "FUNCTION_TYPE"),
        ({"f": fail_on_nine}, "BAD_FUNCTION"),
        ([fail_on_nine], "BAD_FUNCTION"),
    ]
    for functions, condition in given:
        with pytest.raises(QueryError) as error:
            ps.Engine.restore(blob, functions=functions)
        assert error.value.condition == condition
    again = ps.Engine.restore(blob, functions={"F": (fail_on_nine, "bigint")})
    assert push(again, (1, 1, 1))["q"].to_pylist() == [{"v": 1, "_ts": 1}]
