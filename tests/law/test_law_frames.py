"""The law over functions with OVER: frames of rows and of time, nested, in relations, with restarts.

More seeds: PENSTOCK_SEEDS=5000 PENSTOCK_FIRST_SEED=1000000 pytest -n auto tests/law/test_law_frames.py
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from law_support import BATCHES, CHUNKS, STATES, check_case, list_seeds

from penstock.testing import difference, expected_by_duckdb
from penstock.testing.frame_cases import random_frames_case

SCHEDULES = ("dfs", "bfs", "rr")


@pytest.mark.parametrize("chunk", CHUNKS[::5])
def test_frames_equal_oracles(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_frames_case(seed)
        answer = expected_by_duckdb(case.query, case.accepted, case.tables, case.times)
        assert difference(answer, case.expected) is None, f"{case}\n{difference(answer, case.expected)}"
        options = {
            "state": STATES[seed % len(STATES)],
            "batch": BATCHES[seed % len(BATCHES)],
            "schedule": SCHEDULES[seed % len(SCHEDULES)],
        }
        check_case(case, options, None)


@pytest.mark.parametrize("chunk", CHUNKS[::5])
def test_frames_after_restarts(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_frames_case(seed)
        rng = random.Random(seed)
        when = {rng.randint(0, len(case.steps)) for _ in range(rng.randint(1, 4))}

        def restart(current: Any, step: int, when: set[int] = when) -> Any:
            return type(current).restore(current.snapshot()) if step in when else None

        check_case(case, {"state": rng.choice(STATES), "batch": rng.choice(BATCHES)}, None, lambda: restart)
