"""Queries over a subset of another query's streams: when they read a node of its join, and what ends that."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from injected_errors import fail_in_filters_with
from inspect_engine import joins_of

import penstock as ps
from penstock.testing import same_rows

WIDE = """SELECT a.x, b.y AS by, c.ts AS ct FROM A [RANGE 20] AS a, B [RANGE 20] AS b, C [RANGE 10] AS c
          WHERE a.x = b.x AND b.y = c.y"""
NARROW = "SELECT p.x, q.ts AS t FROM A [RANGE 30] AS p, B [RANGE 15] AS q WHERE p.x = q.x AND p.y > 1"
PLAN = "((a b) c)"


def engine(**options: Any) -> ps.Engine:
    eng = ps.Engine(**options)
    for name in "ABC":
        eng.stream(name, {"ts": "bigint", "x": "bigint", "y": "bigint"}, time="ts")
    eng.table("T", pa.table({"x": [1, 2]}))
    return eng


def nested(**options: Any) -> ps.Engine:
    eng = engine(**options)
    eng.query("wide", WIDE, plan=PLAN)
    eng.query("narrow", NARROW)
    return eng


def joins(eng: ps.Engine) -> int:
    return len(joins_of(eng))


def pushes(count: int = 24, seed: int = 1) -> Iterator[dict[str, pa.Table]]:
    """C lags behind the other streams by more than a push."""
    rng = random.Random(seed)
    for step in range(count):
        data = {}
        for name in "ABC":
            times = sorted(max(0, 5 * step + rng.randrange(5) - 12 * (name == "C")) for _ in range(rng.choice([3, 12])))
            keys = [[None if rng.random() < 0.15 else rng.randrange(4) for _ in times] for _ in "xy"]
            data[name] = pa.table([pa.array(column, pa.int64()) for column in (times, *keys)], names=["ts", "x", "y"])
        yield data


def agree(one: ps.Engine, other: ps.Engine, changes: dict[int, Callable[[ps.Engine], Any]] | None = None) -> ps.Engine:
    """Both engines give the same results push by push; `changes` are applied to the first before some pushes."""
    for step, data in enumerate(pushes()):
        for number, change in (changes or {}).items():
            one = (change(one) or one) if number == step else one
        ours, theirs = one.push(data), other.push(data)
        for name in ours:
            same_rows(ours[name], theirs[name])
    assert set(ours) <= set(theirs)
    return one


@pytest.mark.parametrize("state", ["auto", "eager"])
def test_nested_query_reads_node_of_wider_join(state: str) -> None:
    """A query over two of three streams reads the node of the wider join, without waiting."""
    eng = nested(state=state)
    assert joins(eng) == 1
    agree(eng, nested(share=False))
    assert "(a b) is read by narrow" in eng.explain("wide")
    assert "reads a node of the join of wide" in eng.explain("narrow")
    metrics = eng.metrics("narrow")
    assert metrics["plan"] == "(p q)"
    assert set(metrics["window_rows"]) == {"p", "q"}  # type: ignore[call-overload]
    eng.query("even", NARROW.replace("30", "15"))
    assert eng.slices("even").column_names == ["from", "to", "queries", "rows of p", "rows of q", "results"]


@pytest.mark.parametrize(
    "narrow",
    [
        NARROW.replace("p.x = q.x", "p.x = q.y"),
        NARROW.replace("p.x = q.x", "p.x = q.x AND p.y = q.y"),
        NARROW.replace("[RANGE 30]", "[ROWS 3]"),
        NARROW.replace("B [RANGE 15]", "C [RANGE 15]"),
        "SELECT p.x FROM B [RANGE 9] AS p, T AS q WHERE p.x = q.x",
        f"RSTREAM ({NARROW})",
        f"DSTREAM ({NARROW})",
        NARROW.replace("SELECT", "SELECT DISTINCT"),
    ],
)
def test_incompatible_query_gets_own_join(narrow: str) -> None:
    eng = engine()
    eng.query("wide", WIDE, plan=PLAN)
    eng.query("narrow", narrow)
    assert joins(eng) == 2


@pytest.mark.parametrize("options", [{"state": "none"}, {"state": "lazy"}, {"state": "jit"}, {"adapt": True}])
def test_node_not_read_if_rows_are_deferred(options: dict[str, Any]) -> None:
    eng = nested(**options)
    assert joins(eng) == 2
    eng.close()


@pytest.mark.parametrize("plan", ["(a (b c))", "{a b c}"])
def test_plan_without_node_is_not_shared(plan: str) -> None:
    eng = engine()
    eng.query("wide", WIDE, plan=plan)
    eng.query("narrow", NARROW)
    assert joins(eng) == 2


def test_explicit_plan_must_match_node() -> None:
    eng = nested()
    eng.query("asked", NARROW, plan="(p q)")
    eng.query("other", NARROW, plan="(q p)")
    assert joins(eng) == 2


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda eng: eng.migrate("wide", "(c (b a))"), 1),
        (lambda eng: eng.migrate("narrow", "(q p)"), 1),
        (lambda eng: eng.migrate("wide", "(a (b c))"), 2),
        (lambda eng: eng.migrate("wide", "(a (b c))", how="parallel-track"), 2),
        (lambda eng: eng.migrate("wide", "{a b c}"), 2),
        (lambda eng: eng.migrate("narrow", "{p q}"), 2),
        (lambda eng: eng.policy("wide", "jit"), 2),
        (lambda eng: eng.policy("narrow", "none"), 2),
        (lambda eng: eng.budget(None), 2),
        (lambda eng: eng.reslice("cpu-opt"), 1),
        (lambda eng: eng.drop("wide"), 1),
        (lambda eng: eng.drop("narrow"), 1),
        (lambda eng: ps.Engine.restore(eng.snapshot()), 2),
    ],
)
def test_changes_keep_results(change: Callable[[ps.Engine], Any], left: int) -> None:
    """At step 13 the node is ahead of the tree."""
    eng = agree(nested(), nested(share=False), {13: change})
    assert joins(eng) == left


@pytest.mark.parametrize("state", ["auto", "eager"])
@pytest.mark.parametrize("at", [0, 1, 13])
def test_wider_query_takes_in_join_that_runs(state: str, at: int) -> None:
    """A wider query that starts second takes over the windows; results come in the same pushes as alone."""
    one, other = engine(state=state), engine(state=state, share=False)
    for eng in (one, other):
        eng.query("narrow", NARROW)
        eng.query("filtered", NARROW.replace("30", "9").replace("p.y > 1", "q.y < 3"))
    agree(one, other, {at: lambda eng: [each.query("wide", WIDE, plan=PLAN) for each in (eng, other)] and eng})
    assert joins(one) == 1
    assert "(a b) is read by narrow, filtered" in one.explain("wide")
    for name in ("narrow", "filtered"):
        assert one.metrics(name)["emitted"] == other.metrics(name)["emitted"]
        assert one.metrics(name)["complete_since"] == other.metrics(name)["complete_since"]


def test_altered_query_takes_in_join_that_runs() -> None:
    eng = engine()
    eng.query("narrow", NARROW)
    eng.query("wide", "SELECT c.x FROM C [RANGE 3] AS c")
    eng.push(next(pushes()))
    eng.alter("wide", WIDE, plan=PLAN)
    assert joins(eng) == 1


@pytest.mark.parametrize(
    ("narrow", "plan", "options"),
    [
        (f"DSTREAM ({NARROW})", None, {}),
        (NARROW.replace("SELECT", "SELECT DISTINCT"), None, {}),
        (NARROW, "(q p)", {}),
        (NARROW, "{p q}", {}),
        (NARROW, None, {"state": "jit"}),
        (NARROW, None, {"adapt": True}),
    ],
)
def test_join_stays_if_wider_one_cannot_have_it(narrow: str, plan: str | None, options: dict[str, Any]) -> None:
    eng = engine(**options)
    eng.query("narrow", narrow, plan=plan)
    eng.push(next(pushes()))
    eng.query("wide", WIDE, plan=PLAN)
    assert joins(eng) == 2
    eng.close()


def test_join_of_derived_stream_stays() -> None:
    """What other queries read must not get another outlet."""
    eng = engine()
    eng.derive("pairs", NARROW)
    eng.query("wide", WIDE, plan=PLAN)
    assert joins(eng) == 2


def test_add_and_drop_queries_while_node_is_ahead() -> None:
    texts = {"early": (WIDE, 3), "second": (NARROW.replace("p.y > 1", "q.y < 3"), 6), "third": (NARROW, 11)}
    steps = {9: "early", 15: "second", 18: "narrow"}

    def moved(eng: ps.Engine, step: int) -> None:
        for name, (text, at) in texts.items():
            if at == step:
                eng.query(name, text)
        if step in steps:
            eng.drop(steps[step])

    one, other = nested(), nested(share=False)
    for step, data in enumerate(pushes()):
        moved(one, step)
        moved(other, step)
        ours, theirs = one.push(data), other.push(data)
        for name in theirs:
            same_rows(ours[name], theirs[name])
    assert joins(one) == 1


def test_drop_wider_query_frees_its_rows() -> None:
    """Rows that only the dropped query needed are also freed in the state of the node that the narrower query reads."""

    def three(eng: ps.Engine) -> ps.Engine:
        eng.query("wide", WIDE, plan=PLAN)
        eng.query("some", WIDE + " AND a.y > 1", plan=PLAN)
        eng.query("narrow", NARROW.replace(" AND p.y > 1", ""))
        return eng

    one = agree(three(engine()), three(engine(share=False)), {13: lambda eng: eng.drop("wide")})
    assert joins(one) == 1


def even(eng: ps.Engine) -> ps.Engine:
    """The windows of all streams are equal, so that the query can use history."""
    eng.query("wide", WIDE.replace("10", "20"), plan=PLAN)
    eng.query("narrow", NARROW.replace("30", "15"))
    return eng


@pytest.mark.parametrize("name", ["wide", "narrow"])
def test_alter_nested_query_keeps_windows(name: str) -> None:
    text = {"wide": WIDE.replace("10", "20"), "narrow": NARROW.replace("30", "15")}[name]
    one = agree(even(engine()), even(engine(share=False)), {13: lambda eng: eng.alter(name, text)})
    assert joins(one) == 1


def test_complete_since_of_nested_query_with_history() -> None:
    """Tuples with a NULL that matters only to the wider query were not kept before."""
    one, other = engine(), even(engine(share=False))
    one.query("wide", WIDE.replace("10", "20"), plan=PLAN)
    since, found = 0, {"one": [], "other": []}
    for step, data in enumerate(pushes()):
        if step == 12:
            one.query("narrow", NARROW.replace("30", "15").replace("p.y > 1", "p.x >= 0"), history=True)
            other.query("all", NARROW.replace("30", "15").replace("p.y > 1", "p.x >= 0"))
            since = one.metrics("narrow")["complete_since"]
        found["one"] += [one.push(data).get("narrow")]
        found["other"] += [other.push(data).get("all")]
    assert joins(one) == 1
    assert since is not None
    late = [pa.concat_tables(t for t in found[name] if t is not None) for name in ("one", "other")]
    same_rows(*(table.filter(pc.greater_equal(table.column("_ts"), since)) for table in late))


def test_failing_filter_stops_only_its_query(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_in_filters_with("777", ValueError("no"), monkeypatch)
    eng, alone = nested(), nested(share=False)
    for each in (eng, alone):
        each.query("bad", NARROW.replace("p.y > 1", "p.y > 777"))
    with pytest.warns(match="bad"):
        agree(eng, alone)
    assert joins(eng) == 1
    assert set(eng.failures()) == {"bad"}
    eng.drop("wide")
    assert set(eng.failures()) == {"bad"}
