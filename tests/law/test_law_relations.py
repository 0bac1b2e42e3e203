"""The law over relations: subqueries, WITH, joins of all kinds, set operations, time windows, tops, and final rows.

More seeds: PENSTOCK_SEEDS=5000 PENSTOCK_FIRST_SEED=1000000 pytest -n auto tests/law/test_law_relations.py
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from law_support import BATCHES, CHUNKS, STATES, check_case, list_seeds, run_case

from penstock.testing import Case, difference, expected_by_duckdb
from penstock.testing.case import to_ticks
from penstock.testing.closing_cases import random_closing_case
from penstock.testing.relation_cases import random_relations_case
from penstock.testing.sql_instants import answers_at_instants, replay_changes
from penstock.testing.window_cases import random_windows_case

SCHEDULES = ("dfs", "bfs", "rr")
FAMILIES: dict[str, Callable[[int], Case]] = {
    "relations": random_relations_case,
    "windows": random_windows_case,
    "closing": random_closing_case,
}


def list_cases(family: str, chunk: int) -> Iterator[Case]:
    return map(FAMILIES[family], list_seeds(chunk))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chunk", CHUNKS[::5])
def test_relations_equal_oracle(family: str, chunk: int) -> None:
    for case in list_cases(family, chunk):
        options = {
            "state": STATES[case.seed % len(STATES)],
            "batch": BATCHES[case.seed % len(BATCHES)],
            "schedule": SCHEDULES[case.seed % len(SCHEDULES)],
        }
        check_case(case, options, None)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chunk", CHUNKS[3::5])
def test_relations_oracles_agree(family: str, chunk: int) -> None:
    for case in list_cases(family, chunk):
        answer = expected_by_duckdb(case.query, case.accepted, {}, case.times)
        assert difference(answer, case.expected) is None, f"{case}\n{difference(answer, case.expected)}"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chunk", CHUNKS[1::5])
def test_relations_after_restarts(family: str, chunk: int) -> None:
    for case in list_cases(family, chunk):
        rng = random.Random(case.seed)
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
