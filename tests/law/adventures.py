"""A random life for a query: a policy, a batch size, plans that change under way, restarts; all from one seed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

import penstock as ps
from penstock.join import tree as join_tree
from penstock.join.demand import gate_cost as gating
from penstock.join.demand.gate import DemandFilter
from penstock.state.maintenance import SMALLEST_MAINTENANCE, Maintenance
from penstock.testing import Case, difference, random_case, random_plan, run

JUST_IN_TIME = ("jit", "lazy", "auto")
EQUALITIES = ("chain", "star", "clique", "cycle", "shared")
RESTLESS = Maintenance(demand_rows=0, bloom_bits=8, bloom_bits_per_key=2)
"""Demand is looked at all the time, and Bloom filters are so small that they are often mistaken."""


@dataclass(frozen=True)
class Adventure:
    """How one case is run."""

    case: Case
    state: str
    batch: int
    plan: str | None
    migrates: float
    restarts: float
    switches: float = 0.0
    pace: float = 1.0
    demand: DemandFilter = "exact"
    eddies: float = 0.0
    """How often a plan is an eddy."""
    maintenance: Maintenance = RESTLESS
    """Bloom filters are so small that they are often mistaken."""

    def fault(self) -> str | None:
        """What is wrong with the answer; None if it is the oracle's."""
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
            try:
                answer = run(self._engine, self.case, plan=self.plan, events=self._events())
            except Exception as error:
                return f"{type(error).__name__}: {error}"
        return difference(answer, self.case.expected)

    def _engine(self) -> ps.Engine:
        return ps.Engine(state=self.state, batch=self.batch, demand=self.demand, maintenance=self.maintenance)

    def _events(self) -> Callable[[Any, int], Any]:
        rng, swirl = random.Random(self.case.seed), random.Random(f"eddies {self.case.seed}")
        aliases = re.findall(r"\w+", self.case.plan)

        def event(engine: ps.Engine, _step: int) -> Any:
            if rng.random() < self.migrates:
                how = rng.choice(("jisc", "jisc", "jisc", "moving-state"))
                plan = random_plan(rng, aliases)
                engine.migrate("q", eddy(plan) if swirl.random() < self.eddies else plan, how=how)
            if rng.random() < self.switches:
                engine.policy("q", rng.choice(("eager", "none", *JUST_IN_TIME)))
            return ps.Engine.restore(engine.snapshot()) if rng.random() < self.restarts else None

        return event

    def __str__(self) -> str:
        names = ("migrates", "eddies", "restarts", "switches", "pace")
        chances = ", ".join(f"{name}={getattr(self, name)}" for name in names)
        kept = f"state={self.state!r}, demand={self.demand!r}, batch={self.batch}, plan={self.plan!r}"
        return f"{self.case}\n{kept}, {chances}"


def eddy(plan: str) -> str:
    """The eddy over the aliases of a plan, in their order."""
    return "{" + plan.replace("(", "").replace(")", "") + "}"


def adventure(seed: int) -> Adventure:
    """Anything may happen to any query of three streams or more."""
    rng = random.Random(f"adventure {seed}")
    case = random_case(seed, sources=rng.choice((3, 4, 5, 6)), tables=rng.random() < 0.2)
    return Adventure(
        case,
        rng.choice(JUST_IN_TIME),
        rng.choice((1, 3, 20, 4096)),
        rng.choice((None, case.plan, eddy(case.plan))),
        migrates=rng.choice((0, 0.1, 0.3, 0.6)),
        restarts=rng.choice((0, 0, 0.1, 0.3)),
        switches=rng.choice((0, 0, 0.2)),
        pace=rng.choice((0, 0.2, 1, 16)),
        demand=rng.choice(("exact", "bloom")),
        eddies=rng.choice((0, 0.3)),
        maintenance=rng.choice((SMALLEST_MAINTENANCE, RESTLESS)),
    )


def small(seed: int) -> Adventure:
    """Few rows, many matches, windows that outlive the run: rows held back or missing are needed later."""
    rng = random.Random(f"small {seed}")
    case = random_case(
        seed, sources=rng.choice((3, 4, 5)), shape=EQUALITIES, tables=False, emit="", windows=("range",), span=1000,
        rows=rng.choice((8, 12, 20)), full=True, domain=rng.choice((2, 3)), limit=400, late=False, nulls=0,
    )  # fmt: skip
    return Adventure(
        case,
        rng.choice(("jit", "jit", "lazy")),
        rng.choice((1, 3)),
        rng.choice((None, case.plan)),
        migrates=rng.choice((0, 0.2, 0.4)),
        restarts=rng.choice((0, 0, 0.2)),
        pace=rng.choice((0, 0, 1)),
    )
