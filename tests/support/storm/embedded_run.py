"""A storm on the embedded engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from law_support import STRESS_RULES

import penstock as ps
from penstock.plan import list_joins, parse_tree, require_tree
from penstock.state import SHIPPED
from penstock.state.maintenance import SMALLEST
from penstock.testing import Advance, Step
from penstock.testing.runner import declare
from storm.query_texts import QueryText
from storm.scenario import Event, Scenario

"""Acts on the slightest gain, at every look; `full` keeps it from shedding on a slow machine."""
STALE_ERRORS = ("QueryError: [UNKNOWN_QUERY]", "QueryError: [PLAN_MISFIT]")
"""Errors of decisions about a query that was dropped or altered before the next push."""


@dataclass
class QueryPeriod:
    """A query with one text, from the step before which it was added or altered to the step before which it ended."""

    name: str
    text: QueryText
    first: int
    has_history: bool = False
    last: int | None = None
    complete_since: list[Any] = field(default_factory=list)
    """The values of the metric `complete_since`, each time it was read."""
    answers: list[pa.Table] = field(default_factory=list)


class StormRun(ABC):
    """A run of a storm on any engine: the events before each step, and the results of every query."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.running: dict[str, QueryPeriod] = {}
        self.periods: list[QueryPeriod] = []
        self.position = "start"

    def run(self) -> list[QueryPeriod]:
        """The results of every query, by period; an error names its step and event."""
        try:
            self._run_steps()
        except Exception as error:
            raise AssertionError(f"{self.position}: {type(error).__name__}: {error}") from error
        return self.periods

    def iter_steps(self) -> Iterator[Step | None]:
        """Each step, after the events before it; None is the end of all streams."""
        steps = self.scenario.case.steps
        for number in range(len(steps) + 1):
            for event in self.scenario.events:
                if event.step == number:
                    self.position = f"step {number}, {event.action} {event.query} {event.args}"
                    self._apply_event(event, number)
            self.position = f"step {number}"
            step = steps[number] if number < len(steps) else None
            yield step

    @abstractmethod
    def _run_steps(self) -> None:
        """Run all steps."""

    @abstractmethod
    def _apply_event(self, event: Event, number: int) -> None:
        """Apply an event before step `number`."""


class EmbeddedRun(StormRun):
    """Runs a storm and collects the results of every query."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        adapt = STRESS_RULES if scenario.options["adapt"] else False
        upkeep = SMALLEST if scenario.smallest_maintenance else SHIPPED
        self.engine = ps.Engine(**{**scenario.options, "adapt": adapt}, maintenance=upkeep)
        self.unread: list[list[tuple[QueryPeriod, Any, str]]] = []

    def _run_steps(self) -> None:
        declare(self.engine, self.scenario.case)
        for step in self.iter_steps():
            if isinstance(step, Advance):
                self.engine.advance(step.stream, step.value)
            else:
                self._collect(self.engine.flush() if step is None else self.engine.push(dict(step.batches)))
        for segment in self.running.values():
            if not segment.text.is_derived:
                self._read_complete_since(segment)
        self._read_results(0)
        if self.scenario.options["adapt"]:
            wrong = [each for each in self.engine.decisions() if each.error and not each.error.startswith(STALE_ERRORS)]
            assert not wrong, f"decisions that could not be carried out: {wrong}"
        assert not self.engine.failures(), self.engine.failures()

    def _collect(self, out: Any) -> None:
        """Keep the results of a push; read them now, after the next push, or at the end."""
        shown = {name: segment for name, segment in self.running.items() if not segment.text.is_derived}
        assert set(out) == set(shown), f"results for {sorted(out)}, queries {sorted(shown)}"
        self.unread.append([(segment, out, name) for name, segment in shown.items()])
        self._read_results({"now": 0, "later": 1, "end": 1 << 30}[self.scenario.read_when])

    def _read_results(self, left: int) -> None:
        while len(self.unread) > left:
            for segment, out, name in self.unread.pop(0):
                segment.answers.append(out[name])

    def _apply_event(self, event: Event, number: int) -> None:
        with suppress(ps.UnsupportedError):  # a parallel track with an unbounded window, a budget with a nested query
            handle = getattr(self, f"_{event.action}")
            if not event.query or event.query in self.running or event.action in ("query", "derive"):
                handle(event, number)

    # ── queries ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _query(self, event: Event, number: int) -> None:
        plan, state, history = event.args
        text = self.scenario.texts[event.query]
        self.engine.query(event.query, text.text, plan, state, history=history)
        self._start_period(QueryPeriod(event.query, text, number, has_history=history))

    def _derive(self, event: Event, number: int) -> None:
        plan, state, _ = event.args
        text = self.scenario.texts[event.query]
        self.engine.derive(event.query, text.text, plan, state)
        self._start_period(QueryPeriod(event.query, text, number))

    def _start_period(self, segment: QueryPeriod) -> None:
        self.running[segment.name] = segment
        if not segment.text.is_derived:
            self.periods.append(segment)
            self._read_complete_since(segment)

    def _read_complete_since(self, segment: QueryPeriod) -> None:
        metrics = self.engine.metrics(segment.name)
        if "complete_since" in metrics:
            segment.complete_since.append(metrics["complete_since"])

    def _end_period(self, name: str, number: int) -> None:
        self.running.pop(name).last = number

    def _drop(self, event: Event, number: int) -> None:
        self.engine.drop(event.query)
        self._end_period(event.query, number)

    def _alter(self, event: Event, number: int) -> None:
        text = self.scenario.texts[f"{event.query}'"]
        self.engine.alter(event.query, text.text)
        self._end_period(event.query, number)
        self._start_period(QueryPeriod(event.query, text, number, has_history=True))

    # ── events without effect on results ─────────────────────────────────────────────────────────────────────────

    def _migrate(self, event: Event, _number: int) -> None:
        plan, how = event.args
        if plan is not None and self.running[event.query].text == self.scenario.texts[event.query]:
            self.engine.migrate(event.query, plan, how)

    def _policy(self, event: Event, _number: int) -> None:
        state, drawn = event.args
        node = None if drawn is None else self._find_node(event.query, drawn)
        self.engine.policy(event.query, state, node)

    def _find_node(self, name: str, drawn: float) -> str | None:
        """A node of a query's plan, if the plan is one join tree."""
        plan = str(self.engine.metrics(name).get("plan", ""))
        aliases = self.running[name].text.joins
        if len(aliases) != 1 or "(" not in plan or "{" in plan or ";" in plan:
            return None
        nodes = list(_list_nodes(plan, aliases[0]))
        return nodes[int(drawn * len(nodes))] if nodes else None

    def _restart(self, event: Event, _number: int) -> None:
        for _ in range(event.args[0]):
            self.engine.close()
            self.engine = ps.Engine.restore(self.engine.snapshot())

    def _reslice(self, event: Event, _number: int) -> None:
        self.engine.reslice(event.args[0])

    def _schedule(self, event: Event, _number: int) -> None:
        self.engine.schedule(event.args[0], event.query or None)

    def _break(self, event: Event, _number: int) -> None:
        self.engine.break_after(event.query)

    def _mend(self, event: Event, _number: int) -> None:
        self.engine.clear_break(event.query)

    def _budget(self, event: Event, _number: int) -> None:
        probes, policy, sample = event.args
        self.engine.budget(probes, policy, sample=sample)

    def _lift(self, _event: Event, _number: int) -> None:
        self.engine.budget(None)


def _list_nodes(plan: str, aliases: tuple[str, ...]) -> Iterator[str]:
    """The text of each node below the root of a plan."""
    tree = require_tree(parse_tree(plan, aliases))
    return (str(node) for node in list_joins(tree) if node is not tree)
