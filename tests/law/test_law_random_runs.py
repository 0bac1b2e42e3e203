"""The law on random runs over every type and operator of an expression, with and without a controller.

Queries over the same streams are added and dropped, with restarts, migrations, and changes of policy, strategy and
slicing. The streams are small because the oracle is brute force; tests/storm has larger streams and more events.
"""

from __future__ import annotations

import pytest
from law_support import CHUNKS, list_seeds
from random_runs import check_run

REGRESSIONS = {
    1243: "a new ROWS window counted tuples held back for older queries",
}


@pytest.mark.parametrize("seed", REGRESSIONS, ids=list(REGRESSIONS.values()))
def test_earlier_failures(seed: int) -> None:
    check_run(seed)


@pytest.mark.parametrize("chunk", CHUNKS[::4])
def test_random_runs(chunk: int) -> None:
    for seed in list_seeds(chunk):
        check_run(seed)
