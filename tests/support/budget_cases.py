"""Random runs with budgets, next to an exact engine.

Law: push by push, the results are a subset of those of the exact engine. After a budget is lifted the results are equal
at once; after an ample budget replaces a scarce one, they are equal when the longest window has passed. While budgets
are ample they are equal, whatever else changes. One seed draws the case, the state policy, the batch size, budgets that
change, migrations, policy changes and restarts.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import law_support
import pyarrow as pa
from inspect_engine import running_query
from migration_runs import EQUALITIES

from penstock.adapt import POLICIES
from penstock.testing import Case, Push, random_case, random_plan
from penstock.testing.compare import _count_rows
from penstock.testing.row_evaluator import to_plain
from penstock.testing.runner import declare

STATES = ("eager", "lazy", "jit", "auto", "none")
AMPLE_BUDGET = 1e12


@dataclass
class BudgetCase:
    """How one case is run."""

    case: Case
    state: str
    batch: int
    plan: str | None
    migrate_chance: float = 0.0
    restart_chance: float = 0.0
    set_budget_chance: float = 0.2
    lift_budget_chance: float = 0.2
    ends_with_ample_budget: bool = False
    """Whether scarce budgets are replaced by ample ones instead of lifted."""
    never_scarce: bool = False
    """Whether all budgets are ample."""

    def find_fault(self) -> str | None:
        """A description of the fault; None if there is none."""
        try:
            return self._find_fault()
        except AssertionError as error:
            return str(error)

    def _find_fault(self) -> str | None:
        rng = random.Random(self.case.seed)
        engine, twin = (self._build_engine(state) for state in (self.state, "eager"))
        aliases = re.findall(r"\w+", self.case.plan)
        windows = [leaf.source.window for leaf in running_query(twin, "q").joins[0].tree.plan.leaves]
        window = max(window.duration or window.row_count or 0 for window in windows)
        istream = running_query(twin, "q").query.emit == "istream"
        exact_from: float | None = float("-inf")
        self.shed_rows = self.compared_rows = 0
        for step in (*self.case.steps, None):
            if self.never_scarce and rng.random() < self.set_budget_chance:
                engine.budget(rng.choice((AMPLE_BUDGET, None)), rng.choice(POLICIES))
            elif self.never_scarce:
                pass
            elif exact_from is not None and rng.random() < self.set_budget_chance:
                sample = rng.choice((None, None, 7))
                engine.budget(rng.choice((0.02, 0.2, 0.5, 1, 2)), rng.choice(POLICIES), sample=sample)
                exact_from = None
            elif exact_from is None and rng.random() < self.lift_budget_chance:
                exact_from = float("-inf")
                if self.ends_with_ample_budget:
                    exact_from = running_query(engine, "q").joins[0].done + window
                engine.budget(AMPLE_BUDGET if self.ends_with_ample_budget else None, rng.choice(POLICIES))
            elif self.ends_with_ample_budget and exact_from is not None and rng.random() < self.lift_budget_chance:
                engine.budget(None)
                exact_from = float("-inf")
            if rng.random() < self.migrate_chance:
                how = rng.choice(("jisc", "moving-state", "parallel-track" if exact_from is None else "jisc"))
                engine.migrate("q", random_plan(rng, aliases), how=how)
            if rng.random() < self.migrate_chance:
                engine.policy("q", rng.choice(STATES))
            if rng.random() < self.restart_chance:
                engine = type(engine).restore(engine.snapshot())
            if step is None:
                some, whole = engine.flush()["q"], twin.flush()["q"]
            elif isinstance(step, Push):
                some, whole = engine.push(dict(step.batches))["q"], twin.push(dict(step.batches))["q"]
            else:
                engine.advance(step.stream, step.value)
                twin.advance(step.stream, step.value)
                continue
            extra = _count_rows(some) - _count_rows(whole)
            if extra:
                return f"{extra.total()} rows that the exact answer has not at this push, such as {next(iter(extra))}"
            if istream and exact_from is not None:
                wanted = _count_rows_since(whole, exact_from)
                lacking = wanted - _count_rows_since(some, exact_from)
                if lacking:
                    return f"{lacking.total()} rows missing though exactness was due from {exact_from}"
                self.compared_rows += wanted.total() if self.shed_rows or self.never_scarce else 0
            self.shed_rows += whole.num_rows - some.num_rows
        return None

    def _build_engine(self, state: str) -> Any:
        engine = law_support.make_engine(state=state, batch=self.batch)
        declare(engine, self.case)
        engine.query("q", self.case.query, plan=self.plan)
        return engine

    def __str__(self) -> str:
        return (
            f"{self.case}\nstate={self.state!r}, batch={self.batch}, plan={self.plan!r}, ample="
            f"{self.ends_with_ample_budget}"
        )


def _count_rows_since(table: pa.Table, time: float) -> Counter[Any]:
    recent = [at >= time for at in to_plain(table.column("_ts"))]
    return _count_rows(table.filter(pa.array(recent, pa.bool_())))


def draw_budget_case(seed: int) -> BudgetCase:
    """A run with any query of two FROM items or more, and any events."""
    rng = random.Random(f"strait {seed}")
    case = random_case(seed, sources=rng.choice((2, 3, 3, 4, 5)), tables=rng.random() < 0.2)
    return BudgetCase(
        case,
        rng.choice(STATES),
        rng.choice((1, 3, 4096)),
        rng.choice((None, case.plan)),
        migrate_chance=rng.choice((0, 0, 0.2)),
        restart_chance=rng.choice((0, 0, 0.1)),
    )


def draw_scarce_budget_case(seed: int) -> BudgetCase:
    """A run with many matches in which scarce budgets end.

    Either they are lifted and windows outlive the run, so that all missing rows are needed later; or ample budgets
    replace them and windows expire, so that results become exact again without a rebuild.
    """
    rng = random.Random(f"narrow {seed}")
    ample = rng.random() < 0.6
    case = random_case(
        seed,
        sources=rng.choice((3, 3, 4, 5)),
        shape=EQUALITIES,
        tables=False,
        emit="",
        windows=("range",),
        span=rng.choice((4, 7)) if ample else 1000,
        rows=40 if ample else 14,
        full=True,
        domain=2 if ample else 3,
        limit=2500,
        late=False,
        nulls=0,
        timestamps=False,
    )
    return BudgetCase(
        case,
        rng.choice(STATES),
        rng.choice((1, 3, 4096)),
        case.plan,
        set_budget_chance=0.1,
        lift_budget_chance=rng.choice((0.1, 0.3)),
        ends_with_ample_budget=ample,
    )


def draw_changed_budget_case(seed: int) -> BudgetCase:
    """A run with many matches in which plans and policies change and the engine restarts, under ample budgets.

    Budgets are ample all the time, or for the rest of the run after a scarce one.
    """
    rng = random.Random(f"changed {seed}")
    run = draw_scarce_budget_case(seed)
    never_scarce = rng.random() < 0.7
    return replace(
        run,
        migrate_chance=rng.choice((0.1, 0.3)),
        restart_chance=rng.choice((0, 0.1)),
        set_budget_chance=0.3 if never_scarce else 0.1,
        never_scarce=never_scarce,
    )
