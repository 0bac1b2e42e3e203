"""The law for aggregates that share windows: a query gives the results that it gives alone, and those of the oracle.

More seeds: PENSTOCK_SEEDS=300 pytest tests/law/test_law_shared_groups.py
"""

from __future__ import annotations

import os
from typing import Any

import law_support
import pytest
from law_support import check_fails, make_engine
from shared_group_runs import check_groups, check_groups_with_oracle

import penstock as ps
from penstock.ops.aggregate.group_history import GroupHistory, RangeMinima, SumTotals, ValueLinks
from penstock.state.maintenance import SMALLEST

FIRST, SEEDS = int(os.environ.get("PENSTOCK_FIRST_SEED", "0")), int(os.environ.get("PENSTOCK_SEEDS", "10"))
MUTANT_SEEDS = (0, 1)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_shared_groups_match_unshared_ones(seed: int) -> None:
    check_groups(seed)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_shared_groups_match_oracle(seed: int) -> None:
    check_groups_with_oracle(seed)


def _skip(*_: Any) -> None:
    """Does nothing."""


MUTANTS = ((SumTotals, "drop"), (RangeMinima, "drop"), (ValueLinks, "drop"), (SumTotals, "_append_specials"))


@pytest.mark.parametrize(("owner", "method"), MUTANTS)
def test_history_mutant_is_detected(owner: type, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(law_support, "MAINTENANCE", SMALLEST)
    monkeypatch.setattr(owner, method, _skip)
    assert any(check_fails(check_groups, seed) for seed in MUTANT_SEEDS)


def test_histories_drop_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[int] = []
    drop = GroupHistory.drop

    def record(self: GroupHistory, count: int) -> Any:
        dropped.append(count)
        return drop(self, count)

    monkeypatch.setattr(law_support, "MAINTENANCE", SMALLEST)
    monkeypatch.setattr(GroupHistory, "drop", record)
    for seed in MUTANT_SEEDS:
        check_groups(seed)
    assert dropped


def test_freed_rows_are_not_read_again() -> None:
    """A query that started later than a dropped one is built from stored rows, some of which were freed."""
    engine = make_engine(warn=False)
    engine.stream("t", {"ts": "bigint", "k": "bigint"}, time="ts")
    engine.query("early", "SELECT SUM(k) AS s FROM t [RANGE 100]")
    rows = [{"ts": 1, "k": 5}, {"ts": 2, "k": 7}]
    engine.push({"t": rows})
    engine.query("late", "SELECT SUM(k) AS s FROM t [RANGE 100] GROUP BY k % 2")
    engine.drop("early")
    engine = ps.Engine.restore(engine.snapshot())
    found = engine.push({"t": [{"ts": 3, "k": 1}, {"ts": 4, "k": 0}]})["late"].to_pylist()
    assert found == [{"s": 1, "_ts": 3}]
