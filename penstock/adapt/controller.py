"""The controller: monitor → analyse in its own thread → act between two pushes.

Law: it changes how queries are answered, never what they answer; but for a budget, which a query allows by FRESHNESS.
An error of the analysis, or a command that cannot be carried out, becomes a decision that failed; queries go on.

The thread knows no engine: it gets samples and gives back decisions, through two queues. So whoever carries samples
one way and commands the other, say to the cells of a pipeline, can use `analysis` as it is. Every decision stands in a
log with the number of pushes before it; `Replay` carries a log out again at the same pushes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from threading import Thread
from time import perf_counter, thread_time
from typing import Protocol, cast
from weakref import finalize

from penstock.adapt.budget import Budgets
from penstock.adapt.decide import Command, Decision, Memory, Rules, decided
from penstock.adapt.monitor import Effort, Observation, Sample, horizon, observed, sampled
from penstock.adapt.overload import ticks_per_second
from penstock.errors import QueryError
from penstock.ops.group import Slicing
from penstock.ops.join import JoinOperator
from penstock.running import RunningQuery
from penstock.state.kernels import ALWAYS, FOREVER

_LOOKS = 4
"""How often a join is looked at while its shortest window passes."""
_LOG = 10_000
_KEPT = 4
"""How many joins are remembered for each there is."""


class Governed(Protocol):
    """An engine, as far as a controller knows it."""

    def migrate(self, name: str, plan: str) -> None: ...
    def policy(self, name: str, state: str) -> None: ...
    def reslice(self, slicing: Slicing, query: str | None) -> None: ...
    def budget(self, probes: float | str | None, *, query: str | None) -> None: ...
    def unbind(self, name: str) -> None: ...


def carry_out(command: Command, engine: Governed) -> None:
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


def analysis(rules: Rules) -> Callable[[Sequence[Sample]], list[Decision]]:
    """A function that turns samples into decisions and remembers what it must."""
    seen: dict[str, Observation] = {}
    memories: dict[str, Memory] = {}

    def analyse(samples: Sequence[Sample]) -> list[Decision]:
        decisions: list[Decision] = []
        for sample in samples:
            seen[sample.join] = observed(sample, seen.pop(sample.join, None))
            memories[sample.query], found = decided(seen[sample.join], memories.pop(sample.query, Memory()), rules)
            decisions += found
            for table in (seen, memories):  # the latest come last: what goes is of queries that were dropped
                while len(table) > _KEPT * sample.joins:
                    del table[next(iter(table))]
        return decisions

    return analyse


Inbox = SimpleQueue[Sequence[Sample] | None]
Outbox = SimpleQueue[tuple[list[Decision], float]]
"""Decisions, and the processor's seconds that they took."""


def _work(inbox: Inbox, outbox: Outbox, analyse: Callable[[Sequence[Sample]], list[Decision]]) -> None:
    """The thread: an answer for every list of samples, until None comes."""
    while (samples := inbox.get()) is not None:
        begin = thread_time()
        try:
            decisions = analyse(samples)
        except Exception as error:  # whatever it is, it must not reach a query
            decisions = [_failure(error, max((sample.time for sample in samples), default=0.0))]
        outbox.put((decisions, thread_time() - begin))


def _failure(error: Exception, time: float = 0.0) -> Decision:
    return Decision(None, time, {}, error=f"{type(error).__name__}: {error}")


@dataclass
class _Last:
    """When a join was last looked at: event time in seconds, pushes and seconds of the clock before it."""

    time: float
    pushes: int
    seconds: float


class Controller:
    """Adapts the queries of one engine, which calls it before and after every push."""

    def __init__(self, rules: Rules, timer: Callable[[], float] = perf_counter) -> None:
        self.rules = rules
        self.log: deque[Decision] = deque(maxlen=_LOG)
        self.bound: set[str] = set()
        """The queries whose budgets are its own: a snapshot leaves them out, for it would not know to lift them."""
        self._timer = timer
        self._analyse = analysis(rules)
        self._inbox: Inbox = SimpleQueue()
        self._outbox: Outbox = SimpleQueue()
        self._thread: Thread | None = None
        self._end = finalize(self, self._inbox.put, None)
        self._pending = False
        self._lasts: dict[str, _Last] = {}
        self._pushes = 0
        self._seconds = 0.0
        self._began = timer()
        self._looked_at = self._began
        self._looking = 0.0

    def close(self) -> None:
        """End the thread; what it has not decided yet is not decided."""
        self._end()
        self._pending = False
        if self._thread is not None:
            self._thread.join()

    def before(self, engine: Governed, pushes: int) -> None:
        """Carry out what was decided meanwhile."""
        if self._pending:
            try:
                decisions, seconds = self._outbox.get(block=self.rules.wait)
            except Empty:
                decisions = []
            else:
                self._pending = False
                self._looking += seconds
            for decision in decisions:
                self.log.append(done := _carried_out(decision, engine, pushes))
                if done.command is not None and done.command.do == "budget" and done.error is None:
                    (self.bound.add if done.command.value else self.bound.discard)(done.command.query)
        self._began = self._timer()

    def after(self, joins: Iterable[JoinOperator], running: Callable[[str], RunningQuery], budgets: Budgets) -> None:
        """Look at the joins whose time has come, unless the last samples are still being analysed."""
        now = self._timer()
        self._seconds += now - self._began
        self._pushes += 1
        paid_off = now - self._looked_at >= self._looking * (1 / self.rules.effort - 1)
        if self._pending or not paid_off or not self._end.alive:
            return
        try:
            samples = self._samples(list(joins), running, budgets)
        except Exception as error:  # whatever it is, it must not reach a query
            self.log.append(_failure(error))
            return
        if samples:
            self._send(samples)
            self._looked_at = self._timer()
            self._looking = self._looked_at - now

    def _samples(
        self, joins: Sequence[JoinOperator], running: Callable[[str], RunningQuery], budgets: Budgets
    ) -> list[Sample]:
        samples = []
        joins = [join for join in joins if len(join.tree.stores) > 1]
        for join in joins:
            if not ALWAYS < join.done < FOREVER:
                continue
            time = join.done / ticks_per_second(join.tree.plan)
            last = self._lasts.setdefault(join.id, _Last(time, self._pushes, self._seconds))
            if time - last.time < horizon(join) / _LOOKS:
                continue
            query = running(join.group.members[0].name.rpartition(": ")[0])
            _, places = query.shapes_of(join)
            if len(places) == 1:  # a query that joins the same streams twice has no single shape to change
                effort = Effort(self._pushes - last.pushes, self._seconds - last.seconds, time - last.time)
                samples.append(sampled(join, query, budgets, last.time, effort, len(joins)))
            self._lasts[join.id] = _Last(time, self._pushes, self._seconds)
        return samples

    def _send(self, samples: Sequence[Sample]) -> None:
        if self._thread is None:
            work = (self._inbox, self._outbox, self._analyse)
            self._thread = Thread(target=_work, args=work, name="penstock controller", daemon=True)
            self._thread.start()
        self._inbox.put(samples)
        self._pending = True


def _carried_out(decision: Decision, engine: Governed, pushes: int) -> Decision:
    """The decision as it goes into the log."""
    decision = replace(decision, push=pushes)
    if decision.command is not None:
        try:
            carry_out(decision.command, engine)
        except Exception as error:  # a query may be gone, or bound otherwise, since it was looked at
            return replace(decision, error=f"{type(error).__name__}: {error}")
    return decision


class Replay:
    """Carries out the decisions of a log at the pushes at which they were carried out."""

    def __init__(self, decisions: Iterable[Decision]) -> None:
        self.log: list[Decision] = []
        self._coming = deque(sorted(_to_repeat(decisions), key=lambda decision: decision.push or 0))

    def before(self, engine: Governed, pushes: int) -> None:
        while self._coming and (self._coming[0].push or 0) <= pushes:
            self.log.append(_carried_out(self._coming.popleft(), engine, pushes))


def _to_repeat(decisions: Iterable[Decision]) -> list[Decision]:
    found = list(decisions)
    for decision in found:
        if not isinstance(decision, Decision) or (decision.push is None and decision.error is None):
            raise QueryError("BAD_DECISIONS", f"replay takes what decisions() gave, not {decision!r}")
    return [decision for decision in found if decision.command is not None and decision.error is None]
