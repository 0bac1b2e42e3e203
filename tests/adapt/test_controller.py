"""The controller: what it proposes, when it acts, and that its actions change no result."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from injected_errors import fail_at
from inspect_engine import (
    budgets_of,
    controller_of,
    decision_thread_of,
    deliver_decisions,
    joins_of,
    queries_with_own_budget,
)

import penstock as ps
from penstock.adapt import (
    AddQuery,
    AdvanceStream,
    AlterQuery,
    Begin,
    Command,
    Decision,
    DeriveStream,
    DropQuery,
    EndStreams,
    JoinSample,
    Migrate,
    PushStats,
    QueryCommand,
    Rules,
    SetBudget,
    SetPolicy,
    SetSchedule,
    ShedLoad,
    decode_command,
    encode_command,
)
from penstock.adapt.commands import Reslice
from penstock.adapt.decide import (
    DecisionHistory,
    decide,
    propose_budget,
    propose_join_order,
    propose_slices,
    propose_state_policy,
)
from penstock.adapt.monitor import Observation, SliceSample, observe
from penstock.expr import Column
from penstock.plan import (
    EqualityClass,
    JoinGraph,
    Rates,
    SharedWindows,
    SliceChain,
    Statistics,
    estimate_state_rows,
    parse_tree,
)

CHAIN = "SELECT A.x, B.y FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.x = B.x AND B.y = C.y"
EAGER = Rules(wait=True, effort=1.0, least=100.0)


def graph(*classes: str) -> JoinGraph:
    """A join graph with one equality class per word; each letter is an alias."""
    found = [
        EqualityClass(id_, tuple((alias, Column(alias, "x", pa.int64())) for alias in word))
        for id_, word in enumerate(classes)
    ]
    return JoinGraph(tuple(sorted({*"".join(classes)})), tuple(found), (), ())


def seen(tree: str, pairs: dict[str, float], time: float = 100.0, **changes: Any) -> Observation:
    """Streams of 100 tuples a second over windows of 10 seconds; `pairs` are the fractions of pairs that match."""
    joined = graph(*pairs)
    names = {alias: alias for alias in joined.aliases}
    sample = JoinSample(
        join="j",
        query="q",
        names=names,
        shapes=(tree,),
        join_index=0,
        time=time,
        horizon=10.0,
        graph=joined,
        tree=parse_tree(tree, joined.aliases),
        state="auto",
        codes={},
        rates=dict.fromkeys(names, 100.0),
        rows=dict.fromkeys(names, 1000.0),
        state_rows=0,
        push_stats=PushStats(10, 1.0, 10.0),
        join_count=1,
        sheddable=False,
        has_own_budget=False,
        demand_ratio=None,
    )
    counts = {frozenset(pair): (part * 1e6, 1e6) for pair, part in pairs.items()}
    return Observation(replace(sample, **changes), counts)


SWAPPED = {"AB": 1e-1, "BC": 1e-4}
"""B finds few partners in C and many in A."""


def test_state_rows_measured_pairs_match_uniform_keys() -> None:
    clique, names = graph("ABC"), frozenset("ABC")
    rows, rates = dict.fromkeys("ABC", 1000.0), dict.fromkeys("ABC", 1.0)
    assumed = Statistics(rates, rows, {0: 50.0})
    pairs = {frozenset(pair): 1 / 50 for pair in ("AB", "BC", "AC")}
    assert estimate_state_rows(names, clique, Statistics(rates, rows, {}, pairs)) == pytest.approx(
        estimate_state_rows(names, clique, assumed)
    )
    cycle = graph("AB", "BC", "AC")
    assert estimate_state_rows(names, cycle, Statistics(rates, rows, {}, pairs)) == pytest.approx(1e9 / 50**3)


def test_pair_counts_decay_over_samples() -> None:
    """Codes of a sample are compared, and the counts of earlier samples lose weight."""
    base = seen("((A B) C)", SWAPPED).sample
    codes = {"A": {0: np.array([1, 1, 2])}, "B": {0: np.array([1, 5]), 1: np.array([7, 7])}, "C": {1: np.array([7])}}
    first = observe(replace(base, codes=codes), None)
    assert first.pairs == {frozenset("AB"): (2.0, 6.0), frozenset("BC"): (2.0, 2.0)}
    again = observe(replace(base, codes=codes), first)
    assert again.pairs[frozenset("AB")] == (2.5, 7.5)


def test_pair_counts_reset_on_significant_change() -> None:
    """A change of selectivity beyond chance discards the earlier counts at once."""
    base = seen("(A B)", {"AB": 0.1}).sample

    def looked(values: int, earlier: Observation | None, seed: int) -> Observation:
        rng = np.random.default_rng(seed)
        return observe(replace(base, codes={name: {0: rng.integers(0, values, 1024)} for name in "AB"}), earlier)

    def part(found: Observation) -> float:
        agreed, compared = found.pairs[frozenset("AB")]
        return agreed / compared

    steady = looked(100, looked(100, None, 1), 2)
    assert part(steady) == pytest.approx(1 / 100, rel=0.1)
    assert steady.pairs[frozenset("AB")][1] > 1024**2  # both samples count
    assert part(looked(1_000_000, steady, 3)) < 1e-5
    assert part(looked(2, steady, 4)) == pytest.approx(1 / 2, rel=0.01)


def test_pair_counts_require_all_classes_equal() -> None:
    base = seen("(A B)", {"AB": 0.1}).sample
    codes = {"A": {0: np.array([1, 2]), 1: np.array([1, 2])}, "B": {0: np.array([1, 2]), 1: np.array([2, 2])}}
    assert observe(replace(base, codes=codes), None).pairs == {frozenset("AB"): (1.0, 4.0)}


def test_join_order_proposes_cheaper_tree() -> None:
    found = propose_join_order(seen("((A B) C)", SWAPPED), DecisionHistory(), Rules())
    assert found is not None
    assert found.command.value == "(A (B C))"
    assert found.numbers["cost"] > 1.25 * found.numbers["proposed"]
    assert propose_join_order(seen("(A (B C))", SWAPPED), DecisionHistory(), Rules()) is None


def test_join_order_keeps_other_joins_of_query() -> None:
    found = propose_join_order(
        seen("((A B) C)", SWAPPED, shapes=("(X Y)", "((A B) C)"), join_index=1), DecisionHistory(), Rules()
    )
    assert found is not None
    assert found.command.value == "(X Y); (A (B C))"


@pytest.mark.parametrize("rules", [Rules(margin=1e4), Rules(least=1e9)])
def test_join_order_gain_below_threshold(rules: Rules) -> None:
    assert propose_join_order(seen("((A B) C)", SWAPPED), DecisionHistory(), rules) is None


def test_join_order_none_for_eddy_or_two_streams() -> None:
    assert propose_join_order(seen("{A B C}", SWAPPED), DecisionHistory(), Rules()) is None
    assert propose_join_order(seen("(A B)", {"AB": 0.5}), DecisionHistory(), Rules()) is None


def test_join_order_greedy_for_many_streams() -> None:
    """With more than ten streams the search is greedy; it still finds the selective pair."""
    pairs = {"ABCDEFGHIJKL"[at : at + 2]: 1e-2 for at in range(11)} | {"KL": 1e-6}
    tree = "A"
    for alias in "BCDEFGHIJKL":
        tree = f"({tree} {alias})"
    found = propose_join_order(seen(tree, pairs), DecisionHistory(), Rules())
    assert found is not None
    assert "(K L)" in str(found.command.value)


def test_state_policy_proposes_auto() -> None:
    """The auto policy is proposed only where the fixed one costs more."""
    sparse, dense = {"AB": 1e-1, "BC": 1e-6}, {"AB": 1e-3, "BC": 1.0}

    def asked(state: str, pairs: dict[str, float]) -> str | None:
        found = propose_state_policy(seen("((A B) C)", pairs, state=state), DecisionHistory(), Rules())
        return None if found is None else found.command.value

    assert [asked(state, sparse) for state in ("eager", "lazy", "jit", "auto", "none")] == ["auto", "auto"] + [None] * 3
    assert [asked(state, dense) for state in ("eager", "lazy", "jit", "auto", "none")] == [None, None, "auto"] + [
        None
    ] * 2


def test_budget_set_on_overload_and_lifted_after() -> None:
    late = PushStats(pushes=10, seconds=30.0, event_seconds=10.0)
    calm = PushStats(pushes=10, seconds=1.0, event_seconds=10.0)

    def asked(limit: float | None, **changes: Any) -> tuple[bool, str | None]:
        found = propose_budget(seen("((A B) C)", SWAPPED, **changes), DecisionHistory(budget_limit=limit), Rules())
        return found is not None, None if found is None else found.command.value

    assert asked(None, push_stats=late, sheddable=True) == (True, "1000 ms")
    assert asked(None, push_stats=late, sheddable=True, join_count=4) == (True, "1000 ms")  # the whole push is timed
    assert asked(None, push_stats=late) == (False, None)
    assert asked(None, push_stats=calm, sheddable=True) == (False, None)
    assert asked(1000.0, push_stats=calm, has_own_budget=True, demand_ratio=0.8) == (False, None)
    assert asked(1000.0, push_stats=calm, has_own_budget=True, demand_ratio=0.5) == (True, None)
    assert asked(1000.0, push_stats=late, has_own_budget=True, demand_ratio=0.5) == (False, None)
    assert asked(500.0, push_stats=calm, has_own_budget=True, demand_ratio=0.8) == (True, "1000 ms")


def test_budget_on_heavy_overload_without_confirmation() -> None:
    def first_look(seconds: float) -> list[Decision]:
        late = seen("(A B)", {"AB": 1e-6}, push_stats=PushStats(10, seconds, 10.0), sheddable=True)
        return decide(late, DecisionHistory(), Rules())[1]

    assert first_look(15.0) == []
    assert [decision.command for decision in first_look(25.0)] == [ShedLoad("q", "1000 ms")]


def test_budget_waits_for_pending_migration() -> None:
    """A better plan is tried before load is shed."""
    late = seen("((A B) C)", SWAPPED, push_stats=PushStats(10, 30.0, 10.0), sheddable=True)
    assert propose_budget(late, DecisionHistory(), Rules()) is not None
    assert propose_budget(late, DecisionHistory(proposal_counts={("j", "migrate"): 1}), Rules()) is None
    assert propose_budget(late, DecisionHistory(last_decided={"migrate": 95.0}), Rules()) is None
    assert propose_budget(late, DecisionHistory(last_decided={"migrate": 85.0}), Rules()) is not None


def sliced(chain: SliceChain, wanted: float, rate: float) -> str | None:
    """The proposal for windows of 1 to 30 seconds; all queries but the first need the fraction `wanted` of tuples."""
    windows = SharedWindows(tuple(map(float, range(1, 31))), (1.0, *[wanted] * 29))
    known = SliceSample(chain or windows.ends, windows, Rates(rate, rate, 0.01))
    found = propose_slices(seen("(A B)", {"AB": 0.5}, slices=known), DecisionHistory(), Rules(least=100))
    return None if found is None else found.command.value


def test_slices_merged_when_cheaper() -> None:
    """At low rates a slice costs more than the comparisons it saves; at high rates the comparisons dominate."""
    assert [sliced((), wanted, 2.0) for wanted in (1.0, 0.5)] == ["cpu-opt", "cpu-opt"]
    assert [sliced((), wanted, 1000.0) for wanted in (1.0, 0.1)] == [None, None]
    assert propose_slices(seen("(A B)", {"AB": 0.5}), DecisionHistory(), Rules()) is None


def test_slices_split_when_memory_cost_dominates() -> None:
    """A single slice stays as long as the rate is low or the queries need all tuples."""
    assert [sliced((30.0,), wanted, 2.0) for wanted in (1.0, 0.5)] == [None, None]
    assert sliced((30.0,), 1.0, 1000.0) is None
    assert sliced((30.0,), 0.1, 1000.0) == "mem-opt"


# ── when it acts ─────────────────────────────────────────────────────────────────────────────────────────────────


def acts(trees: Iterator[tuple[str, dict[str, float]]], rules: Rules, every: float = 2.5) -> list[Decision]:
    """The decisions for a series of observations; each observation has the plan decided before."""
    memory, plan, found = DecisionHistory(), "((A B) C)", []
    for at, (_, pairs) in enumerate(trees):
        memory, decisions = decide(seen(plan, pairs, time=at * every), memory, rules)
        for decision in decisions:
            plan = str(decision.command.value)
        found += decisions
    return found


def test_decisions_oscillating_statistics() -> None:
    other = {"AB": 1e-4, "BC": 1e-1}
    series = [("", SWAPPED if at % 2 else other) for at in range(200)]
    assert acts(iter(series), Rules()) == []


def test_decisions_slow_oscillation_rate_limited() -> None:
    """A slow oscillation is followed at most once per window and within the per-minute limit."""
    other = {"AB": 1e-4, "BC": 1e-1}
    series = [("", SWAPPED if at // 3 % 2 else other) for at in range(240)]  # faster than the window of 10 s
    found = acts(iter(series), Rules())
    times = [decision.time for decision in found]
    assert found
    assert all(later - earlier >= 10 for earlier, later in pairwise(times))
    hurried = acts(iter(series), Rules(cool_down=0, confirm=1, per_minute=3))
    assert all(sum(0 <= time - begin < 60 for time in [d.time for d in hurried]) <= 3 for begin in range(600))


def test_decisions_lasting_change_acted_once() -> None:
    (only,) = acts(iter([("", SWAPPED)] * 100), Rules())
    assert only.command == Migrate("q", "(A (B C))")
    assert only.time == 2.5  # the second look


# ── in an engine ─────────────────────────────────────────────────────────────────────────────────────────────────


def started(text: str = CHAIN, **options: Any) -> ps.Engine:
    engine = ps.Engine(**options)
    for name in "ABC":
        engine.stream(name, {"ts": "bigint", "x": "bigint", "y": "bigint"}, time="ts")
    engine.query("q", text, plan="((A B) C)")
    return engine


def tuples(second: int, rate: int = 20) -> dict[str, pa.Table]:
    """Until second 30 x is the selective key, from then on y."""
    rng = np.random.default_rng(second)
    x, y = (600, 6) if second < 30 else (6, 600)
    ts = np.full(rate, second)
    return {name: pa.table({"ts": ts, "x": rng.integers(0, x, rate), "y": rng.integers(0, y, rate)}) for name in "ABC"}


def answers(engine: ps.Engine, seconds: range = range(100)) -> list[Any]:
    pushed = [engine.push(tuples(second))["q"] for second in seconds]
    return [sorted(table.to_pylist(), key=str) for table in (*pushed, engine.flush()["q"])]


def test_adapt_migrates_and_keeps_results() -> None:
    engine = started(adapt=EAGER)
    assert answers(engine) == answers(started())
    (decision,) = engine.decisions()
    assert decision.command == Migrate("q", "(A (B C))")
    assert engine.metrics("q")["plan"] == "(A (B C))"
    assert decision.push is not None
    assert decision.push > 30


def test_replay_repeats_decisions_at_same_pushes() -> None:
    engine, twin = started(adapt=EAGER), started()
    expected = answers(engine)
    twin.replay(engine.decisions())
    assert answers(twin) == expected
    assert twin.decisions() == engine.decisions()
    assert twin.metrics("q")["built"] == engine.metrics("q")["built"]


def test_adapt_decides_policy() -> None:
    engine = started(state="jit", adapt=EAGER)
    assert answers(engine) == answers(started())
    assert [d.command.do for d in engine.decisions()].count("policy") == 1
    assert engine.metrics("q")["state"] == "auto"


def test_adapt_sheds_overload_with_freshness() -> None:
    """Overload is shed for a query with FRESHNESS, and the budget is lifted afterwards."""
    clock = Ticking()
    engine = started(f"{CHAIN} FRESHNESS A 20", adapt=EAGER, timer=clock)
    exact = started()
    for second in range(160):
        clock.step = 5.0 if 40 <= second < 80 else 0.01
        ours, all_ = (each.push(tuples(second))["q"].num_rows for each in (engine, exact))
        assert ours <= all_
        if second < 40:
            assert ours == all_
    budgets = [d for d in engine.decisions() if d.command.do == "budget"]
    assert [d.command.value for d in budgets] == ["1000 ms", None]
    assert [d.error for d in budgets] == [None, None]
    assert 40 < budgets[0].push < 80 < budgets[1].push
    assert "budget" not in engine.metrics("q")


class Ticking:
    """A clock that advances by a step at each call."""

    now = step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_adapt_sheds_shared_join_with_freshness() -> None:
    """A shared join is bound by a budget if every query that shares it has FRESHNESS."""
    clock = Ticking()
    engine = started(f"{CHAIN} FRESHNESS A 20", adapt=EAGER, timer=clock)
    engine.query("p", f"{CHAIN.replace('RANGE 20', 'RANGE 10')} FRESHNESS B 20")
    assert engine.metrics("q")["members"] == 2
    for second in range(160):
        clock.step = 5.0 if 40 <= second < 80 else 0.01
        engine.push(tuples(second))
        if second == 85:
            assert queries_with_own_budget(engine) == {"p", "q"}
            assert budgets_of(ps.Engine.restore(engine.snapshot())).dump()["single"] == {}
    budgets = [d for d in engine.decisions() if d.command.do == "budget"]
    assert [(d.command.value, d.error) for d in budgets] == [("1000 ms", None), (None, None)]
    assert queries_with_own_budget(engine) == set()


def crowd(**options: Any) -> ps.Engine:
    """Twelve queries that share a join; only the one with the shortest window needs most tuples."""
    engine = ps.Engine(**options)
    for name in "AB":
        engine.stream(name, {"ts": "bigint", "x": "bigint"}, time="ts")
    for window in range(1, 13):
        text = f"SELECT A.x FROM A [RANGE {window}], B [RANGE {window}] WHERE A.x = B.x"
        text += f" AND A.x > {1 if window == 1 else 36} AND A.x < {60 + window}"
        engine.query(f"q{window}", text)
    return engine


def crowded(engine: ps.Engine) -> list[Any]:
    """The number of results per push and query; the rate rises at second 40."""
    rng = np.random.default_rng(1)
    found = []
    for second in range(90):
        rows = 2 if second < 40 else 100
        push = {name: pa.table({"ts": np.full(rows, second), "x": rng.integers(0, 40, rows)}) for name in "AB"}
        found.append({name: table.num_rows for name, table in engine.push(push).items()})
    return found


def slice_ends(engine: ps.Engine) -> list[tuple[int, ...]]:
    return [join.shared_join.slice_ends for join in joins_of(engine)]


def test_adapt_reslices_with_rates_and_replay() -> None:
    engine, twin = crowd(adapt=replace(EAGER, least=10.0)), crowd()
    expected = crowded(crowd())
    assert crowded(engine) == expected
    made = [decision.command.value for decision in engine.decisions() if decision.command.do == "reslice"]
    assert made == ["cpu-opt"]
    assert slice_ends(engine) == [(1, 12)]  # a slice ends only where a query lets tuples go
    assert [decision.error for decision in engine.decisions() if decision.error] == []
    twin.replay(engine.decisions())
    assert crowded(twin) == expected
    assert slice_ends(twin) == slice_ends(engine)


def test_snapshot_keeps_adaptation() -> None:
    engine = started(adapt=EAGER)
    for second in range(35):
        engine.push(tuples(second))
    again = ps.Engine.restore(engine.snapshot())
    assert controller_of(again).rules == EAGER
    assert answers(again, range(35, 100)) == answers(engine, range(35, 100))
    assert [d.command.do for d in again.decisions()] == ["migrate"]
    assert again.decisions()[0].push > 35
    assert controller_of(ps.Engine.restore(started().snapshot())) is None


def test_analysis_error_recorded_as_failed_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in sampling or analysis is a failed decision and changes no result."""
    for point in ("decide", "sample join"):
        with monkeypatch.context() as patch:
            fail_at(point, RuntimeError("no way"), patch)
            engine = started(adapt=EAGER)
            assert answers(engine, range(40)) == answers(started(), range(40))
        found = engine.decisions()
        assert found
        assert all(d.command is None and d.error == "RuntimeError: no way" for d in found)


def test_command_for_dropped_query_fails() -> None:
    engine = started(adapt=EAGER)
    decisions = [Decision(Migrate("gone", "(A B)"), 0.0, {})]
    deliver_decisions(engine, decisions)
    engine.push(tuples(0))
    assert "UNKNOWN_QUERY" in str(engine.decisions()[0].error) or "no query gone" in str(engine.decisions()[0].error)
    twin = started()
    twin.replay(engine.decisions())
    assert answers(twin, range(5)) == answers(started(), range(5))
    assert twin.decisions() == []


@pytest.mark.parametrize("end", [lambda engine: engine.close(), lambda _: None])
def test_decision_thread_ends_with_engine(end: Callable[[ps.Engine], None]) -> None:
    engine = started(adapt=EAGER)
    for second in range(40):
        engine.push(tuples(second))
    thread, gone = decision_thread_of(engine), weakref.ref(engine)
    assert isinstance(thread, threading.Thread)
    assert thread.daemon
    end(engine)
    if thread.is_alive():
        del engine
        gc.collect()
        assert gone() is None
    thread.join(300)
    assert not thread.is_alive()


def test_closed_engine_runs_without_adaptation() -> None:
    engine = started(adapt=EAGER)
    engine.close()
    engine.close()
    assert answers(engine) == answers(started())
    assert engine.decisions() == []
    started().close()


EVERY_COMMAND: tuple[Command, ...] = (
    AddQuery("q", "SELECT A.x FROM A", None, "jit"), DeriveStream("q", "SELECT A.x FROM A"), DropQuery("q"),
    AlterQuery("q", "SELECT A.y FROM A", "(A)"),
    Migrate("q", "(A B)"), SetPolicy("q", "jit"), ShedLoad("q", None), SetBudget("5 ms", "lp", "q", 3),
    SetSchedule("bfs", "q"), Reslice("cpu-opt", "q"), Begin(), AdvanceStream("A", 5), EndStreams(),
)  # fmt: skip


def test_command_json_round_trip() -> None:
    assert {type(command) for command in EVERY_COMMAND} == set(get_args(Command))
    for command in EVERY_COMMAND:
        key, arguments = json.loads(json.dumps(encode_command(command)))
        assert decode_command(key, arguments) == command
    for key, arguments in (("erase", {}), ("drop", {}), ("drop", {"name": "q", "plan": "(A B)"})):
        with pytest.raises(ps.QueryError, match="BAD_COMMAND"):
            decode_command(key, arguments)


def test_commands_apply_to_an_engine() -> None:
    engine = started()
    text = "SELECT A.x FROM A [RANGE 5], B [RANGE 5] WHERE A.x = B.x"
    for command in (
        AddQuery("new", text), DeriveStream("some", "SELECT A.x FROM A WHERE A.x > 1"), SetSchedule("bfs"),
        SetPolicy("new", "eager"), Migrate("new", "(B A)"), Reslice("cpu-opt"), SetBudget(100.0), SetBudget(None),
        ShedLoad("new", None), AlterQuery("new", text + " AND A.x > 5", "(B A)"),
    ):  # fmt: skip
        command.check()
        command.apply(engine)
    assert "plan (B A)" in engine.explain("new")
    DropQuery("new").apply(engine)
    with pytest.raises(ps.QueryError, match="UNKNOWN_QUERY"):
        engine.explain("new")


@pytest.mark.parametrize(
    ("command", "condition"),
    [
        (AddQuery("", "SELECT"), "BAD_NAME"),
        (DeriveStream(7, "SELECT"), "BAD_NAME"),  # type: ignore[arg-type]
        (SetPolicy("q", "warm"), "unknown state policy"),
        (SetBudget(-1.0), "BAD_BUDGET"),
        (SetBudget(5.0, sample=-1), "BAD_SAMPLE"),
        (Reslice("thin"), "unknown slicing"),  # type: ignore[arg-type]
    ],
)
def test_wrong_commands_refused(command: QueryCommand, condition: str) -> None:
    with pytest.raises(ps.QueryError, match=condition):
        command.check()


BAD_RULES: list[dict[str, Any]] = [
    {"margin": -1}, {"least": "many"}, {"confirm": 0}, {"confirm": 1.5}, {"per_minute": True}, {"speed": 0},
    {"effort": 2}, {"full": float("nan")}, {"wait": 1}, {"idle": 0}, {"cool_down": float("inf")},
]  # fmt: skip


@pytest.mark.parametrize("options", BAD_RULES)
def test_invalid_rules_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ps.QueryError, match="rules of adaptation"):
        Rules(**options)


def test_invalid_adapt_arguments_refused() -> None:
    with pytest.raises(ps.QueryError, match="adapt is True, False or Rules"):
        ps.Engine(adapt="yes")
    with pytest.raises(ps.QueryError, match="makes its own decisions"):
        ps.Engine(adapt=True).replay([])
    with pytest.raises(ps.QueryError, match="replay takes what"):
        ps.Engine().replay(["migrate"])
