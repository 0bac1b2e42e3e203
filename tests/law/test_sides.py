"""Driver and lazy child of a join of two joins: chosen by what is measured, whatever the order of the plan."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import mutants
import numpy as np
import pyarrow as pa
import pytest
from inspect_engine import tree_of

import penstock as ps
from penstock.join import tree as join_tree
from penstock.join.demand import gate_control

AB, CD = "(A B)", "(C D)"
PLANS = (f"({AB} {CD})", f"({CD} {AB})")
ISSUE_COLUMNS = {"A": ["x"], "B": ["x", "k"], "C": ["k", "y"], "D": ["y"]}


def make_chain(plan: str, state: str = "jit", **options: Any) -> ps.Engine:
    """A and B join on x, B and C on k, C and D on y."""
    engine = ps.Engine(state=state, **options)
    for name, columns in ISSUE_COLUMNS.items():
        engine.stream(name, dict.fromkeys(("ts", *columns), "bigint"), time="ts")
    where = "A.x = B.x AND B.k = C.k AND C.y = D.y"
    engine.query("q", f"SELECT A.ts AS a, D.ts AS d FROM A, B, C, D WHERE {where} WINDOW 1000", plan=plan)
    return engine


def rows(name: str, time: int, *values: tuple[int, ...]) -> dict[str, pa.Table]:
    columns = dict(zip(ISSUE_COLUMNS[name], zip(*values, strict=True), strict=True))
    return {name: pa.table({"ts": [time] * len(values), **{key: list(part) for key, part in columns.items()}})}


def push(engine: ps.Engine, time: int, tables: dict[str, pa.Table]) -> int:
    results = engine.push(tables)["q"].num_rows
    for name in ISSUE_COLUMNS:
        engine.advance(name, time + 1)
    return results + engine.push({})["q"].num_rows


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("pushes", [1, 20])
def test_futile_rows_do_not_depend_on_plan_text(plan: str, pushes: int) -> None:
    """200 tuples of A and of B match each other and there is none of C and D: 40,000 rows that no result uses."""
    engine = make_chain(plan)
    for part in range(pushes):
        each = 200 // pushes
        one = rows("A", part, *[(1,)] * each) | rows(
            "B", part, *[(1, k) for k in range(part * each, (part + 1) * each)]
        )
        push(engine, part, one)
    assert engine.metrics("q")["built"][AB] <= 200 // pushes * 200 // pushes * (pushes > 1)
    assert engine.metrics("q")["drivers"] == {AB: CD}
    assert push(engine, pushes, rows("C", pushes, (7, 5)) | rows("D", pushes, (5,))) == 200
    assert engine.metrics("q")["resumed"][AB] == 200


@pytest.mark.parametrize("plan", PLANS)
def test_sides_change_while_running(plan: str) -> None:
    """First (A B) has many rows and (C D) few, later the other way round."""
    engine = make_chain(plan)
    rng, drivers = np.random.default_rng(7), []
    for part in range(40):
        many, few = 5, 500
        xs, ys = (many, few) if part < 20 else (few, many)
        time = 75 * part
        keys = rng.integers(0, 10_000, (2, 75)).tolist()
        x, y = ((rng.integers(0, top, (2, 75))).tolist() for top in (xs, ys))
        tables = rows("A", time, *zip(x[0])) | rows("B", time, *zip(x[1], keys[0], strict=True))
        tables |= rows("C", time, *zip(keys[1], y[0], strict=True)) | rows("D", time, *zip(y[1]))
        push(engine, time, tables)
        drivers.append(next(iter(engine.metrics("q")["drivers"].values())))
    assert drivers[19] == CD
    assert drivers[39] == AB
    assert sum(one != other for one, other in pairwise(drivers)) <= 2
    assert f"keys that {AB} demands" in engine.explain("q")
    restored = ps.Engine.restore(engine.snapshot())
    assert restored.metrics("q")["drivers"] == {CD: AB}


def test_policy_of_left_node_gates_it() -> None:
    engine = make_chain(PLANS[0], state="eager")
    engine.policy("q", "jit", node=AB)
    assert engine.metrics("q")["drivers"] == {AB: CD}


def run_swap_over_held_back_rows(monkeypatch: pytest.MonkeyPatch) -> int:
    """A row of (C D) is held back, then (C D) becomes the driver, then a row of (A B) needs it."""
    monkeypatch.setitem(join_tree.POLICIES, "jit", join_tree.StatePolicy(lazy=True, gated="always", pace=0.0))
    engine = make_chain(PLANS[0])
    push(engine, 1, rows("A", 1, (1,)) | rows("B", 1, (1, 1)) | rows("C", 1, (2, 5)) | rows("D", 1, (5,)))
    tree_of(engine).swap_sides(frozenset("ABCD"))
    return push(engine, 2, rows("B", 2, (1, 2)))


def run_swap_over_inner_gate(monkeypatch: pytest.MonkeyPatch) -> int:
    """The same where a gate below the new driver held rows back, because their partner E was not demanded."""
    monkeypatch.setitem(join_tree.POLICIES, "jit", join_tree.StatePolicy(lazy=True, gated="always", pace=0.0))
    columns = {"A": ["x", "e"], "B": ["x"], "C": ["y"], "D": ["y", "z"], "E": ["e", "z"]}
    engine = ps.Engine(state="jit")
    for name, given in columns.items():
        engine.stream(name, dict.fromkeys(("ts", *given), "bigint"), time="ts")
    where = "A.x = B.x AND A.e = E.e AND E.z = D.z AND C.y = D.y"
    engine.query("q", f"SELECT A.ts FROM A, B, C, D, E WHERE {where} WINDOW 1000", plan="((A B) ((C D) E))")
    first = {"A": (1, 1), "B": (1,), "C": (3,), "D": (3, 7), "E": (9, 7)}
    results = 0
    for time, tuples in ((1, first), (2, {"A": (1, 9)})):
        table = {
            name: pa.table({"ts": [time], **{key: [value] for key, value in zip(columns[name], values, strict=True)}})
            for name, values in tuples.items()
        }
        results += engine.push(table)["q"].num_rows
        for name in columns:
            engine.advance(name, time + 1)
        results += engine.push({})["q"].num_rows
        if time == 1:
            tree_of(engine).swap_sides(frozenset("ABCDE"))
    return results + engine.flush()["q"].num_rows


def test_mutant_swap_over_held_back_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_swap_over_held_back_rows(monkeypatch) == 1
    mutants.swap_sides_over_held_back_rows(monkeypatch)
    assert run_swap_over_held_back_rows(monkeypatch) == 0


def test_mutant_keep_demand_below_new_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_swap_over_inner_gate(monkeypatch) == 1
    mutants.keep_demand_below_new_driver(monkeypatch)
    assert run_swap_over_inner_gate(monkeypatch) == 0


def count_results_around_free_choice(state: str) -> int:
    """(B C) has no key and lacks rows of before a restart when sides are chosen, in a batch with new b and c."""
    columns = {"A": ["x"], "B": ["y"], "C": ["y", "z"], "D": ["x", "u"], "E": ["u", "z"]}
    engine = ps.Engine(state=state)
    for name, given in columns.items():
        engine.stream(name, dict.fromkeys(("ts", *given), "bigint"), time="ts")
    where = "A.x = D.x AND B.y = C.y AND C.z = E.z AND D.u = E.u"
    engine.query("q", f"SELECT A.ts FROM A, B, C, D, E WHERE {where} WINDOW 1000", plan="((A (B C)) (D E))")
    results = 0
    for time, names in enumerate(("BC", "B", "ABCDE")):
        results += engine.push({name: {"ts": [time], **{key: [0] for key in columns[name]}} for name in names})[
            "q"
        ].num_rows
        for name in columns:
            engine.advance(name, time + 1)
        results += engine.push({})["q"].num_rows
        engine = ps.Engine.restore(engine.snapshot()) if time == 0 else engine
    return results


def test_samples_at_the_begin_of_a_batch_store_no_new_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample of a gate completed a state with rows of the batch, which then stored them a second time."""
    monkeypatch.setitem(join_tree.POLICIES, "auto", replace(join_tree.POLICIES["auto"], pace=0.0))
    monkeypatch.setattr(gate_control, "may_pay_off", lambda _work: True)
    monkeypatch.setattr(gate_control, "pays_off", lambda *_args, **_options: False)  # gates stay open
    assert count_results_around_free_choice("eager") == 6
    assert count_results_around_free_choice("auto") == 6
