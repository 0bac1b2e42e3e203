"""The law for static tables that are replaced while queries read them.

More seeds: PENSTOCK_SEEDS=5000 PENSTOCK_FIRST_SEED=1000000 pytest -n auto tests/law/test_law_tables.py
"""

from __future__ import annotations

import os
import traceback

import pytest
from law_support import CHUNKS, list_seeds
from replaced_tables import check_replacement

DRAWN = CHUNKS if "PENSTOCK_SEEDS" in os.environ else CHUNKS[::2]


@pytest.mark.parametrize("chunk", DRAWN)
def test_replaced_tables_equal_oracle(chunk: int) -> None:
    failures = []
    for seed in list_seeds(chunk):
        try:
            check_replacement(seed)
        except Exception:
            failures.append(f"seed {seed}: {traceback.format_exc(limit=-3)}")
    assert not failures, "\n\n".join(failures)
