"""The law over relations: subqueries, WITH, outer, semi and anti joins, nested, with restarts and migrations.

More seeds: PENSTOCK_SEEDS=5000 PENSTOCK_FIRST_SEED=1000000 pytest -n auto tests/law/test_law_relations.py
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest
from law_support import BATCHES, CHUNKS, STATES, check_case, list_seeds, run_case

from penstock.testing import difference, expected_by_duckdb
from penstock.testing.case import to_ticks
from penstock.testing.relation_cases import random_relations_case
from penstock.testing.sql_instants import answers_at_instants, replay_changes

SCHEDULES = ("dfs", "bfs", "rr")


@pytest.mark.parametrize("chunk", CHUNKS[::2])
def test_relations_equal_oracle(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_relations_case(seed)
        for place in (0, 2):
            options = {
                "state": STATES[(seed + place) % len(STATES)],
                "batch": BATCHES[(seed + place) % len(BATCHES)],
                "schedule": SCHEDULES[seed % len(SCHEDULES)],
            }
            check_case(case, options, None)


@pytest.mark.parametrize("chunk", CHUNKS[::5])
def test_relations_oracles_agree(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_relations_case(seed)
        answer = expected_by_duckdb(case.query, case.accepted, {}, case.times)
        assert difference(answer, case.expected) is None, f"{case}\n{difference(answer, case.expected)}"


@pytest.mark.parametrize("chunk", CHUNKS[::3])
def test_relations_after_restarts(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_relations_case(seed)
        rng = random.Random(seed)
        when = {rng.randint(0, len(case.steps)) for _ in range(rng.randint(1, 4))}

        def restart(current: Any, step: int, when: set[int] = when) -> Any:
            return type(current).restore(current.snapshot()) if step in when else None

        check_case(case, {"state": rng.choice(STATES), "batch": rng.choice(BATCHES)}, None, lambda: restart)


@pytest.mark.parametrize("chunk", CHUNKS[::10])
def test_relations_equal_sql_at_every_instant(chunk: int) -> None:
    """DuckDB runs the text itself, so that also the binder is compared."""
    for seed in list_seeds(chunk):
        check_sql(seed)


def check_sql(seed: int) -> None:
    case = random_relations_case(seed, plain_sql=True)
    text = re.sub(r"^[DR]STREAM \((.*)\)$", r"\1", case.query).removesuffix(" EMIT CHANGES")
    wanted = answers_at_instants(text, case.accepted, case.times)
    case = replace(case, query=f"{text} EMIT CHANGES")
    changes = run_case(case, {"state": STATES[seed % len(STATES)], "batch": BATCHES[seed % len(BATCHES)]}, None)
    given = replay_changes(changes, wanted, to_ticks)
    wrong = next((at for at in wanted if wanted[at] != given[at]), None)
    assert wrong is None, f"{case}\nat {wrong}: {wanted[wrong]}, found {given[wrong]}"


def test_outer_join_of_replaced_group_rows() -> None:
    """A row that replaces another one of its group enters anew, also if no column of it is read."""
    case = random_relations_case(77000002)
    for state in STATES:
        check_case(case, {"state": state, "batch": 3}, None)
