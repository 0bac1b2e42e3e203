"""The one law, fuzzed: the answer depends on the tuples and the query text alone.

More seeds: PENSTOCK_SEEDS=5000 PENSTOCK_FIRST_SEED=1000000 pytest -n auto tests/law
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lawkit import CHUNKS, holds, seeds, some_ways, ways

from penstock.testing import random_case


@pytest.mark.parametrize("chunk", CHUNKS)
def test_every_way_agrees_with_the_oracle(chunk: int) -> None:
    for seed in seeds(chunk):
        case = random_case(seed)
        for options, plan in some_ways(case):
            holds(case, options, plan)


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
    for options, plan in ways(case):
        holds(case, options, plan)
