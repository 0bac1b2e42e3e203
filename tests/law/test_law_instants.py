"""The law for joins that give rows at once to some queries and by whole instants to others.

More seeds: PENSTOCK_SEEDS=300 pytest tests/law/test_law_instants.py
"""

from __future__ import annotations

import pytest
from instant_runs import check_by_oracle, check_instants
from law_support import CHUNKS, check_fails, list_seeds
from sharing_mutants import INSTANT_MUTANTS, Mutant


@pytest.mark.parametrize("chunk", CHUNKS)
def test_queries_of_both_kinds_match_unshared_ones(chunk: int) -> None:
    """Each query gives the same rows in the same pushes as alone: none waits for an instant because another does."""
    assert sum(check_instants(seed) for seed in list_seeds(chunk))


@pytest.mark.parametrize("chunk", CHUNKS)
def test_queries_of_both_kinds_match_oracle(chunk: int) -> None:
    for seed in list_seeds(chunk)[::3]:
        check_by_oracle(seed)


@pytest.mark.parametrize("mutant", INSTANT_MUTANTS, ids=lambda mutant: mutant.method)
def test_instant_mutant_is_detected(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert any(check_fails(check_instants, seed) for seed in mutant.seeds)
