"""The law for queries over a subset of another query's streams: they read a node of its join and give the same results.

Queries over two to four streams are added and dropped and streams lag behind each other, with snapshots, migrations,
policy changes and temporary budgets in between. No query waits for a stream that it does not read.
"""

from __future__ import annotations

import pytest
from law_support import CHUNKS, check_fails, list_seeds
from nested_runs import check_nesting, check_wider_later
from sharing_mutants import EARLY_READER_MUTANTS, TAKEOVER_MUTANTS, Mutant


@pytest.mark.parametrize("chunk", CHUNKS)
def test_nested_queries_match_unshared_queries(chunk: int) -> None:
    """A query over some of the streams gives the same results as alone, and waits for no other stream."""
    assert sum(check_nesting(seed) for seed in list_seeds(chunk))


@pytest.mark.parametrize("mutant", EARLY_READER_MUTANTS, ids=lambda mutant: mutant.method)
def test_early_reader_mutant_is_detected(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert any(check_fails(check_nesting, seed) for seed in mutant.seeds)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_wider_queries_later_match_unshared_queries(chunk: int) -> None:
    """A query keeps its results and does not wait when a wider query takes in its join while it runs."""
    assert sum(check_wider_later(seed) for seed in list_seeds(chunk))


@pytest.mark.parametrize("mutant", TAKEOVER_MUTANTS, ids=lambda mutant: mutant.method)
def test_takeover_mutant_is_detected(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert any(check_fails(check_wider_later, seed) for seed in mutant.seeds)
