"""Runs random cases of the whole language and compares them with the oracles."""

from __future__ import annotations

import random
import re
from typing import Any

import law_support
from law_support import BATCHES, STATES, make_engine

from penstock.state import SHIPPED
from penstock.testing import difference, expected, expected_by_duckdb, random_plan
from penstock.testing.case import to_ticks
from penstock.testing.grammar_cases import GrammarCase, random_grammar_case
from penstock.testing.runner import run_all
from penstock.testing.sql_instants import answers_at_instants, replay_changes

SCHEDULES = ("dfs", "bfs", "rr")


def check_grammar(seed: int) -> None:
    """The query, alone and over declared views, equals the naive oracle; that oracle equals DuckDB at every instant."""
    drawn = random_grammar_case(seed)
    check_run(drawn)
    if law_support.MAINTENANCE is not SHIPPED:
        return  # the oracles were compared with the shipped thresholds
    check_instants(drawn)
    if seed % 5 == 0:
        found = expected_by_duckdb(drawn.case.query, drawn.case.accepted, drawn.case.tables, drawn.case.times)
        fault = difference(found, drawn.case.expected)
        assert fault is None, f"the oracles differ: {drawn}\n{fault}"


def check_run(drawn: GrammarCase) -> None:
    """A run with options, restarts and a reader of views that the seed determines."""
    rng = random.Random(drawn.case.seed)
    options = {
        "state": rng.choice(STATES), "batch": rng.choice(BATCHES), "schedule": rng.choice(SCHEDULES), "warn": False
    }  # fmt: skip
    changes = random.Random(f"changes {drawn.case.seed}")
    often = changes.choice((0, 0, 0.2, 0.5))
    restarts = {rng.randint(0, len(drawn.case.steps)) for _ in range(rng.choice((0, 0, 1, 3)))}

    def act(engine: Any, step: int) -> Any:
        if step == 0 and (drawn.views or drawn.reader != drawn.case.query):
            for name, text in drawn.views.items():
                engine.view(name, text)
            engine.query("reader", drawn.reader)
        if changes.random() < often:
            change_engine(engine, changes)
        return type(engine).restore(engine.snapshot()) if step in restarts else None

    answers = run_all(lambda: make_engine(**options), drawn.case, events=act)
    for name, answer in answers.items():
        fault = difference(answer, drawn.case.expected)
        assert fault is None, f"{name} of {drawn}\n{options} restored before {sorted(restarts)}\n{fault}"


def change_engine(engine: Any, rng: random.Random) -> None:
    """Change the policy, the plan or the slices of a query, or the schedule."""
    name = rng.choice([*engine.queries])
    match rng.choice(("policy", "plan", "schedule", "slices")):
        case "policy":
            engine.policy(name, rng.choice(STATES))
        case "schedule":
            engine.schedule(rng.choice(SCHEDULES))
        case "slices":
            engine.reslice(rng.choice(("mem-opt", "cpu-opt")))
        case _:
            trees = [re.findall(r"[\w+]+", tree) for tree in (engine.queries[name].plan or "").split(";")]
            plan = "; ".join(random_plan(rng, aliases) for aliases in trees if aliases)
            if "(" in plan:
                engine.migrate(name, plan, how=rng.choice(("jisc", "moving-state")))


def check_instants(drawn: GrammarCase) -> None:
    """DuckDB runs the text itself, so that also the binder and the naive oracle are compared."""
    if drawn.instants_text is None:
        return
    case = drawn.case
    wanted = answers_at_instants(drawn.instants_text, case.accepted, case.times, drawn.leaves, case.tables)
    changes = expected(f"{drawn.instants_text} EMIT CHANGES", case.accepted, case.tables, case.times)
    given = replay_changes(changes, wanted, to_ticks)
    wrong = next((at for at in wanted if wanted[at] != given[at]), None)
    assert wrong is None, f"{drawn}\nat {wrong}: DuckDB has {wanted[wrong]}, the oracle {given[wrong]}"
