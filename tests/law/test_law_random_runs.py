"""Random runs over every type and operator of an expression: queries over the same streams come and go, with restarts,
migrations, other policies, strategies and slicings, with or without a controller. Every answer is the oracle's.

The streams are small, for the oracle is brute force; larger ones, and more of what can happen, are in tests/storm.
"""

from __future__ import annotations

import pytest
from law_support import CHUNKS, list_seeds
from random_runs import check_run

REGRESSIONS = {
    1243: "tuples held back for older queries were counted by a new one's ROWS window",
}


@pytest.mark.parametrize("seed", REGRESSIONS, ids=list(REGRESSIONS.values()))
def test_earlier_failures(seed: int) -> None:
    check_run(seed)


@pytest.mark.parametrize("chunk", CHUNKS[::4])
def test_random_runs(chunk: int) -> None:
    for seed in list_seeds(chunk):
        check_run(seed)
