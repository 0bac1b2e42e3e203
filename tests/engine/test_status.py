"""The status of an engine after changes: facts of queries are kept between readings and must follow every change."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.engine import EngineStatus
from penstock.web.series import list_changes, measure_point

PAIRS = "SELECT a.k FROM A [RANGE 50] AS a, B [RANGE 50] AS b WHERE a.k = b.k"
TRIPLES = "SELECT a.k FROM A [RANGE 50] AS a, B [RANGE 50] AS b, C [RANGE 50] AS c WHERE a.k = b.k AND b.k = c.k"


def fail(_: object) -> None:
    raise ValueError


def build_engine() -> ps.Engine:
    engine = ps.Engine(warn=False)
    for name in ("A", "B", "C"):
        engine.stream(name, {"ts": "bigint", "k": "bigint"}, time="ts")
    engine.function("fail", fail, returns="bigint")
    engine.query("pairs", PAIRS)
    engine.query("triples", TRIPLES, plan="((a b) c)")
    engine.query("own", TRIPLES.replace("50", "40"), plan="((a b) c)", state="eager")
    engine.derive("few", "SELECT k FROM A WHERE k > 1")
    engine.query("counts", "SELECT k, COUNT(*) AS n FROM few [RANGE 20] GROUP BY k")
    engine.query("gone", "DSTREAM (SELECT k FROM A [RANGE 20])")
    return engine


def push(engine: ps.Engine, number: int) -> None:
    rows = {"ts": [10 * number, 10 * number + 5], "k": [1, 2]}
    results = engine.push({"A": rows, "B": rows, "C": rows})
    assert all(results[name] is not None for name in results)  # a function may fail when rows are read


def check(engine: ps.Engine) -> EngineStatus:
    """Compare a status with what the engine says of each query."""
    status = engine.status()
    queries = {each.name: each for each in status.queries}
    assert set(engine.queries) <= set(queries)
    for name, described in engine.queries.items():
        found, metrics = queries[name], engine.metrics(name)
        assert (found.text, found.plan, found.state) == (described.text, described.plan, described.state)
        assert found.emitted == metrics["emitted"]
        assert found.completeness == pytest.approx(metrics.get("completeness", 1.0))
        assert bool(found.budget) == ("budget" in metrics)
        assert (found.error is None) == (name not in engine.failures())
    return status


CHANGES: list[tuple[str, tuple[Any, ...]]] = [
    ("migrate", ("triples", "(a (b c))")),
    ("policy", ("triples", "jit")),
    ("migrate", ("own", "((b c) a)", "parallel-track")),
    ("policy", ("own", "auto")),
    ("alter", ("pairs", PAIRS.replace("50", "30"))),
    ("query", ("more", PAIRS.replace("50", "20"))),
    ("query", ("stops", "SELECT fail(k) AS k FROM A")),
    ("query", ("stops_in_join", PAIRS.replace("SELECT a.k", "SELECT fail(a.k) AS k"))),
    ("drop", ("more",)),
    ("query", ("more", PAIRS.replace("50", "20"))),
    ("budget", (100, "steady", "own")),
    ("budget", (None, "steady", "own")),
    ("drop", ("counts",)),
    ("drop", ("few",)),
]


@pytest.mark.filterwarnings("ignore:stops")  # the queries that are to stop
def test_status_follows_every_change() -> None:
    engine = build_engine()
    check(engine)
    for number, (method, arguments) in enumerate(CHANGES):
        push(engine, number)
        check(engine)
        getattr(engine, method)(*arguments)
        check(engine)
    for number in range(len(CHANGES), len(CHANGES) + 20):
        push(engine, number)
        check(engine)
    assert {"stops", "stops_in_join"} <= set(engine.failures())


def test_facts_are_kept_while_nothing_changes() -> None:
    engine = build_engine()
    before = engine.status()
    push(engine, 0)
    after = engine.status()
    assert after.facts is before.facts
    assert list_changes(before, after, 0.0) == []
    engine.migrate("triples", "(a (b c))")
    changed = engine.status()
    assert [event.query for event in list_changes(after, changed, 0.0)] == ["triples"]


def test_results_of_a_query_that_began_again() -> None:
    """Its counter starts at 0; the results of the others count from the last reading."""
    engine = build_engine()
    for number in range(4):
        push(engine, number)
    before = engine.status()
    known = {each.name: each.emitted for each in before.queries}
    engine.drop("pairs")
    engine.query("pairs", PAIRS)
    push(engine, 4)
    after = engine.status()
    grown = [each.emitted - known[each.name] for each in after.queries if each.name != "pairs" and not each.derived]
    now = next(each.emitted for each in after.queries if each.name == "pairs")
    assert measure_point(before, after, 1.0, 0.0).results == sum(grown) + max(0, now - known["pairs"])
    push(engine, 5)
    last = engine.status()
    more = sum(each.emitted for each in last.queries if not each.derived) - sum(
        each.emitted for each in after.queries if not each.derived
    )
    assert measure_point(after, last, 1.0, 0.0).results == more
