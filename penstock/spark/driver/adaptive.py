"""The closed loop of a pipeline: cells look → the driver merges → a thread decides → commands of the control stream.

It is the controller of the embedded engine with Spark in its middle: the `Lookout` sits in the cells, the `Analyst` in
the driver. A decision is a command like those a user gives, so it is part of the checkpointed input and counts from a
micro-batch on, the same one when that is repeated.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any

from penstock.adapt.controller import LOG
from penstock.adapt.decide import Action, Command, Decision, Rules
from penstock.adapt.decision_thread import Analyst, analysis
from penstock.adapt.monitor import Effort, Sample
from penstock.adapt.sample_merger import Gathering

_LEAST_ROOM = 0.2
"""The part of the time for a micro-batch that the engines are given, however much Spark's own work takes."""
_BATCHES = 9

Give = Callable[[Command, Callable[[int], None]], object]
"""Gives a command; the function is told the micro-batch from which on it counts."""


@dataclass
class Pace:
    """How much of the clock the engines have: what the trigger, or event time, leaves beside Spark's own work.

    `interval`: the seconds of a processingTime trigger. `waves`: how many cells a core works on, one after the other.
    """

    interval: float | None
    waves: int
    _worked: dict[int, float] = field(default_factory=dict)
    _rest: deque[float] = field(default_factory=lambda: deque(maxlen=_BATCHES))

    def worked(self, batch: int, seconds: float) -> None:
        """The engine that took longest in a micro-batch took so long."""
        self._worked[batch] = seconds
        self._worked.pop(batch - _BATCHES, None)

    def took(self, batch: int, seconds: float) -> None:
        """So long a whole micro-batch took."""
        if batch in self._worked:
            self._rest.append(max(0.0, seconds - self.waves * self._worked.pop(batch)))

    def allowed(self, effort: Effort, speed: float) -> Effort:
        """The effort with the time there was for it; nothing is allowed or forbidden before a micro-batch was timed."""
        if not self._rest:
            return replace(effort, allowed=effort.seconds)
        whole = effort.pushes * self.interval if self.interval else effort.span / speed
        left = max(whole - effort.pushes * median(self._rest), _LEAST_ROOM * whole)
        return replace(effort, allowed=left / self.waves)


class Steering:
    """Decides for a running pipeline. `progress`: Spark's report of the last micro-batch, None if there is none."""

    def __init__(
        self,
        rules: Rules,
        matters: Collection[Action],
        cells: int,
        pace: Pace,
        progress: Callable[[], Any],
        give: Give,
    ) -> None:
        self._rules = rules
        self._pace = pace
        self._progress = progress
        self._give = give
        self._gathering = Gathering(cells)
        each = replace(rules, least=rules.least / cells)  # what is observed is a cell on average
        self._analyst = Analyst(analysis(each, matters), self._deliver)
        self._log: deque[Decision] = deque(maxlen=LOG)
        self._logging = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()

    def heard(
        self, batch: int, worked: Sequence[float], samples: Mapping[int, Sequence[Sample]], queries: Collection[str]
    ) -> None:
        """After a micro-batch: the seconds the engines took, and what the cells saw, by cell."""
        self._pace.worked(batch, max(worked, default=0.0))
        last = self._progress()
        if last is not None:
            self._pace.took(last["batchId"], last["durationMs"].get("triggerExecution", 0) / 1000)
        together = self._gathering.add(samples, queries)
        if together and self._idle.is_set() and self._analyst.open:
            self._idle.clear()
            speed = self._rules.speed
            self._analyst.send([replace(each, effort=self._pace.allowed(each.effort, speed)) for each in together])
            if self._rules.wait:
                self._idle.wait()

    def failed(self, error: str) -> None:
        """A cell could not look."""
        with self._logging:
            self._log.append(Decision(None, 0.0, {}, error=error))

    def decisions(self) -> list[Decision]:
        """What was decided; `push` is the micro-batch from which on it counts, None if that is still to come."""
        with self._logging:
            return list(self._log)

    def close(self) -> None:
        """End the thread."""
        self._analyst.close()

    def _deliver(self, decisions: list[Decision], seconds: float) -> None:
        del seconds  # the driver has time: it is the cells that must not look too often
        try:
            for decision in decisions:
                with self._logging:
                    self._log.append(decision)
                if decision.command is not None:
                    self._try(decision, decision.command)
        finally:
            self._idle.set()  # a micro-batch may wait for it

    def _try(self, decision: Decision, command: Command) -> None:
        try:
            self._give(command, partial(self._counts_from, decision))
        except Exception as error:  # the query may be gone, or the run, or the folder of commands out of reach
            self._note(decision, error=f"{type(error).__name__}: {error}")

    def _counts_from(self, made: Decision, batch: int) -> None:
        self._note(made, push=batch)

    def _note(self, made: Decision, **told: Any) -> None:
        with self._logging:
            for place, entry in enumerate(self._log):
                if entry is made:
                    self._log[place] = replace(entry, **told)
                    return
