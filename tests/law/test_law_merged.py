"""The law over subqueries that are merged into the SELECT that reads them, and over derived streams as one join.

More seeds: PENSTOCK_SEEDS=5000 PENSTOCK_FIRST_SEED=1000000 pytest -n auto tests/law/test_law_merged.py
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from law_support import BATCHES, CHUNKS, STATES, check_case, check_fails, list_seeds, make_engine
from merge_mutants import MERGE_MUTANTS
from sharing_mutants import Mutant

from penstock.testing import difference, expected_by_duckdb
from penstock.testing.relation_cases import random_relations_case

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
