"""The law under a memory limit: results do not depend on what is dropped, moved to disk, or delivered in chunks.

The smallest maintenance thresholds make every push empty all states and move all window rows to disk; with the shipped
ones a limit of this size changes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import law_support
import pyarrow as pa
import pytest
from law_support import CHUNK, FIRST, SEEDS, check_case, sample_run_options

from penstock.testing import Case, difference, random_case, run

_SEEDS = range(FIRST, FIRST + max(1, SEEDS // 10))


@pytest.mark.parametrize("seed", _SEEDS)
def test_limited_joins_match_oracle(seed: int, tmp_path: Path) -> None:
    if law_support.MAINTENANCE.relief_share and seed % CHUNK:
        return
    case = random_case(seed)
    for options, plan in list(sample_run_options(case))[:2]:
        check_case(case, {**options, "memory": "1 GB", "spill": tmp_path}, plan)
    check_delivered(case)


def check_delivered(case: Case) -> None:
    """What a function gets during pushes are the results of the oracle."""
    tables: list[pa.Table] = []

    def make_engine() -> Any:
        engine = law_support.make_engine(batch=3)
        declare = engine.query

        def query(name: str, *args: Any, **options: Any) -> None:
            declare(name, *args, **options)
            engine.subscribe(name, tables.append)

        engine.query = query
        return engine

    empty = run(make_engine, case)
    found = difference(pa.concat_tables([empty, *tables]), case.expected)
    assert found is None, f"{case}\n{found}"
