"""The law over the whole language: random queries in which every form nests in every other one.

Each seed is one query, with its own policy, batch size, schedule and restarts.
More seeds: PENSTOCK_SEEDS=5000 PENSTOCK_FIRST_SEED=1000000 pytest -n auto tests/law/test_law_grammar.py
"""

from __future__ import annotations

import os
import traceback

import pytest
from grammar_runs import check_grammar
from law_support import CHUNKS, list_seeds

DRAWN = CHUNKS if "PENSTOCK_SEEDS" in os.environ else CHUNKS[::5]


@pytest.mark.parametrize("chunk", DRAWN)
def test_grammar_equals_oracles(chunk: int) -> None:
    failures = []
    for seed in list_seeds(chunk):
        try:
            check_grammar(seed)
        except Exception:
            failures.append(f"seed {seed}: {traceback.format_exc(limit=-3)}")
    assert not failures, "\n\n".join(failures)
