"""The lookout: takes samples of an engine's joins, each four times while its shortest window passes.

It is told when a push begins and ends, so that it knows the clock's seconds that pushes take. Looking, and what is
done with the samples if it is told, takes a part of the clock at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter

from penstock.adapt.join_budget import ticks_per_second
from penstock.adapt.monitor import JoinSample, PushStats, compute_horizon, sample_join
from penstock.adapt.protocols import ObservedBudgets, Q
from penstock.join.operator import JoinOperator
from penstock.state.kernels import ALWAYS, FOREVER

_SAMPLES_PER_WINDOW = 4
"""How often a join is looked at while its shortest window passes."""


@dataclass
class _LastSample:
    """A join since it was last looked at: its time, the span of pushes that count; pushes and the clock before that."""

    time: float
    pushes: int
    seconds: float
    span: float = 0.0


class Sampler:
    """Looks at the joins of one engine. `effort`: the part of the clock that this may take."""

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
        """A push begins."""
        self._push_begin = self._timer()

    def end(self) -> None:
        """A push has ended."""
        self._seconds += self._timer() - self._push_begin
        self._pushes += 1

    def skip_next(self) -> None:
        """The next look is for pushes that were not timed: time passes for the joins, and that is all."""
        self._skip_pending = True

    def add_cost(self, seconds: float) -> None:
        """So long it took to make use of the last samples."""
        self._sampling_cost += seconds

    def take_samples(
        self, joins: Iterable[JoinOperator], running: Callable[[str], Q], budgets: ObservedBudgets[Q]
    ) -> list[JoinSample]:
        """Samples of the joins whose time has come, if the last look has paid off."""
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
        """Note the time of a join; whether it is to be looked at again."""
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
