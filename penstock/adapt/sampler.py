"""Samples an engine's joins, each four times within its shortest window.

`begin` and `end` measure the seconds that pushes take. Sampling and the analysis of samples (`add_cost`) take at most a
given part of the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter

from penstock.adapt.join_budget import ticks_per_second
from penstock.adapt.monitor import JoinSample, PushStats, compute_horizon, sample_join
from penstock.adapt.protocols import ObservedBudgets, Q
from penstock.join import JoinOperator
from penstock.state import ALWAYS, FOREVER

_SAMPLES_PER_WINDOW = 4
"""How often a join is sampled within its shortest window."""


@dataclass
class _LastSample:
    """A join since its last sample: its time, pushes and seconds at that sample, and the event time covered since."""

    time: float
    pushes: int
    seconds: float
    span: float = 0.0


class Sampler:
    """Samples the joins of one engine. `effort`: the part of the clock that this may take."""

    def __init__(self, effort: float, timer: Callable[[], float] = perf_counter) -> None:
        self._max_share = effort
        self._timer = timer
        self._last_samples: dict[str, _LastSample] = {}
        self._pushes = 0
        self._seconds = 0.0
        self._push_begin = self._sampled_at = timer()
        self._sampling_cost = 0.0
        self._skip_pending = False

    def begin(self) -> None:
        """Record the begin of a push."""
        self._push_begin = self._timer()

    def end(self) -> None:
        """Record the end of a push."""
        self._seconds += self._timer() - self._push_begin
        self._pushes += 1

    def skip_next(self) -> None:
        """Take no samples at the next call: its pushes were not timed. Only the event time of the joins is recorded."""
        self._skip_pending = True

    def add_cost(self, seconds: float) -> None:
        """Add the seconds that the analysis of the last samples took."""
        self._sampling_cost += seconds

    def take_samples(
        self, joins: Iterable[JoinOperator], running: Callable[[str], Q], budgets: ObservedBudgets[Q]
    ) -> list[JoinSample]:
        """Samples of the joins that are due, unless the last ones have taken too large a part of the clock."""
        now = self._timer()
        multiple = [join for join in joins if len(join.tree.stores) > 1 and ALWAYS < join.done < FOREVER]
        due = [join for join in multiple if self._check_due(join)]
        skipped, self._skip_pending = self._skip_pending, False
        if skipped or now - self._sampled_at < self._sampling_cost * (1 / self._max_share - 1):
            return []
        samples = [each for join in due for each in self._iter_samples(join, running, budgets, len(multiple))]
        if samples:
            self._sampled_at = self._timer()
            self._sampling_cost = self._sampled_at - now
        return samples

    def _check_due(self, join: JoinOperator) -> bool:
        """Record the event time of a join and return whether it is due."""
        time = join.done / ticks_per_second(join.tree.plan)
        last = self._last_samples.setdefault(join.id, _LastSample(time, self._pushes, self._seconds))
        last.span += 0.0 if self._skip_pending else time - last.time
        last.time = time
        return last.span >= compute_horizon(join) / _SAMPLES_PER_WINDOW

    def _iter_samples(
        self, join: JoinOperator, running: Callable[[str], Q], budgets: ObservedBudgets[Q], joins: int
    ) -> Iterator[JoinSample]:
        last = self._last_samples[join.id]
        query = running(join.shared_join.members[0].id.query)
        _, places = query.list_shapes(join)
        if len(places) == 1:  # a query that joins the same streams twice has no single shape to change
            effort = PushStats(self._pushes - last.pushes, self._seconds - last.seconds, last.span)
            yield sample_join(join, query, budgets, last.time - last.span, effort, joins)
        self._last_samples[join.id] = _LastSample(last.time, self._pushes, self._seconds)
