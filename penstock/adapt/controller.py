"""The controller of an engine: monitor → analyse in its own thread → act between two pushes.

Law: it changes how queries are answered, never what they answer; but for a budget, which a query allows by FRESHNESS.
An error of the analysis, or a command that cannot be carried out, becomes a decision that failed; queries go on.

It is a `Lookout` and an `Analyst`, put together: samples one way, decisions the other. A pipeline has the same two with
Spark between them. Every decision stands in a log with the number of pushes before it; `Replay` carries a log out again
at the same pushes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Protocol, cast

from penstock.adapt.decide import AdaptCommand, Decision, Rules
from penstock.adapt.decision_thread import DecisionThread, make_analysis, make_failed_decision
from penstock.adapt.protocols import ObservedBudgets, Q
from penstock.adapt.sampler import Sampler
from penstock.errors import QueryError
from penstock.join.operator import JoinOperator
from penstock.join.sharing.slices import Slicing

LOG_SIZE = 10_000
"""How many decisions a log holds."""


class AdaptableEngine(Protocol):
    """An engine, as far as a controller knows it."""

    def migrate(self, name: str, plan: str) -> None: ...
    def policy(self, name: str, state: str) -> None: ...
    def reslice(self, slicing: Slicing, query: str | None) -> None: ...
    def budget(self, probes: float | str | None, *, query: str | None) -> None: ...
    def unbind(self, name: str) -> None: ...


def execute_command(command: AdaptCommand, engine: AdaptableEngine) -> None:
    """Do what a command says, by the engine's own methods."""
    if command.do == "budget":
        if command.value is None:
            engine.unbind(command.query)
        else:
            engine.budget(command.value, query=command.query)
    elif command.do == "reslice":
        engine.reslice(cast(Slicing, command.value), command.query)
    elif command.value is not None:
        (engine.migrate if command.do == "migrate" else engine.policy)(command.query, command.value)


class Controller:
    """Adapts the queries of one engine, which calls it before and after every push."""

    def __init__(self, rules: Rules, timer: Callable[[], float] = perf_counter) -> None:
        self.rules = rules
        self.log: deque[Decision] = deque(maxlen=LOG_SIZE)
        self.budgeted_queries: set[str] = set()
        """The queries whose budgets are its own: a snapshot leaves them out, for it would not know to lift them."""
        self._sampler = Sampler(rules.effort, timer)
        self._outbox: SimpleQueue[tuple[list[Decision], float]] = SimpleQueue()
        self.decision_thread = DecisionThread(make_analysis(rules), _deliver_into(self._outbox))
        self._pending = False

    def close(self) -> None:
        """End the thread; what it has not decided yet is not carried out."""
        self._pending = False
        self.decision_thread.close()

    def before_push(self, engine: AdaptableEngine, pushes: int) -> None:
        """Carry out what was decided meanwhile."""
        if self._pending:
            try:
                decisions, seconds = self._outbox.get(block=self.rules.wait)
            except Empty:
                decisions = []
            else:
                self._pending = False
                self._sampler.add_cost(seconds)
            for decision in decisions:
                self.log.append(done := _execute_decision(decision, engine, pushes))
                if done.command is not None and done.command.do == "budget" and done.error is None:
                    (self.budgeted_queries.add if done.command.value else self.budgeted_queries.discard)(
                        done.command.query
                    )
        self._sampler.begin()

    def after_push(
        self, joins: Iterable[JoinOperator], running: Callable[[str], Q], budgets: ObservedBudgets[Q]
    ) -> None:
        """Look at the joins whose time has come, unless the last samples are still being analysed."""
        self._sampler.end()
        if self._pending or not self.decision_thread.open:
            return
        try:
            samples = self._sampler.take_samples(joins, running, budgets)
        except Exception as error:  # whatever it is, it must not reach a query
            self.log.append(make_failed_decision(error))
            return
        if samples:
            self.decision_thread.send(samples)
            self._pending = True


def _deliver_into(outbox: SimpleQueue[tuple[list[Decision], float]]) -> Callable[[list[Decision], float], None]:
    return lambda decisions, seconds: outbox.put((decisions, seconds))


def _execute_decision(decision: Decision, engine: AdaptableEngine, pushes: int) -> Decision:
    """The decision as it goes into the log."""
    decision = replace(decision, push=pushes)
    if decision.command is not None:
        try:
            execute_command(decision.command, engine)
        except Exception as error:  # a query may be gone, or bound otherwise, since it was looked at
            return replace(decision, error=f"{type(error).__name__}: {error}")
    return decision


class DecisionReplay:
    """Carries out the decisions of a log at the pushes at which they were carried out."""

    def __init__(self, decisions: Iterable[Decision]) -> None:
        self.log: list[Decision] = []
        self._upcoming = deque(sorted(_select_repeatable(decisions), key=lambda decision: decision.push or 0))

    def before_push(self, engine: AdaptableEngine, pushes: int) -> None:
        while self._upcoming and (self._upcoming[0].push or 0) <= pushes:
            self.log.append(_execute_decision(self._upcoming.popleft(), engine, pushes))


def _select_repeatable(decisions: Iterable[Decision]) -> list[Decision]:
    found = list(decisions)
    for decision in found:
        if not isinstance(decision, Decision) or (decision.push is None and decision.error is None):
            raise QueryError("BAD_DECISIONS", f"replay takes what decisions() gave, not {decision!r}")
    return [decision for decision in found if decision.command is not None and decision.error is None]
