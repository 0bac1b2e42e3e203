"""The law, on random cases: results depend only on the tuples and the query text.

More seeds: PENSTOCK_SEEDS=5000 PENSTOCK_FIRST_SEED=1000000 pytest -n auto tests/law
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_support import CHUNKS, check_case, list_run_options, list_seeds, sample_run_options

from penstock.testing import random_case


@pytest.mark.parametrize("chunk", CHUNKS)
def test_run_options_match_oracle(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_case(seed)
        for options, plan in sample_run_options(case):
            check_case(case, options, plan)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 12),
    sources=st.integers(1, 4),
    domain=st.sampled_from((1, 2, 3)),
    late=st.booleans(),
)
def test_small_cases(seed: int, rows: int, sources: int, domain: int, late: bool) -> None:
    case = random_case(seed, rows=rows, sources=sources, domain=domain, late=late)
    for options, plan in list_run_options(case):
        check_case(case, options, plan)
