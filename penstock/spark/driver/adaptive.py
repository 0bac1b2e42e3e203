"""The closed loop of a pipeline: cells sample → the driver merges → a thread decides → commands of the control stream.

It is the controller of the embedded engine with Spark in between: the `Sampler` runs in the cells, the `DecisionThread`
in the driver. A decision is a command like those of a user: it is part of the checkpointed input and takes effect at
the same micro-batch when that is repeated.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any

from penstock.adapt import (
    LOG_SIZE,
    Action,
    AdaptCommand,
    Decision,
    DecisionThread,
    JoinSample,
    PushStats,
    Rules,
    SampleMerger,
    make_analysis,
)

_MIN_ENGINE_SHARE = 0.2
"""The smallest part of the time for a micro-batch that engines get, however long Spark's own work takes."""
_TIMED_BATCHES = 9

SendCommand = Callable[[AdaptCommand, Callable[[int], None]], object]
"""Sends a command; the callback gets the micro-batch from which on it takes effect."""


@dataclass
class BatchTiming:
    """The time available to engines: the trigger interval, or event time, minus Spark's own work.

    `interval`: the seconds of a processingTime trigger. `cells_per_core`: how many cells a core processes in turn.
    """

    interval: float | None
    cells_per_core: int
    _engine_seconds: dict[int, float] = field(default_factory=dict)
    _overhead_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMED_BATCHES))

    def record_engine_time(self, batch: int, seconds: float) -> None:
        """Record the seconds of the slowest engine in a micro-batch."""
        self._engine_seconds[batch] = seconds
        self._engine_seconds.pop(batch - _TIMED_BATCHES, None)

    def record_batch_time(self, batch: int, seconds: float) -> None:
        """Record the seconds of a whole micro-batch."""
        if batch in self._engine_seconds:
            self._overhead_seconds.append(max(0.0, seconds - self.cells_per_core * self._engine_seconds.pop(batch)))

    def limit_effort(self, effort: PushStats, speed: float) -> PushStats:
        """Push statistics with the time available. Before a micro-batch was timed that is the time used."""
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
    """Decides for a running pipeline. `progress` returns Spark's report of the last micro-batch or None."""

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
        each = replace(rules, least=rules.least / cells)  # samples describe an average cell
        self._decision_thread = DecisionThread(make_analysis(each, actions), self._deliver)
        self._log: deque[Decision] = deque(maxlen=LOG_SIZE)
        self._log_lock = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()

    def observe(self, report: BatchReport) -> None:
        """Decide on the reports of cells; called after every micro-batch."""
        for cell in report.cells.values():
            if cell["failure"] is not None:
                self._log_failure(cell["failure"])
        self.add_batch(report.batch, [cell["worked"] for cell in report.cells.values()], report.samples, report.queries)

    def add_batch(
        self, batch: int, worked: Sequence[float], samples: Mapping[int, Sequence[JoinSample]], queries: Collection[str]
    ) -> None:
        """Add the seconds that engines took in a micro-batch, and the samples by cell."""
        self._timing.record_engine_time(batch, max(worked, default=0.0))
        last = self._progress()
        if last is not None:
            self._timing.record_batch_time(last["batchId"], last["durationMs"].get("triggerExecution", 0) / 1000)
        merged = self._merger.add(samples, queries)
        if merged and self._idle.is_set() and self._decision_thread.open:
            self._idle.clear()
            speed = self._rules.speed
            self._decision_thread.send(
                [replace(each, push_stats=self._timing.limit_effort(each.push_stats, speed)) for each in merged]
            )
            if self._rules.wait:
                self._idle.wait()

    def _log_failure(self, error: str) -> None:
        """Log that a cell could not be sampled."""
        with self._log_lock:
            self._log.append(Decision(None, 0.0, {}, error=error))

    def decisions(self) -> list[Decision]:
        """The decisions; `push` is the micro-batch from which on one takes effect, None if that is not known yet."""
        with self._log_lock:
            return list(self._log)

    def close(self) -> None:
        """End the thread."""
        self._decision_thread.close()

    def _deliver(self, decisions: list[Decision], seconds: float) -> None:
        del seconds  # time of the driver is not limited: only sampling in the cells is
        try:
            for decision in decisions:
                with self._log_lock:
                    self._log.append(decision)
                if decision.command is not None:
                    self._try_send(decision, decision.command)
        finally:
            self._idle.set()  # a micro-batch may wait for this event

    def _try_send(self, decision: Decision, command: AdaptCommand) -> None:
        try:
            self._send_command(command, partial(self._log_effect, decision))
        except Exception as error:  # the query or the run may have ended, or the folder of commands cannot be written
            self._update_log(decision, error=f"{type(error).__name__}: {error}")

    def _log_effect(self, decision: Decision, batch: int) -> None:
        self._update_log(decision, push=batch)

    def _update_log(self, decision: Decision, **changes: Any) -> None:
        with self._log_lock:
            for place, entry in enumerate(self._log):
                if entry is decision:
                    self._log[place] = replace(entry, **changes)
                    return
