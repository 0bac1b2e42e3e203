"""The law over subqueries that are merged into the SELECT that reads them, and over derived streams as one join.

More seeds: PENSTOCK_SEEDS=5000 PENSTOCK_FIRST_SEED=1000000 pytest -n auto tests/law/test_law_merged.py
"""

from __future__ import annotations

import random
import re
from typing import Any

import pyarrow as pa
import pytest
from law_support import BATCHES, CHUNKS, STATES, check_case, check_fails, list_seeds, make_engine
from merge_mutants import MERGE_MUTANTS
from sharing_mutants import Mutant

import penstock as ps
from penstock.testing import difference, expected_by_duckdb
from penstock.testing.relation_cases import random_relations_case


def test_group_by_columns_that_are_one_expression() -> None:
    engine = _make_engine()
    engine.query("q", "SELECT p, q, COUNT(*) AS n FROM (SELECT x AS p, x AS q FROM A [RANGE 9]) AS v GROUP BY p, q")
    found = engine.push({"A": [{"ts": 1, "k": 1, "x": 5, "y": 1}]}, {"A": 3})["q"]
    assert found.to_pylist() == [{"p": 5, "q": 5, "n": 1, "_ts": 1}]


def test_replaced_table_in_a_subquery() -> None:
    """A row of the subquery has the row of the table that it had when it was born."""
    engine = make_engine()
    for name in "AC":
        engine.stream(name, {"ts": "bigint", "k": "bigint"}, time="ts")
    engine.table("T", {"k": [1], "n": ["old"]})
    inner = "SELECT a.k, t.n FROM A [RANGE 100] AS a, T AS t WHERE a.k = t.k"
    engine.query("q", f"SELECT v.n FROM ({inner}) AS v, C [RANGE 100] AS c WHERE v.k = c.k")
    engine.push({"A": {"ts": [1], "k": [1]}}, {"A": 3, "C": 3})
    engine.table("T", {"k": [1], "n": ["new"]})
    found = engine.push({"C": {"ts": [5], "k": [1]}}, {"A": 9, "C": 9})["q"]
    assert found.to_pylist() == [{"n": "old", "_ts": 5}]


def test_user_function_gets_rows_of_the_subquery_only() -> None:
    """It raises for a row that the subquery does not have."""
    engine = _make_engine()
    passed: list[int] = []

    def halve(values: pa.Array) -> pa.Array:
        passed.extend(values.to_pylist())
        return pa.array([10 // value for value in values.to_pylist()], pa.int64())

    engine.function("f", halve, returns="bigint")
    inner = "SELECT a.x, a.k FROM A [RANGE 9] AS a, B [RANGE 7] AS b WHERE a.k = b.k"
    engine.query("q", f"SELECT v.x FROM ({inner}) AS v, C [RANGE 9] AS c WHERE c.k = v.k AND f(v.x) = 2")
    ones = {"ts": [1], "k": [2], "x": [1], "y": [1]}
    rows = {"A": {"ts": [1, 1], "k": [1, 2], "x": [0, 5], "y": [1, 1]}, "B": ones, "C": ones}
    found = engine.push(rows, dict.fromkeys("ABC", 5))["q"]
    assert (found.to_pylist(), set(passed)) == ([{"x": 5, "_ts": 1}], {5})


def test_names_of_items_are_free_and_written_in_plans() -> None:
    """Items of subqueries beside quoted names with dots and blanks; the plan is read again by a restore."""
    engine = _make_engine()
    inner = "SELECT a.x, b.y, a.k FROM A [RANGE 9] AS a, B [RANGE 7] AS b WHERE a.k = b.k"
    others = "C [RANGE 3] AS `v.a`, A [RANGE 4] AS a, (SELECT y FROM B [RANGE 5]) AS `w w`"
    engine.query("q", f"SELECT v.x FROM ({inner}) AS v, {others} WHERE v.x = `v.a`.x AND a.k = v.k AND `w w`.y = a.y")
    plan = _read_plan(engine, "q")
    assert sorted(re.findall(r"`[^`]*`|[^\s()]+", plan)) == ["`w w`", "a", "b", "v.a", "v.a2"]
    assert _read_plan(ps.Engine.restore(engine.snapshot()), "q") == plan


def test_plan_that_names_a_subquery_keeps_it_apart() -> None:
    """Snapshots from before have such plans."""
    text = """SELECT v.x FROM (SELECT a.x FROM A [RANGE 9] AS a, B [RANGE 9] AS b WHERE a.k = b.k) AS v, C [RANGE 5]
              WHERE v.x = C.x"""
    engine = _make_engine()
    engine.query("q", text, plan="(a b); (v C)")
    engine.query("merged", text)
    plans = [_read_plan(engine, name) for name in ("q", "merged")]
    assert plans[0] == "(a b); (v C)"
    assert ";" not in plans[1]
    restored = ps.Engine.restore(engine.snapshot())
    assert [_read_plan(restored, name) for name in ("q", "merged")] == plans
    with pytest.raises(ps.errors.QueryError, match="a plan names each of"):
        engine.query("wrong", text, plan="((a b) v)")


def _read_plan(engine: Any, name: str) -> str:
    return str(engine.explain(name).splitlines()[0].partition("plan ")[2])


PLANS = {"subquery": "((a b) c)", "view": "(v c)"}


def check_merged(seed: int) -> None:
    """A random query with subqueries, and one whose subqueries have items of equal names."""
    state = STATES[seed % len(STATES)]
    check_case(random_relations_case(seed), {"state": state}, None)
    rng = random.Random(f"names {seed}")
    tables = {name: _draw_rows(rng, 0) for name in "ABC"}
    one, two, three, four = (f"[RANGE {rng.randint(1, 25)}]" for _ in range(4))
    v = f"SELECT a.x, b.y, a.k FROM A {one} AS a, B {two} AS b WHERE a.k = b.k"
    w = f"SELECT a.x, b.y, b.k FROM C {three} AS a, A {four} AS b WHERE a.x > b.x"
    text = f"SELECT v.x, v.y, w.y AS z FROM ({v}) AS v, ({w}) AS w WHERE v.k = w.k AND v.y <= w.x"
    engine = _make_engine(state=state)
    engine.query("q", text)
    found = pa.concat_tables([engine.push(tables)["q"], engine.flush()["q"]])
    fault = difference(found, expected_by_duckdb(text, tables, time="ts"))
    assert fault is None, f"seed {seed}: {text}\n{fault}"


@pytest.mark.parametrize("chunk", CHUNKS[::3])
def test_merged_subqueries_equal_oracle(chunk: int) -> None:
    for seed in list_seeds(chunk):
        check_merged(seed)


@pytest.mark.parametrize("mutant", MERGE_MUTANTS, ids=lambda mutant: mutant.method)
def test_merge_mutant_is_detected(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert any(check_fails(check_merged, seed) for seed in mutant.seeds)


def test_no_row_of_a_subquery_without_demand() -> None:
    """10,000 rows of a subquery whose reader's partner is empty are not built; declared as a view they are."""
    inner = "SELECT a.x, b.y FROM A [RANGE 1000] AS a, B [RANGE 1000] AS b WHERE a.k = b.k"
    reader = "SELECT v.x FROM {} AS v, C [RANGE 1000] AS c WHERE v.y = c.y"
    built = {}
    for form in ("subquery", "view"):
        engine = _make_engine(state="jit")
        if form == "view":
            engine.view("v", inner)
        engine.query("q", reader.format("v" if form == "view" else f"({inner})"), plan=PLANS[form])
        tuples = {"ts": [1] * 100, "k": [7] * 100, "x": list(range(100)), "y": [5] * 100}
        engine.push({"A": tuples, "B": tuples}, {"A": 2, "B": 2, "C": 2})
        built[form] = sum(
            sum(engine.metrics(name)["built"].values()) for name in (["q", "v"] if form == "view" else ["q"])
        )
        found = engine.push({"C": {"ts": [3], "k": [0], "x": [0], "y": [5]}}, {"A": 4, "B": 4, "C": 4})
        assert found["q"].num_rows == 10_000
    assert built == {"subquery": 0, "view": 10_000}


def _make_engine(**options: Any) -> Any:
    engine = make_engine(**options)
    for name in "ABC":
        engine.stream(name, dict.fromkeys(("ts", "k", "x", "y"), "bigint"), time="ts")
    return engine


def check_derived(seed: int) -> None:
    """A join with a derived stream has the results of one join whose windows reach back as far as both do.

    A pair of w1 and w2 is in the derived stream for v from its later tuple on.
    """
    rng = random.Random(f"derived {seed}")
    w1, w2, v, u = (rng.randint(1, 30) for _ in range(4))
    derived = f"SELECT a.ts AS ats, a.x, b.ts AS bts, b.y FROM A [RANGE {w1}] AS a, B [RANGE {w2}] AS b WHERE a.k = b.k"
    apart = f"SELECT d.ats, d.bts, c.ts AS cts FROM d [RANGE {v}], C [RANGE {u}] AS c WHERE d.y = c.y AND d.x <> c.x"
    joined = f"""SELECT a.ts AS ats, b.ts AS bts, c.ts AS cts
                 FROM A [RANGE {w1 + v}] AS a, B [RANGE {w2 + v}] AS b, C [RANGE {u}] AS c
                 WHERE a.k = b.k AND b.y = c.y AND a.x <> c.x
                   AND b.ts - a.ts < {w1} AND a.ts - b.ts < {w2} AND c.ts - GREATEST(a.ts, b.ts) < {v}"""
    options = {"state": rng.choice(STATES), "batch": rng.choice(BATCHES)}
    one, two = _make_engine(**options), _make_engine(**options)
    one.query("q", joined)
    two.derive("d", derived)
    two.query("q", apart)
    found: list[list[pa.Table]] = [[], []]
    for step in range(rng.randint(3, 8)):
        push = {name: _draw_rows(rng, 20 * step) for name in "ABC"}
        for tables, engine in zip(found, (one, two), strict=True):
            tables.append(engine.push(push)["q"])
    for tables, engine in zip(found, (one, two), strict=True):
        tables.append(engine.flush()["q"])
    fault = difference(pa.concat_tables(found[0]), pa.concat_tables(found[1]))
    assert fault is None, f"seed {seed}, {options}: {derived}; {apart}\n{joined}\n{fault}"


def _draw_rows(rng: random.Random, time: int) -> pa.Table:
    rows = rng.choice([0, 1, 5, 15])
    times = [time + rng.randrange(20) for _ in range(rows)]
    values = {name: [rng.randrange(3) for _ in range(rows)] for name in "kxy"}
    return pa.table({"ts": times, **values}, pa.schema([(name, pa.int64()) for name in ("ts", *"kxy")]))


@pytest.mark.parametrize("chunk", CHUNKS[::3])
def test_derived_join_equals_one_join(chunk: int) -> None:
    for seed in list_seeds(chunk):
        check_derived(seed)
