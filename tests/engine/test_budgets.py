"""Budgets of the engine: what they limit, how metrics and snapshots show them, and when they are refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from inspect_engine import budgets_of, partners_found

import penstock as ps
from penstock.adapt import POLICIES, as_budget, join_budget
from penstock.join import LoadShedding
from penstock.plan import JoinPair, Leaf

CHAIN = "SELECT A.x, B.y FROM A [RANGE 10], B [RANGE 10], C [RANGE 10] WHERE A.x = B.x AND B.y = C.y"


def started(text: str = CHAIN, **options: Any) -> ps.Engine:
    engine = ps.Engine(**options)
    for name in "ABC":
        engine.stream(name, {"ts": "bigint", "x": "bigint", "y": "bigint"}, time="ts")
    engine.query("q", text, plan="((A B) C)" if text == CHAIN else None)
    return engine


def tuples(second: int, rate: int = 60) -> dict[str, pa.Table]:
    rng = np.random.default_rng(second)
    ts = np.full(rate, second)
    return {
        name: pa.table({"ts": ts, "x": rng.integers(0, 60, rate), "y": rng.integers(0, 60, rate)}) for name in "ABC"
    }


def fed(engine: ps.Engine, seconds: range) -> int:
    return sum(engine.push(tuples(second))["q"].num_rows for second in seconds)


@pytest.mark.parametrize("policy", POLICIES)
def test_probes_within_budget(policy: str) -> None:
    engine = started()
    engine.budget(400, policy)
    results = fed(engine, range(40))
    (overload,) = engine.overloads("q")
    assert overload.shedding.probes_spent <= 400 * 41
    metrics = engine.metrics("q")
    assert sum(metrics["unprobed"].values()) > 0
    assert metrics["budget"]["policy"] == policy
    assert sum(metrics["budget"]["allowances"].values()) >= 399
    assert 0 < results < fed(started(), range(40))


def test_completeness_estimate() -> None:
    exact, engine = started(), started()
    engine.budget(1500)
    fed(exact, range(20))
    fed(engine, range(20))
    share = fed(engine, range(20, 40)) / fed(exact, range(20, 40))
    assert engine.metrics("q")["completeness"] == pytest.approx(share, abs=0.15)
    assert exact.metrics("q")["completeness"] == 1


def test_sufficient_budget_completeness_is_one() -> None:
    engine = started()
    engine.budget(1e7)
    assert fed(engine, range(25)) == fed(started(), range(25))
    assert engine.metrics("q")["completeness"] == 1
    assert engine.metrics("q")["unprobed"] == {}


def measured(*looks: tuple[float, dict[Leaf, tuple[int, int]]]) -> dict[Any, float]:
    """Partners per probe of two streams after samples (window rows, {side: (probes, partners)})."""
    a, b = Leaf("A"), Leaf("B")
    shedding = LoadShedding(JoinPair(a, b), 10, 1, 10.0, None, lambda: None, lambda: False)
    for rows, counts in looks:
        for side, (probes, partners) in counts.items():
            shedding.record_probes(side, probes, partners)
        load = shedding.measure({a: rows, b: rows})
    return {str(side): found for side, found in load.productivity.items()}


def test_selectivity_independent_of_window_fill() -> None:
    """With a budget from the start no row probes once the windows are full."""
    a, b = Leaf("A"), Leaf("B")
    assert measured((10.0, {a: (100, 50), b: (50, 25)}), (90.0, {}), (100.0, {})) == pytest.approx({"A": 5, "B": 5})


def test_selectivity_of_unprobed_direction() -> None:
    """A direction with few probes takes the selectivity of the other one until it has probed."""
    a, b = Leaf("A"), Leaf("B")
    assert measured((100.0, {b: (100, 500)}))["A"] == pytest.approx(5)
    one_way = measured((100.0, {a: (100, 0), b: (100, 500)}))
    assert one_way["A"] < 0.5
    assert one_way["B"] == pytest.approx(5, rel=0.02)


def test_explain_shows_allowances() -> None:
    engine = started()
    assert "probes" not in engine.explain("q")
    engine.budget(300, "equal-hj")
    assert engine.explain("q").count("probes: 75 per second") == 4
    engine.budget(None)
    assert "probes" not in engine.explain("q")
    assert "budget" not in engine.metrics("q")


def test_sampling_seed_is_repeatable() -> None:
    counts = []
    for seed in (1, 1, 2):
        engine = started()
        engine.budget(400, sample=seed)
        counts.append(fed(engine, range(30)))
    assert counts[0] == counts[1] != counts[2]


def test_global_budget_divided_among_queries() -> None:
    """A global budget is divided among the queries and also binds queries added later."""
    engine = started()
    engine.budget(500)
    engine.query("p", "SELECT A.x FROM A [RANGE 5], C [RANGE 5] WHERE A.x = C.x")
    for second in range(30):
        engine.push(tuples(second))
    shares = [engine.metrics(name)["budget"]["mu"] for name in ("p", "q")]
    assert sum(shares) == pytest.approx(500)
    assert shares[0] < shares[1]
    engine.drop("q")
    assert engine.metrics("p")["budget"]["mu"] == 500


def test_query_budget_beside_global_budget() -> None:
    engine = started()
    engine.query("p", "SELECT A.x FROM A [RANGE 5], C [RANGE 5] WHERE A.x = C.x")
    engine.budget(100, query="p")
    assert "budget" not in engine.metrics("q")
    assert engine.metrics("p")["budget"]["mu"] == 100
    engine.budget(300)
    assert [engine.metrics(name)["budget"]["mu"] for name in "pq"] == [150, 150]
    engine.budget(None, query="q")
    assert engine.metrics("p")["budget"]["mu"] == 300
    assert "budget" not in engine.metrics("q")
    engine.budget(None)
    assert "budget" not in engine.metrics("p")


PAIR = "SELECT A.x FROM A [RANGE {0}], C [RANGE {0}] WHERE A.x = C.x"


def shared(*freshness: str) -> ps.Engine:
    """Queries p0, p1, … that share a join, beside q."""
    engine = started()
    for number, fresh in enumerate(freshness):
        engine.query(f"p{number}", PAIR.format(5 + number) + fresh)
    assert engine.metrics("p0")["members"] == len(freshness)
    return engine


def test_query_budget_on_shared_join_with_freshness() -> None:
    """A query's budget binds all queries that share its join if all of them have FRESHNESS."""
    engine = shared(" FRESHNESS A 9", " FRESHNESS C 9")
    engine.budget(100, query="p1")
    assert [engine.metrics(name).get("budget", {}).get("mu") for name in ("q", "p0", "p1")] == [None, 100, 100]
    again = ps.Engine.restore(engine.snapshot())
    assert [again.metrics(name)["budget"]["mu"] for name in ("p0", "p1")] == [100, 100]
    assert budgets_of(engine).dump({"p0"})["single"] == {}
    engine.query("p2", PAIR.format(9))
    assert "budget" not in engine.metrics("p2")
    engine.drop("p1")
    assert engine.metrics("p0")["budget"]["mu"] == 100
    engine.unbind("p0")
    assert "budget" not in engine.metrics("p0")


def test_query_budget_overrides_global_until_unbind() -> None:
    """A query's budget replaces the global one for its join; unbind brings the global one back."""
    engine = shared(" FRESHNESS A 9", " FRESHNESS C 9")
    engine.budget(300)
    engine.budget(100, query="p0")
    assert [engine.metrics(name)["budget"]["mu"] for name in ("q", "p0", "p1")] == [300, 100, 100]
    engine.budget(None, query="p1")
    assert ["budget" in engine.metrics(name) for name in ("q", "p0", "p1")] == [True, False, False]
    engine.unbind("p0")
    assert [engine.metrics(name)["budget"]["mu"] for name in ("q", "p0", "p1")] == [150, 150, 150]


def test_query_budget_refused_without_freshness() -> None:
    """A query's budget is refused if another query without FRESHNESS shares its join."""
    engine = started()
    for name, text in (("p: 1", PAIR.format(5) + " FRESHNESS A 9"), ("of: me", PAIR.format(6))):
        engine.query(name, text)
    with pytest.raises(ps.UnsupportedError, match="shares its join with of: me,") as caught:
        engine.budget(100, query="p: 1")
    assert caught.value.condition == "SHARED_JOIN"
    assert "FRESHNESS" in str(caught.value)
    engine.drop("of: me")
    engine.budget(100, query="p: 1")
    assert engine.metrics("p: 1")["budget"]["mu"] == 100


def test_snapshot_keeps_budgets() -> None:
    engine = started()
    engine.query("p", "SELECT A.x FROM A [RANGE 5], C [RANGE 5] WHERE A.x = C.x")
    engine.budget(300, "jaqpot")
    engine.budget("250 ms", query="p")
    again = ps.Engine.restore(engine.snapshot())
    assert again.metrics("q")["budget"]["policy"] == "jaqpot"
    assert budgets_of(again).dump() == budgets_of(engine).dump()
    again.budget(None)
    assert budgets_of(ps.Engine.restore(again.snapshot())).dump() == {"general": None, "single": {}}


def test_restore_budget_of_shared_join() -> None:
    engine = shared(" FRESHNESS A 9", "")
    engine.budget(100, query="p1")  # the query itself needs no FRESHNESS
    again = ps.Engine.restore(engine.snapshot())
    assert [again.metrics(name)["budget"]["mu"] for name in ("p0", "p1")] == [100, 100]
    assert again.overloads("p0") == again.overloads("p1")


def test_restore_exempt_query_after_changes() -> None:
    """A query exempt from the budget stays exempt after migrate, alter and restore."""
    engine = started()
    engine.query("p", PAIR.format(5))
    engine.budget(300)
    engine.budget(None, query="p")
    engine.migrate("p", "{A C}")
    again = ps.Engine.restore(engine.snapshot())
    assert "budget" not in again.metrics("p")
    again.alter("p", "SELECT COUNT(*) AS n FROM A [RANGE 5], C [RANGE 5] WHERE A.x = C.x")
    assert ps.Engine.restore(again.snapshot()).metrics("q")["budget"]["mu"] == 300


def test_alter_keeps_query_budget_and_windows() -> None:
    engine, exact = started(), started()
    for each in (engine, exact):
        each.query("p", PAIR.format(5))
    engine.budget(1e6, query="p")
    for each in (engine, exact):
        each.push(tuples(0))
        each.alter("p", PAIR.format(4))
    assert engine.metrics("p")["budget"]["mu"] == 1e6
    assert engine.push(tuples(1))["p"].num_rows == exact.push(tuples(1))["p"].num_rows
    with pytest.raises(ps.UnsupportedError, match="BUDGET_WOULD_DISTORT"):
        engine.alter("p", "SELECT COUNT(*) AS n FROM A [RANGE 5], C [RANGE 5] WHERE A.x = C.x")
    assert engine.metrics("p")["budget"]["mu"] == 1e6


def test_alter_with_query_budget_is_not_shared() -> None:
    """An altered query that has its own budget does not share the join of another query."""
    engine = started()
    engine.query("p", PAIR.format(5))
    engine.query("r", "SELECT B.x FROM B [RANGE 5], C [RANGE 5] WHERE B.x = C.x")
    engine.budget(100, query="r")
    engine.alter("r", PAIR.format(6))
    assert "budget" not in engine.metrics("p")
    assert engine.metrics("r")["budget"]["mu"] == 100


def test_alter_releases_budget_of_old_text() -> None:
    engine = started()
    engine.budget(300)
    engine.push(tuples(0))
    engine.alter("q", PAIR.format(5))
    assert engine.metrics("q")["budget"]["mu"] == 300


def test_largest_budget() -> None:
    engine, exact = (started(PAIR.format(9)) for _ in range(2))
    engine.budget(1e308)
    seconds = [tuples(second) for second in range(6)]
    data = {name: pa.concat_tables([each[name] for each in seconds]) for name in "ABC"}
    assert engine.push(data)["q"].num_rows == exact.push(data)["q"].num_rows


def test_analysis_in_a_thread_is_used_before_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are repeatable: an allocation does not depend on when its thread ends."""
    allocate, threads, pauses = join_budget.allocate, [], iter([0.0, 0.02] * 100)

    def record(*args: Any) -> Any:
        threads.append(threading.current_thread().name)
        time.sleep(next(pauses))
        return allocate(*args)

    monkeypatch.setattr(join_budget, "allocate", record)
    runs = []
    for _ in range(2):
        engine = started(CHAIN, state="eager")
        engine.budget(150)
        runs.append([fed(engine, range(start, start + 4)) for start in range(0, 40, 4)])
        assert engine.metrics("q")["budget"]["swaps"] > 0
    assert set(threads) == {"penstock budget"}
    assert runs[0] == runs[1]


@pytest.mark.parametrize("policy", ["jaqpot", "steady", "lp"])
def test_metrics_shortage_of_freshness(policy: str) -> None:
    engine = started(CHAIN + " FRESHNESS A 12", state="eager")
    fed(engine, range(12))
    engine.budget(150 if policy == "jaqpot" else 20, policy)
    fed(engine, range(12, 16))
    assert "freshness of" in engine.metrics("q")["budget"]["shortage"]
    assert "a budget of" in engine.metrics("q")["budget"]["shortage"]


@pytest.mark.parametrize("policy", ["steady", "jaqpot", "grepp", "equal-hj"])
def test_stationary_load_keeps_its_allocation(policy: str) -> None:
    """A new allocation replaces the one in use only if it promises 5 % more results."""
    engine, looks = started(CHAIN, state="eager"), [0]
    engine.budget(300, policy)
    (over,) = engine.overloads("q")
    review = over.review

    def count() -> None:
        looks[0] += 1
        review()

    over.shedding.review = count
    fed(engine, range(60))
    early = engine.metrics("q")["budget"]["swaps"]
    fed(engine, range(60, 100))
    assert looks[0] > 20
    assert engine.metrics("q")["budget"]["swaps"] - early <= 1


# ── time per push ────────────────────────────────────────────────────────────────────────────────────────────────────


class Clock:
    """A clock that advances by a time per probe of query q."""

    def __init__(self, per_probe: float, **options: Any) -> None:
        self.per_probe = per_probe
        self.now, self.spent = 0.0, 0
        self.engine = started(timer=self, **options)

    def __call__(self) -> float:
        spent = sum(overload.shedding.probes_spent for overload in self.engine.overloads("q"))
        self.now += (spent - self.spent) * self.per_probe
        self.spent = spent
        return self.now


@pytest.mark.parametrize("per_probe", [1e-4, 1e-3])
def test_time_budget_converted_to_probes(per_probe: float) -> None:
    clock = Clock(per_probe, batch=40)
    engine = clock.engine
    engine.budget("100 ms")
    taken = []
    for second in range(60):
        before = clock()
        engine.push(tuples(second))
        taken.append(clock() - before)
    assert max(taken[20:]) <= 0.1
    assert np.mean(taken[20:]) >= 0.05
    assert engine.metrics("q")["budget"]["mu"] == pytest.approx(0.08 / per_probe, rel=0.35)


def test_time_budget_margin_for_slow_probes() -> None:
    """With one batch per push nothing stops a running push; the probes of some pushes take twice as long."""
    clock = Clock(1e-4)
    engine = clock.engine
    engine.budget("100 ms")
    rng = np.random.default_rng(1)
    taken = []
    for second in range(120):
        clock.per_probe = float(rng.choice([1e-4, 2e-4]))
        before = clock()
        engine.push(tuples(second))
        taken.append(clock() - before)
    assert max(taken[40:]) <= 0.1
    assert np.mean(taken[40:]) >= 0.03


def test_time_budget_beside_other_work() -> None:
    """Other queries take most of the time of a push, with variance; the rest of the time is for probes."""
    clock = Clock(1e-4)
    engine = clock.engine
    engine.query("other", "SELECT A.x AS low FROM A [RANGE 5]")
    rng = np.random.default_rng(3)
    engine.subscribe("other", lambda _: setattr(clock, "now", clock.now + float(rng.choice([0.04, 0.06, 0.09]))))
    engine.budget(None, query="other")
    engine.budget("100 ms", query="q")
    spent, taken = [], []
    for second in range(120):
        before, probes = clock(), clock.spent
        engine.push(tuples(second))
        taken.append(clock() - before)
        spent.append(clock.spent - probes)
    assert np.mean(spent[40:]) > 80
    assert np.mean(taken[40:]) <= 0.1


def test_time_budget_stops_between_joins() -> None:
    """Probes become fifty times slower; those of the leaves alone use up the time."""
    clock = Clock(1e-5)
    engine = clock.engine
    engine.budget("100 ms")
    fed(engine, range(30))
    unprobed = engine.metrics("q")["unprobed"].get("(A B)", 0)
    clock.per_probe = 5e-4
    engine.push(tuples(30))
    assert engine.metrics("q")["unprobed"]["(A B)"] - unprobed > 0


def test_time_budget_stops_between_blocks_of_matches() -> None:
    """The matches take the time, not the probes: each probe finds a thousand partners, unknown at first."""
    engine = started(PAIR.format(5), timer=lambda: partners_found(engine, "q") * 1e-6)
    engine.budget("500 ms")
    crowd = pa.table({"ts": np.zeros(1000, int), "x": np.zeros(1000, int), "y": np.zeros(1000, int)})
    found = engine.push({"A": crowd, "C": crowd})["q"].num_rows
    assert 400_000 < found < 600_000
    assert sum(engine.metrics("q")["unprobed"].values()) > 0


def test_budget_numeric_types() -> None:
    assert as_budget(np.int64(300), "lp", None).probes == 300
    assert as_budget(np.float32(2.5), "lp", None).probes == 2.5


def test_budget_time_units() -> None:
    assert as_budget("500 ms", "lp", None).seconds == 0.5
    assert as_budget("2 seconds", "lp", None).seconds == 2
    assert as_budget("1 s", "lp", None).seconds == 1


# ── invalid budgets ──────────────────────────────────────────────────────────────────────────────────────────────────

MISTAKES: list[tuple[str, str, Callable[[ps.Engine], Any]]] = [
    ("BAD_BUDGET", "above 0", lambda e: e.budget(-5)),
    ("BAD_BUDGET", "above 0", lambda e: e.budget(0)),
    ("BAD_BUDGET", "nan", lambda e: e.budget(float("nan"))),
    ("BAD_BUDGET", "inf", lambda e: e.budget(float("inf"))),
    ("BAD_BUDGET", "True", lambda e: e.budget(True)),
    ("BAD_BUDGET", "500 ms", lambda e: e.budget("soon")),
    ("BAD_BUDGET", "", lambda e: e.budget("-5 ms")),
    ("BAD_BUDGET", "above 0", lambda e: e.budget("0 ms")),
    ("BAD_BUDGET", "", lambda e: e.budget("5 parsecs")),
    ("BAD_BUDGET", "500 ms", lambda e: e.budget("500 parsecs")),
    ("BAD_BUDGET", "500 ms", lambda e: e.budget("nan ms")),
    ("BAD_BUDGET", "500 ms", lambda e: e.budget("inf ms")),
    ("BAD_BUDGET", "500 ms", lambda e: e.budget("")),
    ("BAD_BUDGET", "500 ms", lambda e: e.budget("300")),
    ("BAD_BUDGET", "above 0", lambda e: e.budget([300])),
    ("BAD_BUDGET", "above 0", lambda e: e.budget(b"500 ms")),
    ("BAD_BUDGET", "above 0", lambda e: e.budget(1 + 2j)),
    ("BAD_BUDGET", "above 0", lambda e: e.budget(10**400)),
    ("BAD_BUDGET", "-5", lambda e: e.budget(-5, query="q")),
    ("UNKNOWN_OPTION", "jaqpot", lambda e: e.budget(300, "greedy")),
    ("UNKNOWN_OPTION", "known", lambda e: e.budget(300, None)),
    ("UNKNOWN_OPTION", "known", lambda e: e.budget(300, ["lp"])),
    ("BAD_SAMPLE", "seed", lambda e: e.budget(300, sample=-1)),
    ("UNKNOWN_QUERY", "running: q", lambda e: e.budget(300, query="nowhere")),
    ("INVALID_FRESHNESS", "shorter", lambda e: e.query("f", CHAIN + " FRESHNESS A 9")),
    ("INVALID_DURATION", "", lambda e: e.query("f", CHAIN + " FRESHNESS A 0")),
    ("UNKNOWN_ALIAS", "D", lambda e: e.query("f", CHAIN + " FRESHNESS D 90")),
]


@pytest.mark.parametrize(("condition", "says", "mistake"), MISTAKES)
def test_invalid_budget_refused_and_old_one_kept(
    condition: str, says: str, mistake: Callable[[ps.Engine], Any]
) -> None:
    engine = started()
    engine.budget(300)
    with pytest.raises(ps.QueryError) as caught:
        mistake(engine)
    assert caught.value.condition == condition
    assert says in str(caught.value)
    assert engine.metrics("q")["budget"]["mu"] == 300


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT COUNT(*) AS n FROM A [RANGE 5], B [RANGE 5] WHERE A.x = B.x", "an aggregate"),
        ("SELECT DISTINCT A.x FROM A [RANGE 5], B [RANGE 5] WHERE A.x = B.x", "DISTINCT"),
        ("SELECT x FROM C [RANGE 5] EXCEPT SELECT A.x FROM A [RANGE 5], B [RANGE 5] WHERE A.x = B.x", "EXCEPT"),
    ],
)
def test_budget_refused_if_it_would_distort_results(text: str, says: str) -> None:
    """A budget is refused where shed rows would make results wrong, not only incomplete."""
    engine = started()
    engine.query("above", text)
    with pytest.raises(ps.UnsupportedError, match=says) as caught:
        engine.budget(300)
    assert caught.value.condition == "BUDGET_WOULD_DISTORT"
    assert "budget" not in engine.metrics("q")
    engine.budget(300, query="q")
    assert engine.metrics("q")["budget"]["mu"] == 300
    engine.drop("above")
    engine.budget(300)
    with pytest.raises(ps.UnsupportedError, match=says):
        engine.query("above", text)
    fed(engine, range(3))
    assert "above" not in engine.push({})


def test_budget_refused_during_migration_to_eddy() -> None:
    engine = started()
    engine.push(tuples(0))
    engine.migrate("q", "{A B C}", how="parallel-track")
    with pytest.raises(ps.UnsupportedError, match="EDDY_WITHOUT_PATHS"):
        engine.budget(300)
    assert fed(engine, range(1, 3)) == fed(started(), range(3)) - fed(started(), range(1))


def test_unbind_refused_for_eddy_stays_exempt() -> None:
    engine = started()
    engine.budget(300)
    engine.budget(None, query="q")
    engine.migrate("q", "{A B C}")
    with pytest.raises(ps.UnsupportedError, match="EDDY_WITHOUT_PATHS"):
        engine.unbind("q")
    assert "budget" not in engine.metrics("q")


def test_budget_refused_for_query_without_join() -> None:
    engine = started()
    engine.query("alone", "SELECT x FROM A WHERE x > 3")
    with pytest.raises(ps.UnsupportedError, match="alone joins nothing") as caught:
        engine.budget(300, query="alone")
    assert caught.value.condition == "NOTHING_TO_BUDGET"
    engine.budget(300)
    assert "budget" not in engine.metrics("alone")


def test_budget_and_derived_streams() -> None:
    """With a budget, derived streams over joins are refused, others are not."""
    engine = started()
    engine.derive("twice", "SELECT A.x * 2 AS x FROM A")
    engine.query("count", "SELECT COUNT(*) AS n FROM twice [RANGE 5]")
    engine.query("both", "SELECT A.x FROM A [RANGE 5], B [RANGE 5] WHERE A.x = B.x UNION ALL SELECT C.x FROM C")
    engine.budget(300)
    assert "budget" in engine.metrics("both")
    with pytest.raises(ps.UnsupportedError, match="derived"):
        engine.derive("pairs", "SELECT A.x FROM A [RANGE 5], B [RANGE 5] WHERE A.x = B.x")


@pytest.mark.parametrize("sides", [1, 2])
def test_completeness_before_the_first_measurement(sides: int) -> None:
    """Long windows are measured late; until then the share of probes tells that results are missing."""
    text = " UNION ALL ".join(["SELECT A.x FROM A [RANGE 3600], B [RANGE 3600] WHERE A.x = B.x"] * sides)
    exact, engine = started(text), started(text)
    engine.budget(12)
    share = fed(engine, range(20)) / fed(exact, range(20))
    assert share < 0.3
    assert engine.metrics("q")["completeness"] == pytest.approx(share, abs=0.1)
    assert exact.metrics("q")["completeness"] == 1


def feed_partners(engine: ps.Engine, seconds: range) -> int:
    """One tuple of each stream a second, all with the same values; returns the number of results."""
    table = pa.table({"ts": list(seconds), "x": [1] * len(seconds), "y": [1] * len(seconds)})
    return engine.push(dict.fromkeys("ABC", table))["q"].num_rows


def test_states_under_a_budget_survive_a_replaced_table() -> None:
    """The states were emptied, and a budget allows no completion: results were lost, however large it was."""
    found = []
    for budget in (None, 1e7):
        engine = started()
        engine.drop("q")
        engine.table("t", {"k": [1], "n": ["old"]})
        text = "SELECT A.ts, B.ts AS b, t.n FROM A [RANGE 10], B [RANGE 10], t WHERE A.x = t.k AND A.y = B.y"
        engine.query("q", text, plan="((A t) B)")
        engine.budget(budget)
        results = feed_partners(engine, range(5))
        engine.table("t", {"k": [1, 1], "n": ["new", "newer"]})
        found.append((results, feed_partners(engine, range(5, 9)) + engine.flush()["q"].num_rows))
    assert found[0] == found[1]


def test_states_under_a_budget_survive_longer_windows() -> None:
    """An altered query needs tuples for longer; the states were emptied as well."""
    found = []
    for budget in (None, 1e7):
        engine = started()
        engine.budget(budget)
        results = feed_partners(engine, range(5))
        engine.alter("q", CHAIN.replace("10", "12"))
        found.append((results, feed_partners(engine, range(5, 9)) + engine.flush()["q"].num_rows))
    assert found[0] == found[1]


# ── states that lack rows when a budget begins, or a plan changes under it ──────────────────────────────────────────


def change_plan(engine: ps.Engine, how: str) -> ps.Engine:
    engine.migrate("q", "(A (B C))", how=how)
    return engine


def change_state(engine: ps.Engine, policy: str) -> ps.Engine:
    engine.policy("q", policy)
    return engine


CHANGES: dict[str, Callable[[ps.Engine], ps.Engine]] = {
    "jisc": lambda engine: change_plan(engine, "jisc"),
    "moving-state": lambda engine: change_plan(engine, "moving-state"),
    "restart": lambda engine: ps.Engine.restore(engine.snapshot()),
    "policy": lambda engine: change_state(change_state(engine, "none"), "auto"),
}


@pytest.mark.parametrize("state", ["eager", "lazy", "jit", "auto", "none"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("theta", [False, True], ids=["equal", "theta"])
def test_ample_budget_after_change(state: str, change: str, theta: bool) -> None:
    """Nothing completed the states that the change emptied until their windows had passed."""
    text = CHAIN.replace("B.y = C.y", "ABS(B.y - C.y) <= 1 AND A.x % 7 = C.x % 7") if theta else CHAIN
    exact, engine = started(text, state="eager"), started(text, state=state)
    engine.migrate("q", "((A B) C)")
    engine.budget(1e7)
    fed(exact, range(8))
    fed(engine, range(8))
    engine = CHANGES[change](engine)
    for second in range(8, 14):
        assert fed(engine, range(second, second + 1)) == fed(exact, range(second, second + 1))
    assert engine.metrics("q")["completeness"] == 1


@pytest.mark.parametrize("state", ["lazy", "jit", "auto", "none"])
def test_budget_begins_with_incomplete_states(state: str) -> None:
    """Gates held rows back, or joins kept none, before the budget: they are completed by probes, not at once."""
    exact, engine = started(state="eager"), started(state=state)
    fed(exact, range(8))
    fed(engine, range(8))
    engine = ps.Engine.restore(engine.snapshot())
    completed = sum(engine.metrics("q")["completed"].values())
    engine.budget(1e7)
    assert sum(engine.metrics("q")["completed"].values()) == completed
    for second in range(8, 14):
        assert fed(engine, range(second, second + 1)) == fed(exact, range(second, second + 1))


def test_completeness_after_migration_under_scarce_budget() -> None:
    """What the states of the new plan lack is part of the estimate, and the budget pays for completing it."""
    exact, engine = started(), started()
    engine.budget(500)
    fed(exact, range(30))
    fed(engine, range(30))
    spent = engine.overloads("q")[0].shedding.probes_spent
    engine.migrate("q", "(A (B C))")
    share = fed(engine, range(30, 36)) / fed(exact, range(30, 36))
    assert engine.metrics("q")["completeness"] == pytest.approx(share, abs=0.2)
    share = fed(engine, range(36, 70)) / fed(exact, range(36, 70))
    assert engine.metrics("q")["completeness"] == pytest.approx(share, abs=0.15)
    assert sum(engine.metrics("q")["completed"].values()) > 0
    assert engine.overloads("q")[0].shedding.probes_spent - spent <= 500 * 42


def test_rows_lost_to_a_budget_are_not_completed_under_it() -> None:
    """Looking up what was shed would cost what the budget saves."""
    engine = started(state="eager")
    engine.budget(60)
    fed(engine, range(30))
    assert not engine.metrics("q")["completed"]
    engine.budget(80)
    fed(engine, range(30, 40))
    assert not engine.metrics("q")["completed"]
    engine.budget(None)
    fed(engine, range(40, 42))
    assert engine.metrics("q")["completed"]


def test_new_plan_probes_within_the_same_second() -> None:
    """The half-way joins of the new plan had no tokens until time passed."""
    found = []
    for budget in (None, 1e7):
        engine = started(batch=1)
        engine.budget(budget)
        results = fed(engine, range(5))
        engine.migrate("q", "(A (B C))")
        found.append((results, engine.push(tuples(4))["q"].num_rows + engine.flush()["q"].num_rows))
    assert found[0] == found[1]
