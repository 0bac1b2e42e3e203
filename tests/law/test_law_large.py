"""Policies against each other, on more rows than the oracle is for."""

from __future__ import annotations

import pytest
from lawkit import answered

from penstock.testing import Case, difference, random_case

SHAPES = ("chain", "star", "cycle", "shared", "mixed")
FULL_ANSWERS = (2, 4, 6, 9, 10, 12, 13, 14, 17, 21, 30, 33, 34, 37, 38)  # seeds with hundreds to thousands of rows
OTHERS = ({"state": "none", "batch": 4096}, {"state": "eager", "batch": 50}, {"state": "none", "batch": 50})


def large_case(seed: int) -> Case:
    return random_case(
        seed,
        sources=2 + seed % 3,
        shape=SHAPES,
        windows=("range", "rows", "partition"),
        emit="DSTREAM" if seed % 3 else "",
        rows=1500,
        full=True,
        domain=10,
        span=6,
        limit=None,
    )


@pytest.mark.parametrize("seed", FULL_ANSWERS)
def test_policies_agree(seed: int) -> None:
    case = large_case(seed)
    reference = answered(case, {"state": "eager", "batch": 4096}, None)
    assert reference.num_rows > 100
    for options in OTHERS:
        found = difference(answered(case, options, case.plan), reference)
        assert found is None, f"{case}\n{options}\n{found}"
