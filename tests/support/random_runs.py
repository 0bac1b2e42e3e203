"""Random runs of several queries with random events, checked against the brute-force oracle; all from one seed."""

from __future__ import annotations

import random
import re
from contextlib import suppress
from typing import Any

from law_support import STATES, STRESS_RULES, make_engine

from penstock import UnsupportedError
from penstock.testing import Case, TooManyRows, another_query, expected, random_case, random_plan, run_all, same_rows


class RandomRun:
    """Events on an engine; `births` has the running queries, with the step before which each was added."""

    def __init__(self, seed: int) -> None:
        self.case: Case = random_case(seed)
        self.rng = rng = random.Random(f"storm {seed}")
        self.texts: dict[str, str] = {}
        self.births: dict[str, int] = {}
        for number in range(rng.choice((1, 2, 4, 7))):
            name = f"o{number}"
            self.texts[name] = self._resized() if rng.random() < 0.4 else another_query(self.case, seed * 10 + number)
            self.births[name] = rng.choice((0, 0, rng.randint(0, len(self.case.steps))))
        self.plan = rng.choice((None, self.case.plan))
        self.options = {
            "state": rng.choice(STATES),
            "batch": rng.choice((1, 3, 4096)),
            "schedule": rng.choice(("dfs", "bfs", "rr")),
            "adapt": rng.choice((False, STRESS_RULES)),
            "slicing": rng.choice(("mem-opt", "cpu-opt")),
        }
        self.log: list[tuple[Any, ...]] = []

    def _resized(self) -> str:
        """The query of the case with other windows."""

        def another(found: re.Match[str]) -> str:
            return f"RANGE {max(1, int(int(found[1]) * self.rng.choice((0.5, 1, 1, 2))))}"

        return re.sub(r"RANGE (\d+)", another, self.case.query)

    def event(self, current: Any, step: int) -> Any:
        for name, birth in self.births.items():
            if birth == step:
                current.query(name, self.texts[name])
        if self.rng.random() < 0.5:
            return None
        name = self.rng.choice(["q", *(name for name, birth in self.births.items() if birth <= step)])
        what = self.rng.choice(("restart", "migrate", "policy", "reslice", "schedule", "drop"))
        self.log.append((step, what, name))
        match what:
            case "restart":
                for _ in range(self.rng.choice((1, 2))):
                    current.close()
                    current = type(current).restore(current.snapshot())
                return current
            case "policy":
                current.policy(name, self.rng.choice(STATES))
            case "reslice":
                current.reslice(self.rng.choice(("mem-opt", "cpu-opt")))
            case "schedule":
                current.schedule(self.rng.choice(("dfs", "bfs", "rr")))
            case "drop" if name != "q":
                current.drop(name)
                del self.births[name], self.texts[name]
            case "migrate":
                self._migrate(current, name)
        return None

    def _migrate(self, current: Any, name: str) -> None:
        aliases = re.findall(r"\w+", current.metrics(name)["plan"])
        if len(aliases) > 1:
            plan = random_plan(self.rng, aliases)
            how = self.rng.choice(("jisc", "jisc", "moving-state", "parallel-track"))
            self.log.append((plan, how))
            with suppress(UnsupportedError):  # a parallel track with an unbounded window
                current.migrate(name, plan, how)

    def check(self) -> None:
        answers = run_all(lambda: make_engine(**self.options), self.case, plan=self.plan, events=self.event)
        same_rows(answers["q"], self.case.expected)
        for name, text in self.texts.items():
            since = self.case.accepted_since(self.births[name])
            with suppress(TooManyRows):
                same_rows(answers[name], expected(text, since, self.case.tables, self.case.times))


def check_run(seed: int) -> None:
    run = RandomRun(seed)
    try:
        run.check()
    except Exception as error:
        details = f"{run.options}, plan={run.plan!r}, queries {run.births} {run.texts}\n{run.log}"
        raise AssertionError(f"{run.case}\n{details}\n{error}") from error
