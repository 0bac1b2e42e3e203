"""The law for queries that bound the same terms by different constants: they share a join that tests what all imply."""

from __future__ import annotations

import law_support
import pytest
from bound_runs import check_bounds
from law_support import CHUNKS, check_fails, list_seeds
from sharing_mutants import BOUND_MUTANTS, RANGE_MUTANT, Mutant

from penstock.state.maintenance import SMALLEST


@pytest.mark.parametrize("chunk", CHUNKS)
def test_bounds(chunk: int) -> None:
    for seed in list_seeds(chunk)[::3]:
        check_bounds(seed)


def test_predicate_that_becomes_common() -> None:
    """Stored rows of a node did not satisfy the narrower test after the query with the wider one had left."""
    check_bounds(5604)


@pytest.mark.parametrize("mutant", BOUND_MUTANTS, ids=lambda mutant: mutant.broken.__name__)
def test_bound_mutant_is_detected(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert any(check_fails(check_bounds, seed) for seed in mutant.seeds)


def test_range_mutant_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(law_support, "MAINTENANCE", SMALLEST)
    RANGE_MUTANT.apply(monkeypatch)
    assert any(check_fails(check_bounds, seed) for seed in RANGE_MUTANT.seeds)
