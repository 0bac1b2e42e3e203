"""A random life under budgets, beside an exact twin: what comes is a part of the twin's results, push by push.

From one seed: a case, a policy of states, a batch size, budgets that come, change and go, plans and policies that
change under way, restarts. After a budget was lifted the two agree again at once; after one that suffices has replaced
it, when the longest window has passed.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import lawkit
import pyarrow as pa
from adventures import EQUALITIES

from penstock.adapt.allocate import POLICIES
from penstock.testing import Case, Push, random_case, random_plan
from penstock.testing.compare import _count_rows
from penstock.testing.row_evaluator import to_plain
from penstock.testing.runner import declare

STATES = ("eager", "lazy", "jit", "auto", "none")
AMPLE = 1e12


@dataclass
class Strait:
    """How one case is run."""

    case: Case
    state: str
    batch: int
    plan: str | None
    migrates: float = 0.0
    restarts: float = 0.0
    tightens: float = 0.2
    relaxes: float = 0.2
    ample_ends: bool = False
    """Whether scarce budgets are followed by ample ones, not lifted."""

    def fault(self) -> str | None:
        """What is wrong; None if nothing is."""
        try:
            return self._fault()
        except AssertionError as error:
            return str(error)

    def _fault(self) -> str | None:
        rng = random.Random(self.case.seed)
        engine, twin = (self._engine(state) for state in (self.state, "eager"))
        aliases = re.findall(r"\w+", self.case.plan)
        window = max((leaf.source.window.size or 0) for leaf in twin._registry["q"].plan.leaves if leaf.source.window)
        istream = twin._registry["q"].query.emit == "istream"
        exact_from: float | None = float("-inf")
        self.shed = self.compared = 0
        for step in (*self.case.steps, None):
            if exact_from is not None and rng.random() < self.tightens:
                sample = rng.choice((None, None, 7))
                engine.budget(rng.choice((0.02, 0.2, 0.5, 1, 2)), rng.choice(POLICIES), sample=sample)
                exact_from = None
            elif exact_from is None and rng.random() < self.relaxes:
                exact_from = float("-inf")
                if self.ample_ends:
                    exact_from = engine._registry["q"].joins[0].done + window
                engine.budget(AMPLE if self.ample_ends else None, rng.choice(POLICIES))
            elif self.ample_ends and exact_from is not None and rng.random() < self.relaxes:
                engine.budget(None)
                exact_from = float("-inf")
            if rng.random() < self.migrates:
                how = rng.choice(("jisc", "moving-state", "parallel-track" if exact_from is None else "jisc"))
                engine.migrate("q", random_plan(rng, aliases), how=how)
            if rng.random() < self.migrates:
                engine.policy("q", rng.choice(STATES))
            if rng.random() < self.restarts:
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
                wanted = _since(whole, exact_from)
                lacking = wanted - _since(some, exact_from)
                if lacking:
                    return f"{lacking.total()} rows missing though exactness was due from {exact_from}"
                self.compared += wanted.total() if self.shed else 0
            self.shed += whole.num_rows - some.num_rows
        return None

    def _engine(self, state: str) -> Any:
        engine = lawkit.engine(state=state, batch=self.batch)
        declare(engine, self.case)
        engine.query("q", self.case.query, plan=self.plan)
        return engine

    def __str__(self) -> str:
        return f"{self.case}\nstate={self.state!r}, batch={self.batch}, plan={self.plan!r}, ample={self.ample_ends}"


def _since(table: pa.Table, time: float) -> Counter[Any]:
    recent = [at >= time for at in to_plain(table.column("_ts"))]
    return _count_rows(table.filter(pa.array(recent, pa.bool_())))


def strait(seed: int) -> Strait:
    """Anything may happen to any query of two FROM items or more."""
    rng = random.Random(f"strait {seed}")
    case = random_case(seed, sources=rng.choice((2, 3, 3, 4, 5)), tables=rng.random() < 0.2)
    return Strait(
        case,
        rng.choice(STATES),
        rng.choice((1, 3, 4096)),
        rng.choice((None, case.plan)),
        migrates=rng.choice((0, 0, 0.2)),
        restarts=rng.choice((0, 0, 0.1)),
    )


def narrow(seed: int) -> Strait:
    """Many matches, budgets that end: by being lifted, with windows that outlive the run, so that all that was not
    built is needed later; or by sufficing, with windows that turn over, so that exactness must come back by itself.
    """
    rng = random.Random(f"narrow {seed}")
    ample = rng.random() < 0.6
    case = random_case(
        seed, sources=rng.choice((3, 3, 4, 5)), shape=EQUALITIES, tables=False, emit="", windows=("range",),
        span=rng.choice((4, 7)) if ample else 1000, rows=40 if ample else 14, full=True, domain=2 if ample else 3,
        limit=2500, late=False, nulls=0, timestamps=False,
    )  # fmt: skip
    return Strait(
        case, rng.choice(STATES), rng.choice((1, 3, 4096)), case.plan, tightens=0.1, relaxes=rng.choice((0.1, 0.3)),
        ample_ends=ample,
    )  # fmt: skip
