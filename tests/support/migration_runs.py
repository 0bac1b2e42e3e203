"""Random runs of a query with migrations, policy changes and restarts; all from one seed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from inspect_engine import change_some_states, swap_some_sides

import penstock as ps
from penstock.join import DemandFilter, state_cost
from penstock.join import tree as join_tree
from penstock.join.demand import gate_cost as gating
from penstock.join.demand import sides
from penstock.state import Maintenance
from penstock.state.maintenance import SMALLEST
from penstock.testing import Case, difference, random_case, random_plan, run

JUST_IN_TIME = ("jit", "lazy", "auto")
EQUALITIES = ("chain", "star", "clique", "cycle", "shared")
INEQUALITIES = ("theta", "theta", "mixed", "cross")
STRESS_MAINTENANCE = Maintenance(demand_rows=0, bloom_bits=8, bloom_bits_per_key=2)
"""Demand is reviewed at every batch, and Bloom filters are so small that false positives are frequent."""


@dataclass(frozen=True)
class MigrationRun:
    """How one case is run."""

    case: Case
    state: str
    batch: int
    plan: str | None
    migrate_chance: float
    restart_chance: float
    policy_chance: float = 0.0
    pace: float = 1.0
    demand: DemandFilter = "exact"
    eddy_chance: float = 0.0
    """The probability that a new plan is an eddy."""
    swap_chance: float = 0.0
    """The probability that driver and lazy child of a join of two joins change places."""
    state_chance: float = 0.0
    """The probability that some joins drop their states, and others have one again, where measurements decide that."""
    maintenance: Maintenance = STRESS_MAINTENANCE
    """By default Bloom filters are so small that false positives are frequent."""

    def find_fault(self) -> str | None:
        """The difference from the results of the oracle, or the error; None if there is none."""
        with pytest.MonkeyPatch.context() as patch:
            for name, policy in join_tree.POLICIES.items():
                patch.setitem(join_tree.POLICIES, name, replace(policy, pace=self.pace))
            for cost, rows in {
                "BATCH_COST": 0.0,
                "TEST_COST": 0.1,
                "REQUEST_COST": 0.5,
                "KEY_COST": 0.0,
                "_MAX_FAILURES": 0,
            }.items():
                patch.setattr(gating, cost, rows)
            for name, value in {"EFFORT": 0.0, "MARGIN": 1.0, "FURTHER_CHANGE": 1.0, "BATCH_COST": 0.0}.items():
                patch.setattr(state_cost, name, value)
            patch.setattr(state_cost, "LOOKUP_CALL", 0.0)
            patch.setattr(sides, "SIDE_ROWS", 0.0)
            patch.setattr(sides, "SIDE_FACTOR", 1.0)
            try:
                answer = run(self._build_engine, self.case, plan=self.plan, events=self._make_events())
            except Exception as error:
                return f"{type(error).__name__}: {error}"
        return difference(answer, self.case.expected)

    def _build_engine(self) -> ps.Engine:
        return ps.Engine(state=self.state, batch=self.batch, demand=self.demand, maintenance=self.maintenance)

    def _make_events(self) -> Callable[[Any, int], Any]:
        rng, eddy_rng = random.Random(self.case.seed), random.Random(f"eddies {self.case.seed}")
        state_rng = random.Random(f"states {self.case.seed}")
        aliases, side_rng = re.findall(r"\w+", self.case.plan), random.Random(f"sides {self.case.seed}")

        def event(engine: ps.Engine, _step: int) -> Any:
            if rng.random() < self.migrate_chance:
                how = rng.choice(("jisc", "jisc", "jisc", "moving-state"))
                plan = random_plan(rng, aliases)
                engine.migrate("q", to_eddy_plan(plan) if eddy_rng.random() < self.eddy_chance else plan, how=how)
            if rng.random() < self.policy_chance:
                engine.policy("q", rng.choice(("eager", "none", *JUST_IN_TIME)))
            if side_rng.random() < self.swap_chance:
                swap_some_sides(engine, side_rng)
            if state_rng.random() < self.state_chance:
                change_some_states(engine, state_rng)
            return ps.Engine.restore(engine.snapshot()) if rng.random() < self.restart_chance else None

        return event

    def __str__(self) -> str:
        kinds = ("migrate", "eddy", "swap", "state", "restart", "policy")
        names = (*(f"{kind}_chance" for kind in kinds), "pace")
        chances = ", ".join(f"{name}={getattr(self, name)}" for name in names)
        kept = f"state={self.state!r}, demand={self.demand!r}, batch={self.batch}, plan={self.plan!r}"
        return f"{self.case}\n{kept}, {chances}"


def to_eddy_plan(plan: str) -> str:
    """The eddy over the aliases of a plan, in their order."""
    return "{" + plan.replace("(", "").replace(")", "") + "}"


def draw_migration_run(seed: int) -> MigrationRun:
    """A run with any query of three streams or more, and any events."""
    rng = random.Random(f"adventure {seed}")
    case = random_case(seed, sources=rng.choice((3, 4, 5, 6)), tables=rng.random() < 0.2)
    return MigrationRun(
        case,
        rng.choice(JUST_IN_TIME),
        rng.choice((1, 3, 20, 4096)),
        rng.choice((None, case.plan, to_eddy_plan(case.plan))),
        migrate_chance=rng.choice((0, 0.1, 0.3, 0.6)),
        restart_chance=rng.choice((0, 0, 0.1, 0.3)),
        policy_chance=rng.choice((0, 0, 0.2)),
        pace=rng.choice((0, 0.2, 1, 16)),
        demand=rng.choice(("exact", "bloom")),
        eddy_chance=rng.choice((0, 0.3)),
        maintenance=rng.choice((SMALLEST, STRESS_MAINTENANCE)),
        swap_chance=rng.choice((0, 0.2, 0.5)),
        state_chance=rng.choice((0, 0.2, 0.5)),
    )


def draw_small_run(seed: int) -> MigrationRun:
    """Few rows, many matches, windows that outlive the run: rows held back or missing are needed later."""
    rng = random.Random(f"small {seed}")
    case = random_case(
        seed, sources=rng.choice((3, 4, 5)), shape=EQUALITIES, tables=False, emit="", windows=("range",), span=1000,
        rows=rng.choice((8, 12, 20)), full=True, domain=rng.choice((2, 3)), limit=400, late=False, nulls=0,
    )  # fmt: skip
    return MigrationRun(
        case,
        rng.choice(("jit", "jit", "lazy")),
        rng.choice((1, 3)),
        rng.choice((None, case.plan)),
        migrate_chance=rng.choice((0, 0.2, 0.4)),
        restart_chance=rng.choice((0, 0, 0.2)),
        pace=rng.choice((0, 0, 1)),
        swap_chance=rng.choice((0, 0.2, 0.5)),
    )


def draw_theta_run(seed: int) -> MigrationRun:
    """Joins by ranges and other predicates, below states that stay incomplete for long."""
    rng = random.Random(f"theta {seed}")
    case = random_case(
        seed, sources=rng.choice((3, 3, 4)), shape=INEQUALITIES, tables=False, emit="", span=rng.choice((20, 1000)),
        windows=rng.choice((("range",), ("partition", "range", "rows"))), rows=rng.choice((8, 14)), full=True,
        domain=rng.choice((3, 8)), limit=600, late=False, nulls=rng.choice((0, 0.1)),
    )  # fmt: skip
    return MigrationRun(
        case,
        rng.choice(("lazy", "lazy", "jit", "auto")),
        rng.choice((1, 3)),
        rng.choice((None, case.plan)),
        migrate_chance=rng.choice((0.2, 0.4)),
        restart_chance=rng.choice((0, 0, 0.2)),
        pace=rng.choice((0, 0, 0.2)),
        maintenance=rng.choice((SMALLEST, STRESS_MAINTENANCE)),
    )


def draw_range_gate_run(seed: int) -> MigrationRun:
    """Gates over joins that meet their sibling by a range, which close, open and change sides."""
    run, rng = draw_theta_run(seed), random.Random(f"range gates {seed}")
    case = random_case(
        seed, sources=rng.choice((3, 4, 4, 5)), shape=("theta", "mixed"), tables=rng.random() < 0.1, emit="",
        span=rng.choice((6, 20, 1000)), windows=rng.choice((("range",), ("partition", "range", "rows"))),
        rows=rng.choice((8, 14)), full=True, domain=rng.choice((4, 12)), limit=600, late=False,
        nulls=rng.choice((0, 0.1)),
    )  # fmt: skip
    return replace(
        run,
        case=case,
        state=rng.choice(("jit", "jit", "auto", "none")),
        plan=rng.choice((None, case.plan)),
        migrate_chance=rng.choice((0, 0, 0.2, 0.4)),
        policy_chance=rng.choice((0, 0, 0.2)),
        swap_chance=rng.choice((0, 0.2, 0.5)),
        state_chance=rng.choice((0, 0.3)),
    )
