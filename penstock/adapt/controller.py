"""The controller of an engine: monitor → analyse in its own thread → act between two pushes.

Law: it changes how queries are answered, never what they answer, except by a budget, which a query allows by FRESHNESS.
An error of the analysis, or a command that cannot be applied, becomes a failed decision; queries continue.

It joins a `Sampler`, which sends samples, to a `DecisionThread`, which returns decisions. A pipeline has the same two
with Spark between them. Every decision is logged with the number of pushes before it; `DecisionReplay` applies a log
again at the same pushes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from queue import Empty, SimpleQueue
from time import perf_counter

from penstock.adapt.commands import CommandedEngine, ShedLoad
from penstock.adapt.decide import Decision, Rules
from penstock.adapt.decision_thread import DecisionThread, make_analysis, make_failed_decision
from penstock.adapt.protocols import ObservedBudgets, Q
from penstock.adapt.sampler import Sampler
from penstock.errors import QueryError
from penstock.join import JoinOperator

LOG_SIZE = 10_000
"""How many decisions a log holds."""


class Controller:
    """Adapts the queries of one engine, which calls it before and after every push."""

    def __init__(self, rules: Rules, timer: Callable[[], float] = perf_counter) -> None:
        self.rules = rules
        self.log: deque[Decision] = deque(maxlen=LOG_SIZE)
        self.budgeted_queries: set[str] = set()
        """The queries whose budgets it set. A snapshot omits these: a restored engine would never lift them."""
        self._sampler = Sampler(rules.effort, timer)
        self._outbox: SimpleQueue[tuple[list[Decision], float]] = SimpleQueue()
        self.decision_thread = DecisionThread(make_analysis(rules), _deliver_into(self._outbox))
        self._pending = False

    def close(self) -> None:
        """End the thread; decisions that are not made yet are not applied."""
        self._pending = False
        self.decision_thread.close()

    def before_push(self, engine: CommandedEngine, pushes: int) -> None:
        """Apply the decisions made since the last push."""
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
                if isinstance(done.command, ShedLoad) and done.error is None:
                    (self.budgeted_queries.add if done.command.limit else self.budgeted_queries.discard)(
                        done.command.name
                    )
        self._sampler.begin()

    def after_push(
        self, joins: Iterable[JoinOperator], running: Callable[[str], Q], budgets: ObservedBudgets[Q]
    ) -> None:
        """Sample the joins that are due, unless the last samples are still being analysed."""
        self._sampler.end()
        if self._pending or not self.decision_thread.open:
            return
        try:
            samples = self._sampler.take_samples(joins, running, budgets)
        except Exception as error:  # an error here must not stop queries
            self.log.append(make_failed_decision(error))
            return
        if samples:
            self.decision_thread.send(samples)
            self._pending = True


def _deliver_into(outbox: SimpleQueue[tuple[list[Decision], float]]) -> Callable[[list[Decision], float], None]:
    return lambda decisions, seconds: outbox.put((decisions, seconds))


def _execute_decision(decision: Decision, engine: CommandedEngine, pushes: int) -> Decision:
    """Apply a decision and return it as it is logged."""
    decision = replace(decision, push=pushes)
    if decision.command is not None:
        try:
            decision.command.apply(engine)
        except Exception as error:  # the query may have been dropped or changed since it was sampled
            return replace(decision, error=f"{type(error).__name__}: {error}")
    return decision


class DecisionReplay:
    """Applies the decisions of a log at the pushes at which they were applied before."""

    def __init__(self, decisions: Iterable[Decision]) -> None:
        self.log: list[Decision] = []
        self._upcoming = deque(sorted(_select_repeatable(decisions), key=lambda decision: decision.push or 0))

    def before_push(self, engine: CommandedEngine, pushes: int) -> None:
        while self._upcoming and (self._upcoming[0].push or 0) <= pushes:
            self.log.append(_execute_decision(self._upcoming.popleft(), engine, pushes))


def _select_repeatable(decisions: Iterable[Decision]) -> list[Decision]:
    found = list(decisions)
    for decision in found:
        if not isinstance(decision, Decision) or (decision.push is None and decision.error is None):
            raise QueryError("BAD_DECISIONS", f"replay takes what decisions() gave, not {decision!r}")
    return [decision for decision in found if decision.command is not None and decision.error is None]
