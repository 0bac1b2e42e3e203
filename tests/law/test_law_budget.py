"""The declared exception to the law: under a budget the results are fresh rows of the exact results, and no others."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from budget_cases import AMPLE_BUDGET, STATES, draw_budget_case, draw_changed_budget_case, draw_scarce_budget_case
from law_support import FIRST, make_engine

from penstock.adapt import POLICIES
from penstock.testing.query_text import random_plan

CHUNKS = range(FIRST, FIRST + 40, 5)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_budget_results_are_subset_of_exact_results(chunk: int) -> None:
    for seed in range(chunk, chunk + 5):
        run = draw_budget_case(seed)
        fault = run.find_fault()
        assert fault is None, f"{run}\n{fault}"


@pytest.mark.parametrize("chunk", CHUNKS)
def test_exact_results_after_budget_ends(chunk: int) -> None:
    for seed in range(chunk, chunk + 5):
        run = draw_scarce_budget_case(seed)
        fault = run.find_fault()
        assert fault is None, f"{run}\n{fault}"


@pytest.mark.parametrize("chunk", CHUNKS)
def test_ample_budget_is_exact_while_plans_change(chunk: int) -> None:
    """States that a change, a restart or the begin of a budget leaves incomplete are completed under the budget."""
    for seed in range(chunk, chunk + 5):
        run = draw_changed_budget_case(seed)
        fault = run.find_fault()
        assert fault is None, f"{run}\n{fault}"


class FreshnessCase:
    """A random query whose FRESHNESS is shorter than some windows."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"fresh {seed}")
        self.rng = rng
        self.names = "ABCD"[: rng.choice((2, 3, 4))]
        windows = {name: rng.choice(("[ROWS 6]", "", "[RANGE 8]")) for name in self.names}
        self.bounds = {name: rng.randint(8, 14) for name in self.names if rng.random() < 0.7}
        sources = ", ".join(f"{name} {window}" for name, window in windows.items())
        shown = ", ".join(f"{name}.ts AS {name.lower()}, {name}.id AS {name.lower()}_id" for name in self.names)
        equal = " AND ".join(f"A.k = {name}.k" for name in self.names[1:])
        fresh = ", ".join(f"{name} {bound}" for name, bound in self.bounds.items())
        self.text = f"SELECT {shown} FROM {sources} WHERE {equal}{' FRESHNESS ' + fresh if fresh else ''}"
        self.plan = random_plan(rng, list(self.names))
        data = np.random.default_rng(seed)
        self.pushes = [
            {
                name: pa.table({
                    "ts": np.sort(data.integers(4 * at, 4 * at + 4, rows)),
                    "k": data.integers(0, 2, rows), "id": data.integers(0, 1 << 40, rows),
                })
                for name in self.names if (rows := int(data.integers(0, 3)))
            }
            for at in range(12)
        ]  # fmt: skip

    def answer(self, budget: float | None) -> tuple[Counter[Any], int]:
        eng = make_engine(state=self.rng.choice(STATES), batch=self.rng.choice((1, 5, 4096)))
        for name in self.names:
            eng.stream(name, dict.fromkeys(("ts", "k", "id"), "bigint"), time="ts")
        eng.query("q", self.text, plan=self.plan)
        if budget is not None:
            eng.budget(budget, self.rng.choice(POLICIES), sample=self.rng.choice((None, 3)))
        rows: Counter[Any] = Counter()
        for push in self.pushes:
            rows.update(tuple(row.items()) for row in eng.push(push)["q"].to_pylist())
        rows.update(tuple(row.items()) for row in eng.flush()["q"].to_pylist())
        return rows, eng.metrics("q")["stale"]

    def is_fresh(self, row: Any) -> bool:
        at = dict(row)
        return all(at["_ts"] - at[name.lower()] <= bound for name, bound in self.bounds.items())


@pytest.mark.parametrize("chunk", range(0, 60, 15))
def test_no_stale_results_under_freshness(chunk: int) -> None:
    """A result leaves at the instant of its birth or never."""
    stale = 0
    for seed in range(chunk, chunk + 15):
        case = FreshnessCase(seed)
        exact, _ = case.answer(None)
        fresh = Counter({row: count for row, count in exact.items() if case.is_fresh(row)})
        some, _ = case.answer(case.rng.choice((0.3, 1, 3)))
        assert not some - fresh, f"seed {seed}: {case.text}"
        enough, suppressed = case.answer(AMPLE_BUDGET)
        assert enough == fresh, f"seed {seed}: {case.text}"
        assert suppressed == exact.total() - fresh.total()
        stale += suppressed
    assert stale, "no case had a stale result"
