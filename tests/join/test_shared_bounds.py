"""Queries that bound the same terms by different constants: which share a join, its work, and its test."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from inspect_engine import has_sorted_index, joins_of

import penstock as ps

LARGEST = 2**63 - 1


def pairs(where: str, window: int = 1000) -> str:
    return f"SELECT a.x, b.x AS y FROM A [RANGE {window}] AS a, B [RANGE {window}] AS b WHERE {where}"


def band(width: int) -> str:
    return pairs(f"a.x BETWEEN b.x - {width} AND b.x + {width}")


def engine(*texts: str, **options: Any) -> ps.Engine:
    eng = ps.Engine(**options)
    for name in "AB":
        eng.stream(name, {"ts": "bigint", "x": "bigint", "d": "double", "at": "timestamp"}, time="ts")
    for place, text in enumerate(texts):
        eng.query(f"q{place}", text)
    return eng


def rows(values: list[int | None], time: int = 1) -> pa.Table:
    times = [time] * len(values)
    doubles = [None if value is None else float(value) for value in values]
    at = pa.array(times, pa.timestamp("us"))
    return pa.table({"ts": times, "x": pa.array(values, pa.int64()), "d": pa.array(doubles, pa.float64()), "at": at})


def push_all(eng: ps.Engine, left: list[int | None], right: list[int | None]) -> dict[str, list[dict[str, Any]]]:
    """Push one batch of each stream; all rows of each query."""
    first = eng.push({"A": rows(left), "B": rows(right)})
    last = eng.flush()
    return {name: [*first[name].to_pylist(), *last[name].to_pylist()] for name in last}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a.x < b.x", "a.x < b.x + 10"),
        ("a.x < b.x + 3", "b.x >= a.x - 5"),
        ("a.x BETWEEN b.x - 5 AND b.x + 5", "a.x BETWEEN b.x AND b.x + 90"),
        ("ABS(a.d - b.d) < 5", "ABS(a.d - b.d) <= 7.5"),
        ("a.x - b.x < 5", "8 > a.x - b.x"),
        ("a.x * b.x + a.d > 5", "a.x * b.x + a.d > 7"),
        ("a.at < b.at + INTERVAL 1 MINUTE", "a.at < b.at + INTERVAL 2 HOURS"),
        ("a.x < b.x AND a.d > b.d", "a.d >= b.d - 4 AND a.x < b.x + 1"),
    ],
)
def test_join_shared_by_bounds_of_the_same_terms(one: str, other: str) -> None:
    assert len(joins_of(engine(pairs(one), pairs(other, window=9)))) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a.x < b.x", "b.x < a.x"),
        ("a.x < b.x", "a.d < b.d"),
        ("a.x < b.x", "a.x < b.x + 10 AND a.x > b.x - 10"),
        ("a.x < b.x + 3", "a.x < b.x * 3"),
        ("a.x < b.x + 3", "a.x <> b.x + 3"),
        ("ABS(a.x - b.x) < 5", "ABS(a.x - b.x) < a.x"),
        ("a.at < b.at + INTERVAL 1 MONTH", "a.at < b.at + INTERVAL 2 MONTHS"),
    ],
)
def test_join_not_shared_by_bounds_of_other_terms(one: str, other: str) -> None:
    """The shared join would test nothing, or less than one of the queries bounds."""
    assert len(joins_of(engine(pairs(one), pairs(other)))) == 2


def test_shared_bounds_cost_one_join() -> None:
    """Ten bands have the probes and pairs of the widest of them alone."""
    rng = np.random.default_rng(1)
    together, widest = engine(*(band(3 * width) for width in range(10))), engine(band(27))
    apart = engine(*(band(3 * width) for width in range(10)), share=False)
    found, wanted = Counter[str](), Counter[str]()
    for step in range(6):
        push = {name: rows(rng.integers(0, 300, 50).tolist(), step) for name in "AB"}
        widest.push(push)
        found.update({name: table.num_rows for name, table in together.push(push).items()})
        wanted.update({name: table.num_rows for name, table in apart.push(push).items()})
    assert found == wanted
    assert len(set(found.values())) == 10
    one, all_ = widest.metrics("q0"), together.metrics("q3")
    assert [all_[each] for each in ("probes", "built", "rows_in")] == [
        one[each] for each in ("probes", "built", "rows_in")
    ]


def read_test(eng: ps.Engine, name: str) -> str:
    """The line of `explain` with the wider test of the shared join."""
    return next((line.strip() for line in eng.explain(name).splitlines() if "for all of them" in line), "")


def test_shared_test_follows_the_queries() -> None:
    """The join tests the widest bound, and a narrower one after the query with the widest was dropped."""
    text = "SELECT l.x FROM A [RANGE 9] AS l, B [RANGE 9] AS r WHERE ABS(l.x - r.x) < 3"
    eng = engine(pairs("ABS(a.x - b.x) < 5"), text)
    assert read_test(eng, "q1") == "finds the pairs for all of them by abs(l.x - r.x) < 5"
    eng.query("wide", pairs("ABS(a.x - b.x) < 9"))
    assert read_test(eng, "q0") == "finds the pairs for all of them by abs(a.x - b.x) < 9"
    assert not read_test(eng, "wide")
    eng.drop("wide")
    assert read_test(eng, "q1") == "finds the pairs for all of them by abs(l.x - r.x) < 5"
    eng.query("sums", pairs("ABS(a.x - b.x) <= 4"))
    assert read_test(eng, "q0") == "finds the pairs for all of them by abs(a.x - b.x) < 5 OR abs(a.x - b.x) <= 4"
    eng.drop("sums")
    eng.drop("q0")
    assert not read_test(eng, "q1")


def test_bounds_of_keyed_joins_are_tested_early() -> None:
    """A join with equal keys builds only the pairs within the widest bound."""
    eng = engine(*(pairs(f"a.ts = b.ts AND ABS(a.x - b.x) < {width}") for width in (2, 4)))
    found = push_all(eng, [0, 10, 20, 22], [0, 10, 20, 22])
    assert [len(found[name]) for name in ("q0", "q1")] == [4, 6]
    assert eng.metrics("q0")["built"] == {"(a b)": 6}


@pytest.mark.parametrize(("narrow", "wide"), [("a.x < b.x + 3", "a.x < b.x + 20"), ("a.x > b.x - 3", "a.x > b.x - 20")])
def test_sum_that_overflows_for_one_query_only(narrow: str, wide: str) -> None:
    """A sum that is NULL with the widest constant takes no rows from the other queries."""
    eng = engine(pairs(narrow), pairs(wide))
    assert len(joins_of(eng)) == 1
    near = [LARGEST - 10, None, -LARGEST + 10]
    found = push_all(eng, near, near)
    pairs_found = [(row["x"], row["y"]) for row in found["q0"]]
    equal = [(x, x) for x in near if x is not None]
    other = (-LARGEST + 10, LARGEST - 10) if "<" in narrow else (LARGEST - 10, -LARGEST + 10)
    assert sorted(pairs_found) == sorted([*equal, other])
    assert len(found["q1"]) == 1


def test_test_of_unknown_values_is_no_range() -> None:
    """COALESCE in a query passes NULL, which no range contains."""
    eng = engine(pairs("COALESCE(a.x < b.x, TRUE)"))
    assert [row["x"] for row in push_all(eng, [None, 1, 3], [2])["q0"]] == [None, 1]


@pytest.mark.parametrize("state", ["eager", "lazy", "jit", "auto", "none"])
@pytest.mark.parametrize("wide", ["", " AND ABS(a.x - b.x) < 90"])
def test_stored_rows_satisfy_predicates_that_become_common(state: str, wide: str) -> None:
    """A query leaves, and the others have a predicate in common that the rows of a node were not tested with."""
    items = "A [RANGE 90] AS a, B [RANGE 90] AS b, A [RANGE 90] AS c"
    text = f"SELECT a.x, b.x AS y FROM {items} WHERE a.d = b.d AND b.d = c.d"
    narrow = f"{text} AND ABS(a.x - b.x) < 2"
    eng = engine(state=state)
    eng.query("wide", text + wide, plan="((a b) c)")
    eng.query("narrow", narrow)
    eng.query("filtered", f"{narrow} AND c.x > 3")

    def push(time: int, *values: int) -> pa.Table:
        table = rows(list(values), time)
        table = table.set_column(2, "d", pa.array([1.0] * len(values)))
        return eng.push(dict.fromkeys("AB", table))["narrow"]

    push(1, 1, 2, 50)
    eng.drop("wide")
    found = push(2, 60)
    assert found.num_rows
    assert all(abs(row["x"] - row["y"]) < 2 for row in found.to_pylist())


@pytest.mark.parametrize(("keys", "by_range"), [(2, True), (2_000, False)])
def test_range_beside_a_key_with_many_rows(keys: int, by_range: bool) -> None:
    """Of two keys each has 2,000 rows, of two thousand two: only then the rows of a key are fewer than those tested."""
    eng, rng = ps.Engine(), np.random.default_rng(keys)
    for name in "AB":
        eng.stream(name, {"ts": "bigint", "k": "bigint", "x": "bigint"}, time="ts")
    eng.query("q", "SELECT a.x FROM A [RANGE 9999] AS a, B [RANGE 9999] AS b WHERE a.k = b.k AND ABS(a.x - b.x) < 500")
    keys_of, numbers_of = ({name: rng.integers(0, limit, 4_000) for name in "AB"} for limit in (keys, 100_000))
    found = 0
    for first in range(0, 4_000, 500):
        part = slice(first, first + 500)
        push = {n: {"ts": [first] * 500, "k": keys_of[n][part], "x": numbers_of[n][part]} for n in "AB"}
        found += eng.push(push)["q"].num_rows
    found += eng.flush()["q"].num_rows
    equal = keys_of["A"][:, None] == keys_of["B"]
    assert found == np.count_nonzero(equal & (abs(numbers_of["A"][:, None] - numbers_of["B"]) < 500)) > 0
    assert has_sorted_index(eng, "a") is by_range
