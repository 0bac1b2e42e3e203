"""The law over arrays, maps and structs: they pass through windows, joins, frames, views and restarts.

More seeds: PENSTOCK_SEEDS=2000 PENSTOCK_FIRST_SEED=1000000 pytest tests/law/test_law_nested_values.py
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from law_support import BATCHES, CHUNKS, STATES, check_case, list_seeds

from penstock.errors import UnsupportedError
from penstock.testing import difference, expected_by_duckdb
from penstock.testing.nested_cases import random_nested_case


@pytest.mark.parametrize("chunk", CHUNKS[::5])
def test_nested_values_equal_oracles(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_nested_case(seed)
        try:
            answer = expected_by_duckdb(case.query, case.accepted, case.tables, case.times)
        except UnsupportedError:  # DuckDB has other functions of maps
            answer = case.expected
        assert difference(answer, case.expected) is None, f"{case}\n{difference(answer, case.expected)}"
        check_case(case, {"state": STATES[seed % len(STATES)], "batch": BATCHES[seed % len(BATCHES)]}, None)


@pytest.mark.parametrize("chunk", CHUNKS[::5])
def test_nested_values_after_restarts(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_nested_case(seed)
        rng = random.Random(seed)
        when = {rng.randint(0, len(case.steps)) for _ in range(rng.randint(1, 4))}

        def restart(current: Any, step: int, when: set[int] = when) -> Any:
            return type(current).restore(current.snapshot()) if step in when else None

        check_case(case, {"state": rng.choice(STATES), "batch": rng.choice(BATCHES)}, None, lambda: restart)
