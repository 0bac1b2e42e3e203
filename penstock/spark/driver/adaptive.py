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

from penstock.adapt.commands import Action, AdaptCommand
from penstock.adapt.controller import LOG_SIZE
from penstock.adapt.decide import Decision, Rules
from penstock.adapt.decision_thread import DecisionThread, make_analysis
from penstock.adapt.monitor import JoinSample, PushStats
from penstock.adapt.sample_merger import SampleMerger

_MIN_ENGINE_SHARE = 0.2
"""The part of the time for a micro-batch that the engines are given, however much Spark's own work takes."""
_TIMED_BATCHES = 9

SendCommand = Callable[[AdaptCommand, Callable[[int], None]], object]
"""Gives a command; the function is told the micro-batch from which on it counts."""


@dataclass
class BatchTiming:
    """How much of the clock the engines have: what the trigger, or event time, leaves beside Spark's own work.

    `interval`: the seconds of a processingTime trigger. `waves`: how many cells a core works on, one after the other.
    """

    interval: float | None
    cells_per_core: int
    _engine_seconds: dict[int, float] = field(default_factory=dict)
    _overhead_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMED_BATCHES))

    def record_engine_time(self, batch: int, seconds: float) -> None:
        """The engine that took longest in a micro-batch took so long."""
        self._engine_seconds[batch] = seconds
        self._engine_seconds.pop(batch - _TIMED_BATCHES, None)

    def record_batch_time(self, batch: int, seconds: float) -> None:
        """So long a whole micro-batch took."""
        if batch in self._engine_seconds:
            self._overhead_seconds.append(max(0.0, seconds - self.cells_per_core * self._engine_seconds.pop(batch)))

    def limit_effort(self, effort: PushStats, speed: float) -> PushStats:
        """The effort with the time there was for it; nothing is allowed or forbidden before a micro-batch was timed."""
        if not self._overhead_seconds:
            return replace(effort, allowed_seconds=effort.seconds)
        whole = effort.pushes * self.interval if self.interval else effort.event_seconds / speed
        left = max(whole - effort.pushes * median(self._overhead_seconds), _MIN_ENGINE_SHARE * whole)
        return replace(effort, allowed_seconds=left / self.cells_per_core)


@dataclass(frozen=True)
class BatchReport:
    """What the cells report of a micro-batch: figures and samples by cell, and the queries that run."""

    batch: int
    cells: Mapping[int, Mapping[str, Any]]
    samples: Mapping[int, Sequence[JoinSample]]
    queries: frozenset[str]


class AdaptiveRun:
    """Decides for a running pipeline. `progress`: Spark's report of the last micro-batch, None if there is none."""

    def __init__(
        self,
        rules: Rules,
        actions: Collection[Action],
        cells: int,
        timing: BatchTiming,
        progress: Callable[[], Any],
        send_command: SendCommand,
    ) -> None:
        self._rules = rules
        self._timing = timing
        self._progress = progress
        self._send_command = send_command
        self._merger = SampleMerger(cells)
        each = replace(rules, least=rules.least / cells)  # what is observed is a cell on average
        self._decision_thread = DecisionThread(make_analysis(each, actions), self._deliver)
        self._log: deque[Decision] = deque(maxlen=LOG_SIZE)
        self._log_lock = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()

    def observe(self, report: BatchReport) -> None:
        """Decide on what the cells report; called after every micro-batch."""
        for cell in report.cells.values():
            if cell["failure"] is not None:
                self._log_failure(cell["failure"])
        self.add_batch(report.batch, [cell["worked"] for cell in report.cells.values()], report.samples, report.queries)

    def add_batch(
        self, batch: int, worked: Sequence[float], samples: Mapping[int, Sequence[JoinSample]], queries: Collection[str]
    ) -> None:
        """After a micro-batch: the seconds the engines took, and what the cells saw, by cell."""
        self._timing.record_engine_time(batch, max(worked, default=0.0))
        last = self._progress()
        if last is not None:
            self._timing.record_batch_time(last["batchId"], last["durationMs"].get("triggerExecution", 0) / 1000)
        together = self._merger.add(samples, queries)
        if together and self._idle.is_set() and self._decision_thread.open:
            self._idle.clear()
            speed = self._rules.speed
            self._decision_thread.send(
                [replace(each, push_stats=self._timing.limit_effort(each.push_stats, speed)) for each in together]
            )
            if self._rules.wait:
                self._idle.wait()

    def _log_failure(self, error: str) -> None:
        """A cell could not look."""
        with self._log_lock:
            self._log.append(Decision(None, 0.0, {}, error=error))

    def decisions(self) -> list[Decision]:
        """What was decided; `push` is the micro-batch from which on it counts, None if that is still to come."""
        with self._log_lock:
            return list(self._log)

    def close(self) -> None:
        """End the thread."""
        self._decision_thread.close()

    def _deliver(self, decisions: list[Decision], seconds: float) -> None:
        del seconds  # the driver has time: it is the cells that must not look too often
        try:
            for decision in decisions:
                with self._log_lock:
                    self._log.append(decision)
                if decision.command is not None:
                    self._try_send(decision, decision.command)
        finally:
            self._idle.set()  # a micro-batch may wait for it

    def _try_send(self, decision: Decision, command: AdaptCommand) -> None:
        try:
            self._send_command(command, partial(self._log_effect, decision))
        except Exception as error:  # the query may be gone, or the run, or the folder of commands out of reach
            self._update_log(decision, error=f"{type(error).__name__}: {error}")

    def _log_effect(self, made: Decision, batch: int) -> None:
        self._update_log(made, push=batch)

    def _update_log(self, made: Decision, **changes: Any) -> None:
        with self._log_lock:
            for place, entry in enumerate(self._log):
                if entry is made:
                    self._log[place] = replace(entry, **changes)
                    return
