"""A storm as plain values: streams, queries, events before each step, and the engine's options, from one seed.

Everything is drawn before the run, so that a failing storm can be reduced by leaving things out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.testing import Case, TooManyRows, random_plan
from penstock.testing.duckdb_oracle import expected_by_duckdb
from storm.query_texts import QueryText, QueryWriter
from storm.streams import StormScale, draw_feed, draw_scale, draw_table

STATES = ("eager", "lazy", "jit", "auto", "none")
LEAST, MOST = 10, 10_000  # tuples


@dataclass(frozen=True)
class Event:
    """An event before a step; `query` names its query, `args` depend on the action."""

    step: int
    action: str
    query: str = ""
    args: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """A storm. `texts` has the first text of each query and, under "name'", "name''", those it is altered to."""

    seed: int
    scale: StormScale
    case: Case
    texts: Mapping[str, QueryText]
    events: tuple[Event, ...]
    options: dict[str, Any]
    read_when: str
    smallest_maintenance: bool
    """Whether the engine has the smallest thresholds of maintenance."""
    expected_cache: dict[tuple[str, int], pa.Table] = field(default_factory=dict, compare=False)

    def seen_since(self, step: int) -> dict[str, pa.Table]:
        """The tuples that a query added before a step sees."""
        known: dict[int, dict[str, pa.Table]] = self.__dict__.setdefault("_seen", {})
        if step not in known:
            known[step] = self.case.accepted_since(step)
        return known[step]

    def expected(self, text: QueryText, step: int = 0, limit: int | None = None) -> pa.Table:
        """The oracle's results for a query added before a step."""
        key = (text.text, step)
        if key not in self.expected_cache:
            streams, times = dict(self.seen_since(step)), dict(self.case.times)
            for name in text.reads:
                streams[name], times[name] = self.expected(self.texts[name], step, limit), "_ts"
            self.expected_cache[key] = expected_by_duckdb(text.text, streams, self.case.tables, times, limit=limit)
        return self.expected_cache[key]

    def __str__(self) -> str:
        lines = [f"storm {self.seed}: {self.scale}", f"options {self.options}, look {self.read_when}"]
        lines += [f"smallest maintenance: {self.smallest_maintenance}; {len(self.case.steps)} steps"]
        lines += [
            f"  {s.name}: {self.case.streams[s.name].num_rows} rows, lateness {s.lateness}"
            for s in self.case.declarations
        ]
        lines += [f"  {name}: {text.text}" for name, text in self.texts.items()]
        lines += [f"  step {e.step}: {e.action} {e.query} {e.args}" for e in self.events]
        return "\n".join(lines)


def draw_scenario(seed: int, least: int = LEAST, most: int = MOST) -> Scenario:
    """The storm of a seed, with some number of tuples."""
    rng = random.Random(f"penstock storm {seed}")
    names = [*"ABCDE"[: rng.choice((2, 2, 3, 3, 4, 5))]]
    scale, skew = draw_scale(rng, len(names), least, most)
    feed = draw_feed(seed, rng, names, scale, skew)
    table = rng.random() < 0.3
    tables = {"T": draw_table(rng, scale)} if table else {}
    case = Case(seed, feed.declarations, tables, "", "", feed.steps)
    scenario = Scenario(
        seed,
        scale,
        case,
        {},
        (),
        _draw_options(rng, scale),
        rng.choice(("now", "now", "later", "end")),
        smallest_maintenance=bool(seed % 2),
    )
    sharing = rng.random() < 0.4
    scenario.options["share"] |= sharing
    texts = _draw_texts(rng, QueryWriter(rng, names, scale, table=table, sharing=sharing), scenario)
    events = _EventGenerator(rng, texts, len(case.steps), sharing=sharing, budgets=not scenario.options["adapt"])
    return replace(scenario, texts=texts, events=tuple(events.draw()))


def _draw_options(rng: random.Random, scale: StormScale) -> dict[str, Any]:
    batches = (1, 3, 4096) if scale.rows < 200 else (64, 4096) if scale.rows < 2000 else (1024, 4096)
    return {
        "state": rng.choice(STATES),
        "batch": rng.choice(batches),
        "schedule": rng.choice(("dfs", "bfs", "rr")),
        "share": rng.random() < 0.9,
        "slicing": rng.choice(("mem-opt", "cpu-opt")),
        "adapt": rng.random() < 0.1,
    }


def _draw_texts(rng: random.Random, writer: QueryWriter, scenario: Scenario) -> dict[str, QueryText]:
    """One to eight queries with a bounded number of results, some with texts to which they are altered."""
    limit, found = scenario.scale.limit, dict[str, QueryText]()
    trial = replace(scenario, texts=found)

    def fits(text: QueryText) -> bool:
        try:
            trial.expected(text, limit=limit)
        except TooManyRows:
            return False
        return True

    for number in range(rng.choice((3, 5, 8) if writer.sharing else (1, 2, 3, 5, 8))):
        name = f"q{number}"
        text = next((text for _ in range(5) if fits(text := writer.write())), None)
        if text is not None:
            found[name] = text
            if rng.random() < (0.4 if writer.sharing else 0.25):
                other = writer.draw_join(writer.shared_streams) if rng.random() < 0.8 else writer.write()
                if fits(other):
                    found[f"{name}'"] = other
    if rng.random() < 0.15:
        made, readers = writer.draw_derived("d0")
        if fits(made):
            found["d0"] = made
            found |= {f"r{i}": reader for i, reader in enumerate(readers) if fits(reader)}
    return found


class _EventGenerator:
    """The events in order: queries are added, altered and dropped, and the engine's settings change."""

    def __init__(
        self, rng: random.Random, texts: Mapping[str, QueryText], steps: int, *, sharing: bool, budgets: bool
    ) -> None:
        self.rng, self.texts, self.steps, self.sharing, self.budgets = rng, texts, steps, sharing, budgets
        self.events: list[tuple[int, int, Event]] = []
        self.lifetimes: dict[str, tuple[int, int]] = {}

    def draw(self) -> Iterator[Event]:
        for name, text in self.texts.items():
            if not name.endswith("'"):
                self._draw_lifetime(name, text)
        self._draw_disturbances()
        if self.budgets and self.rng.random() < 0.2:
            self._draw_budget()
        return (event for _, _, event in sorted(self.events, key=lambda each: each[:2]))

    def _add(self, step: int, rank: int, do: str, query: str = "", *args: Any) -> None:
        self.events.append((step, rank, Event(step, do, query, args)))

    def _draw_lifetime(self, name: str, text: QueryText) -> None:
        """When a query is added, altered and dropped."""
        rng, steps = self.rng, self.steps
        linked = text.is_derived or text.reads
        birth = 0 if linked else rng.choice((0, 0, rng.randint(0, steps)))
        state = None if self.sharing else rng.choice((None, None, None, rng.choice(STATES)))
        history = bool(birth) and rng.random() < (0.6 if self.sharing else 0.3)
        plan = _draw_plan(rng, text) if rng.random() < (0.1 if self.sharing else 0.3) else None
        self._add(birth, 0, "derive" if text.is_derived else "query", name, plan, state, history)
        death = (
            rng.randint(birth, steps + 1)
            if not text.is_derived and rng.random() < (0.6 if self.sharing else 0.4)
            else steps + 1
        )
        self.lifetimes[name] = birth, death
        if death <= steps:
            self._add(death, 2, "drop", name)
        if f"{name}'" in self.texts and death > birth:
            self._add(rng.randint(min(birth + 1, steps), min(death, steps)), 1, "alter", name)

    def _draw_disturbances(self) -> None:
        restless = self.rng.choice((0.1, 0.3, 0.6))
        for step in range(self.steps + 1):
            while self.rng.random() < restless:
                here = [name for name, (birth, death) in self.lifetimes.items() if birth <= step <= death]
                _draw_event(self.rng, self.texts, here, partial(self._add, step, 3))

    def _draw_budget(self) -> None:
        """A budget, which may be lifted later."""
        rng = self.rng
        first = rng.randint(0, self.steps)
        policy, sample = rng.choice(("steady", "jaqpot")), rng.choice((None, 7))
        self._add(first, 4, "budget", "", rng.choice((0.05, 0.5, 2, 20)), policy, sample)
        if rng.random() < 0.7:
            self._add(rng.randint(first, self.steps), 5, "lift")


def _draw_event(rng: random.Random, texts: Mapping[str, QueryText], here: list[str], add: Any) -> None:
    """An event that changes no result."""
    what = rng.choice(("restart", "migrate", "migrate", "migrate", "policy", "reslice", "schedule", "break"))
    name = rng.choice(here) if here else ""
    match what:
        case "restart":
            add("restart", "", rng.choice((1, 1, 2)))
        case "reslice":
            add("reslice", "", rng.choice(("mem-opt", "cpu-opt")))
        case "schedule":
            add("schedule", rng.choice(("", name)), rng.choice(("dfs", "bfs", "rr")))
        case "policy" if name:
            add("policy", name, rng.choice(STATES), rng.choice((None, rng.random())))
        case "break" if name:
            add(rng.choice(("break", "mend")), name)
        case "migrate" if name and any(len(join) > 1 for join in texts[name].joins):
            how = rng.choice(("jisc", "jisc", "moving-state", "parallel-track"))
            add("migrate", name, _draw_plan(rng, texts[name]), how)


def _draw_plan(rng: random.Random, text: QueryText) -> str | None:
    """A random plan for each join of a text, sometimes an eddy."""
    if not any(len(join) > 1 for join in text.joins):
        return None
    shapes = [random_plan(rng, join) for join in text.joins]
    eddies = (f"{{{' '.join(join)}}}" for join in text.joins)
    return "; ".join(
        e if len(j) > 2 and rng.random() < 0.1 else s for s, e, j in zip(shapes, eddies, text.joins, strict=True)
    )
