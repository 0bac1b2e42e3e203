"""GROUP BY, SLIDE and user-defined aggregates through the engine."""

from __future__ import annotations

import random
import warnings
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps

SCHEMA = {"ts": "bigint", "k": "string", "i": "bigint", "v": "double", "d": "decimal(38, 0)"}


def engine(**options: Any) -> ps.Engine:
    made = ps.Engine(**options)
    made.stream("S", SCHEMA, time="ts")
    return made


def rows(*given: dict[str, Any]) -> pa.Table:
    schema = pa.schema(
        [("ts", pa.int64()), ("k", pa.string()), ("i", pa.int64()), ("v", pa.float64()), ("d", pa.decimal128(38, 0))]
    )
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in given], schema)


def answers(text: str, *given: dict[str, Any]) -> list[tuple[Any, ...]]:
    made = engine()
    made.query("q", text)
    table = pa.concat_tables([made.push({"S": rows(*given)})["q"], made.flush()["q"]])
    return [tuple(row.values()) for row in table.to_pylist()]


def test_group_emits_on_value_change() -> None:
    given = ({"ts": 1, "k": "a", "i": 1}, {"ts": 2, "k": "b", "i": 5}, {"ts": 3, "k": "a", "i": 1})
    assert answers("SELECT k, MAX(i) AS m FROM S [RANGE 10] GROUP BY k", *given) == [("a", 1, 1), ("b", 5, 2)]
    text = "SELECT k, COUNT(*) AS n FROM S [RANGE 10] GROUP BY k"
    assert answers(text, *given) == [("a", 1, 1), ("b", 1, 2), ("a", 2, 3), ("a", 1, 11)]
    assert answers(f"DSTREAM ({text})", *given) == [("a", 1, 3), ("a", 2, 11), ("b", 1, 12), ("a", 1, 13)]


def test_null_group_and_null_values() -> None:
    given = ({"ts": 1, "i": None}, {"ts": 2, "i": 4}, {"ts": 2, "k": "a", "i": None})
    text = "SELECT k, COUNT(*) AS n, COUNT(i) AS c, SUM(i) AS s, AVG(i) AS a, MIN(i) AS m FROM S GROUP BY k"
    assert answers(text, *given) == [
        (None, 1, 0, None, None, None, 1), (None, 2, 1, 4, 4.0, 4, 2), ("a", 1, 0, None, None, None, 2),
    ]  # fmt: skip


def test_global_aggregate_without_rows() -> None:
    given = ({"ts": 1, "i": 3}, {"ts": 9, "i": 4})
    text = "SELECT COUNT(*) AS n, SUM(i) AS s FROM S [RANGE 2]"
    assert answers(text, *given) == [(1, 3, 1), (1, 4, 9)]
    assert answers(f"DSTREAM ({text})", *given) == [(1, 3, 3), (1, 4, 11)]


def test_expressions_over_groups_and_having() -> None:
    given = [{"ts": t, "i": t} for t in range(6)]
    text = "SELECT i % 2 AS odd, SUM(i) * 10 + (i % 2) AS s FROM S GROUP BY i % 2 HAVING COUNT(*) > 1"
    assert answers(text, *given) == [(0, 20, 2), (1, 41, 3), (0, 60, 4), (1, 91, 5)]
    assert answers("SELECT DISTINCT COUNT(*) AS n FROM S GROUP BY i % 2", *given) == [(1, 0), (2, 2), (3, 4)]


def test_sum_of_doubles_is_exact() -> None:
    """Sums of doubles do not drift and do not depend on the order of the rows."""
    rng = random.Random(3)
    values = [rng.choice((1e16, 1.0, -1e16, 0.1, 1e-300, 1e300, -1e300)) for _ in range(300)]
    made = engine()
    made.query("q", "SELECT SUM(v) AS s FROM S [ROWS 1]")
    given = [{"ts": t, "v": v} for t, v in enumerate(values)]
    out = pa.concat_tables([made.push({"S": rows(*given)})["q"], made.flush()["q"]])
    shown = dict(zip(out.column("_ts").to_pylist(), out.column("s").to_pylist(), strict=True))
    current = None
    for time, value in enumerate(values):
        current = shown.get(time, current)
        assert current == value  # a window of one row: earlier rows leave no rounding error


def test_sum_overflow_is_null_until_it_fits() -> None:
    big, wide = 2**63 - 1, 10**37 * 9
    given = ({"ts": 1, "i": big, "d": wide}, {"ts": 2, "i": 1, "d": wide}, {"ts": 5, "i": -5, "d": 7})
    text = "SELECT SUM(i) AS s, SUM(d) AS t, COUNT(*) AS n FROM S [RANGE 3]"
    found = [(s, None if t is None else int(t), ts) for s, t, _, ts in answers(text, *given)]
    assert found == [(big, wide, 1), (None, None, 2), (1, wide, 4), (-5, 7, 5)]


def test_running_sum_over_unbounded_window() -> None:
    assert answers("SELECT SUM(i) AS s FROM S", *({"ts": t, "i": t} for t in (1, 2, 3))) == [(1, 1), (3, 2), (6, 3)]


def test_slide_emits_at_multiples() -> None:
    given = [{"ts": t, "i": t} for t in (-3, 1, 5, 6, 11, 20)]
    # at 0: -3; at 5: 1 and 5 (5 belongs to it); at 10: 5 has just died, 6; at 15: 11; at 20: 20
    text = "SELECT COUNT(*) AS n, SUM(i) AS s FROM S [RANGE 5 SLIDE 5]"
    assert answers(text, *given) == [(1, -3, 0), (2, 6, 5), (1, 6, 10), (1, 11, 15), (1, 20, 20)]
    # the rows of a report leave at the next one: at 10 those of 0, at 20 those of 10, at 30 those of 20
    assert answers("DSTREAM (SELECT MAX(i) AS m FROM S [RANGE 5 SLIDE 10])", *given) == [(-3, 10), (6, 20), (20, 30)]


def test_slide_repeats_equal_answers() -> None:
    given = [{"ts": 1, "k": "a"}, {"ts": 2, "k": "b"}, {"ts": 7, "k": "b"}]
    by_key = "(SELECT k, COUNT(*) AS n FROM S [RANGE 6 SLIDE 2] GROUP BY k)"
    shown = [("a", 1, 2), ("b", 1, 2), ("a", 1, 4), ("b", 1, 4), ("a", 1, 6), ("b", 1, 6), ("b", 1, 8), ("b", 1, 10),
             ("b", 1, 12)]  # fmt: skip
    assert answers(f"ISTREAM {by_key}", *given) == answers(f"RSTREAM {by_key}", *given) == shown
    assert answers(f"DSTREAM {by_key}", *given) == [(*row[:-1], row[-1] + 2) for row in shown]
    changes = answers("SELECT COUNT(*) AS n FROM S [RANGE 3 SLIDE 2] EMIT CHANGES", {"ts": 1}, {"ts": 3})
    assert changes == [(1, "+", 2), (1, "-", 4), (1, "+", 4), (1, "-", 6)]


def test_empty_slides_are_not_reported() -> None:
    """However long a gap is, with and without keys."""
    far, window = 2**60, "FROM S [RANGE 4 SLIDE 4]"
    given = [{"ts": 1, "k": "a"}, {"ts": far, "k": "a"}]
    calls = "COUNT(*) AS n, COUNT(i) AS c, MAX(k) AS m"
    assert answers(f"SELECT {calls} {window}", *given) == [
        (1, 0, "a", 4), (1, 0, "a", far)
    ]  # fmt: skip
    assert answers(f"SELECT k, COUNT(*) AS n {window} GROUP BY k", *given) == [("a", 1, 4), ("a", 1, far)]


@pytest.mark.parametrize("pushes", [1, 2, 3])
def test_snapshots_between_slides(pushes: int) -> None:
    """A restored engine continues after the last report."""
    text = "SELECT COUNT(*) AS n FROM S [RANGE 3 SLIDE 2] EMIT CHANGES"
    made = engine()
    made.query("q", text)
    found = []
    for number, time in enumerate((1, 7, 12), 1):
        found += made.push({"S": rows({"ts": time})}, {"S": time})["q"].to_pylist()
        if number >= pushes:
            made = ps.Engine.restore(made.snapshot())
    found += made.flush()["q"].to_pylist()
    assert [tuple(row.values()) for row in found] == answers(text, {"ts": 1}, {"ts": 7}, {"ts": 12})


def test_slide_waits_for_frontier() -> None:
    made = engine()
    made.query("q", "SELECT COUNT(*) AS n FROM S [RANGE 10 SLIDE 10]")
    assert made.push({"S": rows({"ts": 3}, {"ts": 10})})["q"].num_rows == 0  # another tuple of 10 may arrive
    made.advance("S", 11)
    assert made.push({})["q"].to_pylist() == [{"n": 2, "_ts": 10}]


def test_slides_must_agree() -> None:
    made = engine()
    with pytest.raises(ps.QueryError, match="SLIDES_DIFFER"):
        made.query("q", "SELECT COUNT(*) AS n FROM S [RANGE 4 SLIDE 2] AS a, S [RANGE 4 SLIDE 4] AS b")
    with pytest.raises(ps.QueryError, match="write SLIDE 2 or more"):
        made.query("q", "SELECT COUNT(*) AS n FROM S [RANGE 2000000 SLIDE 1]")
    with pytest.raises(ps.QueryError, match="write SLIDE 2 or more"):
        made.query("q", "SELECT COUNT(*) AS n FROM S [ROWS 2000000 SLIDE 1]")
    with pytest.raises(ps.QueryError, match="SLIDE_WITHOUT_RANGE"):
        made.query("q", "SELECT COUNT(*) AS n FROM S [PARTITION BY k ROWS 4 SLIDE 2]")
    for other in ("RANGE 4 SLIDE 2", "ROWS 4 SLIDE 2"):
        with pytest.raises(ps.QueryError, match="SLIDES_DIFFER"):
            made.query("q", f"SELECT COUNT(*) AS n FROM S [ROWS 4 SLIDE 2] AS a, S [{other}] AS b")


def test_row_slide_reports_after_so_many_rows() -> None:
    """Rows count whether or not they pass; several multiples in one instant are one report."""
    given = [{"ts": t, "i": t} for t in (1, 2, 3, 4, 4, 4, 4, 9)]
    text = "SELECT COUNT(*) AS n, SUM(i) AS s FROM S [ROWS 3 SLIDE 2]"
    assert answers(text, *given) == [(2, 3, 2), (3, 12, 4), (3, 17, 9)]
    assert answers(f"DSTREAM ({text})", *given) == [(2, 3, 4), (3, 12, 9)]
    assert answers(f"{text} WHERE i < 3", *given) == [(2, 3, 2)]  # an empty window has no report
    assert answers("SELECT k, COUNT(*) AS n FROM S [ROWS 1 SLIDE 1] GROUP BY k", *given[:3]) == [
        (None, 1, 1), (None, 1, 2), (None, 1, 3),
    ]  # fmt: skip


def test_row_slide_repeats_answers_of_rows_that_fail() -> None:
    """The answer stays, and is reported again, while rows come that are not in it."""
    given = [{"ts": 1, "i": 1}, *({"ts": t, "i": 0} for t in range(2, 6))]
    assert answers("SELECT COUNT(*) AS n FROM S [ROWS 9 SLIDE 2] WHERE i = 1", *given) == [(1, 2), (1, 4)]


def test_row_slide_waits_for_frontier() -> None:
    made = engine()
    made.query("q", "SELECT COUNT(*) AS n FROM S [ROWS 10 SLIDE 2]")
    assert made.push({"S": rows({"ts": 3}, {"ts": 10})})["q"].num_rows == 0  # another tuple of 10 may arrive
    assert made.push({"S": rows({"ts": 10}, {"ts": 11})})["q"].to_pylist() == [{"n": 3, "_ts": 10}]


def test_row_slide_counts_from_the_start_of_the_query() -> None:
    made = engine()
    made.push({"S": rows({"ts": 1}, {"ts": 2}, {"ts": 3})})
    made.query("q", "SELECT COUNT(*) AS n FROM S [ROWS 10 SLIDE 2]")
    found = made.push({"S": rows(*({"ts": t} for t in (4, 5, 6, 7)))}, {"S": 8})["q"].to_pylist()
    assert found == [{"n": 2, "_ts": 5}, {"n": 4, "_ts": 7}]


def test_row_slide_does_not_count_rows_held_at_its_start() -> None:
    made = ps.Engine()
    made.stream("S", SCHEMA, time="ts", lateness=5)
    made.push({"S": rows({"ts": 1}, {"ts": 2}, {"ts": 3})})
    made.query("q", "SELECT COUNT(*) AS n FROM S [ROWS 10 SLIDE 2]")
    found = made.push({"S": rows(*({"ts": t} for t in (4, 5, 6, 7)))}, {"S": 8})["q"].to_pylist()
    assert found == [{"n": 2, "_ts": 5}, {"n": 4, "_ts": 7}]


def test_row_slide_advances_what_reads_it() -> None:
    """Time passes a sliding aggregate whose reports are far away."""
    made = engine()
    made.query("q", "SELECT COUNT(*) AS n FROM S [ROWS 1000 SLIDE 1000] UNION ALL SELECT i AS n FROM S [NOW]")
    assert made.push({"S": rows({"ts": 3, "i": 7})}, {"S": 8})["q"].to_pylist() == [{"n": 7, "_ts": 3}]


@pytest.mark.parametrize("pushes", [1, 2, 3, 4])
def test_snapshots_between_row_slides(pushes: int) -> None:
    """A restored engine goes on counting where the saved one was."""
    text = "SELECT COUNT(*) AS n FROM S [ROWS 3 SLIDE 2] EMIT CHANGES"
    given = [{"ts": t} for t in (1, 2, 2, 5, 6, 9, 9)]
    made = engine()
    made.query("q", text)
    found = []
    for number, row in enumerate(given, 1):
        found += made.push({"S": rows(row)})["q"].to_pylist()
        if number >= pushes:
            made = ps.Engine.restore(made.snapshot())
    found += made.flush()["q"].to_pylist()
    assert [tuple(row.values()) for row in found] == answers(text, *given)


def test_row_slide_is_explained() -> None:
    made = engine()
    made.query("q", "SELECT COUNT(*) AS n FROM S [ROWS 3 SLIDE 2]")
    assert "slide: 2 rows of S" in str(made.explain("q"))


# ── user-defined aggregates ──────────────────────────────────────────────────────────────────────────────────────────


class Longest:
    """The longest text, the first of equals; it cannot remove values."""

    type = "string"

    def initialise(self) -> None:
        self.best = ""

    def iterate(self, text: str) -> None:
        if len(text) > len(self.best):
            self.best = text

    def terminate(self) -> str:
        return self.best


class Total:
    """A sum that takes the first row in `initialise` and can remove rows."""

    type = "bigint"

    def initialise(self, value: int) -> None:
        self.total = value

    def iterate(self, value: int) -> None:
        self.total += value

    def remove(self, value: int) -> None:
        self.total -= value

    def terminate(self) -> int:
        return self.total


class Fragile(Total):
    def iterate(self, value: int) -> None:
        if value == 3:
            raise ValueError("three is too much")
        super().iterate(value)


def test_aggregate_without_remove_recomputes_group() -> None:
    made = engine()
    made.aggregate("longest", Longest)
    made.query("q", "SELECT LONGEST(k) AS best FROM S [RANGE 3]")
    given = rows({"ts": 1, "k": "four"}, {"ts": 2, "k": "abc"}, {"ts": 3, "k": None}, {"ts": 3, "k": "xyz"})
    out = pa.concat_tables([made.push({"S": given})["q"], made.flush()["q"]])
    assert [tuple(row.values()) for row in out.to_pylist()] == [("four", 1), ("abc", 4), ("xyz", 5)]


def test_aggregate_with_remove() -> None:
    made = engine()
    made.aggregate("total", Total)
    made.query("q", "SELECT total(i) AS t, total(DISTINCT i) AS d FROM S [RANGE 2]")
    out = pa.concat_tables([made.push({"S": rows(*({"ts": t, "i": 5} for t in (1, 2)))})["q"], made.flush()["q"]])
    assert [tuple(row.values()) for row in out.to_pylist()] == [(5, 5, 1), (10, 5, 2), (5, 5, 3)]


def test_raising_aggregate_stops_only_its_query() -> None:
    made = engine()
    made.aggregate("fragile", Fragile)
    made.query("bad", "SELECT fragile(i) AS t FROM S")
    made.query("good", "SELECT COUNT(*) AS n FROM S")
    assert made.failures() == {}
    with pytest.warns(RuntimeWarning, match=r"bad: .*three is too much") as issued:
        outs = [made.push({"S": rows({"ts": t, "i": t})}) for t in (1, 2, 3, 4, 5)]
    assert len(issued) == 1
    assert all(set(out) == {"bad", "good"} for out in outs)
    assert [row["t"] for out in outs for row in out["bad"].to_pylist()] == [1, 3]
    assert [row["n"] for out in outs for row in out["good"].to_pylist()] == [1, 2, 3, 4]
    failure = made.failures()["bad"]
    assert failure.condition == "AGGREGATE_FAILED"
    assert isinstance(failure.__cause__, ValueError)
    assert "three is too much" in str(made.metrics("bad")["error"])
    again = ps.Engine.restore(made.snapshot(), aggregates={"fragile": Fragile})
    assert list(again.failures()) == ["bad"]
    made.drop("bad")
    assert made.failures() == {}
    made.query("bad", "SELECT fragile(i) AS t FROM S")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.push({"S": rows({"ts": 6, "i": 1})})


def test_aggregate_result_of_wrong_type_fails() -> None:
    class Odd(Longest):
        type = "bigint"

    made = engine()
    made.aggregate("odd", Odd)
    made.query("q", "SELECT odd(k) AS o FROM S")
    made.push({"S": rows({"ts": 1, "k": "a"})})
    with pytest.warns(RuntimeWarning, match="odd raised"):
        assert made.flush()["q"].num_rows == 0


def test_invalid_aggregate_refused() -> None:
    made = engine()
    for name, class_, match in (
        ("sum", Total, "there is a function sum already"),
        ("two words", Total, "BAD_NAME"),
        ("total", Total(), "give a class"),  # type: ignore[no-untyped-call]
        ("thing", object, "has no iterate and no terminate"),
    ):
        with pytest.raises(ps.QueryError, match=match):
            made.aggregate(name, class_)  # type: ignore[arg-type]
    made.aggregate("total", Total)
    with pytest.raises(ps.QueryError, match="DUPLICATE_NAME"):
        made.aggregate("TOTAL", Total)
    with pytest.raises(ps.QueryError, match="MISSING_AGGREGATES"):
        ps.Engine.restore(made.snapshot())


@pytest.mark.parametrize(
    ("call", "values"),
    [
        ("BOOL_AND(x > 1)", [False, False, False]),
        ("EVERY(x > 0)", [True, True, True]),
        ("BOOL_OR(x > 2)", [False, True, True]),
        ("COUNT_IF(x = 1)", [1, 1, 2]),
        ("ANY_VALUE(x)", [1, 1, 1]),
        ("APPROX_COUNT_DISTINCT(x)", [1, 2, 2]),
    ],
)
def test_aggregates_that_others_compute(call: str, values: list[object]) -> None:
    engine = ps.Engine()
    engine.stream("s", {"ts": "bigint", "x": "bigint"}, time="ts")
    engine.query("q", f"RSTREAM (SELECT {call} AS v FROM s)")
    outs = [engine.push({"s": {"ts": [1, 2, 3], "x": [1, 3, 1]}}), engine.flush()]
    last = {row["_ts"]: row["v"] for out in outs for row in out["q"].to_pylist()}
    found = [last[max(time for time in last if time <= now)] for now in (1, 2, 3)]
    assert found == values
