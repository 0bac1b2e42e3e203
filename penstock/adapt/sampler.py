"""The lookout: takes samples of an engine's joins, each four times while its shortest window passes.

It is told when a push begins and ends, so that it knows the clock's seconds that pushes take. Looking, and what is
done with the samples if it is told, takes a part of the clock at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter

from penstock.adapt.join_budget import ticks_per_second
from penstock.adapt.monitor import Effort, Sample, horizon, sampled
from penstock.adapt.protocols import ObservedBudgets, Q
from penstock.join.operator import JoinOperator
from penstock.state.kernels import ALWAYS, FOREVER

_LOOKS = 4
"""How often a join is looked at while its shortest window passes."""


@dataclass
class _Last:
    """A join since it was last looked at: its time, the span of pushes that count; pushes and the clock before that."""

    time: float
    pushes: int
    seconds: float
    span: float = 0.0


class Lookout:
    """Looks at the joins of one engine. `effort`: the part of the clock that this may take."""

    def __init__(self, effort: float, timer: Callable[[], float] = perf_counter) -> None:
        self._effort = effort
        self._timer = timer
        self._lasts: dict[str, _Last] = {}
        self._pushes = 0
        self._seconds = 0.0
        self._began = self._looked_at = timer()
        self._looking = 0.0
        self._skipping = False

    def begin(self) -> None:
        """A push begins."""
        self._began = self._timer()

    def end(self) -> None:
        """A push has ended."""
        self._seconds += self._timer() - self._began
        self._pushes += 1

    def skip(self) -> None:
        """The next look is for pushes that were not timed: time passes for the joins, and that is all."""
        self._skipping = True

    def spent(self, seconds: float) -> None:
        """So long it took to make use of the last samples."""
        self._looking += seconds

    def look(
        self, joins: Iterable[JoinOperator], running: Callable[[str], Q], budgets: ObservedBudgets[Q]
    ) -> list[Sample]:
        """Samples of the joins whose time has come, if the last look has paid off."""
        now = self._timer()
        multiple = [join for join in joins if len(join.tree.stores) > 1 and ALWAYS < join.done < FOREVER]
        due = [join for join in multiple if self._passed(join)]
        skipped, self._skipping = self._skipping, False
        if skipped or now - self._looked_at < self._looking * (1 / self._effort - 1):
            return []
        samples = [each for join in due for each in self._sampled(join, running, budgets, len(multiple))]
        if samples:
            self._looked_at = self._timer()
            self._looking = self._looked_at - now
        return samples

    def _passed(self, join: JoinOperator) -> bool:
        """Note the time of a join; whether it is to be looked at again."""
        time = join.done / ticks_per_second(join.tree.plan)
        last = self._lasts.setdefault(join.id, _Last(time, self._pushes, self._seconds))
        last.span += 0.0 if self._skipping else time - last.time
        last.time = time
        return last.span >= horizon(join) / _LOOKS

    def _sampled(
        self, join: JoinOperator, running: Callable[[str], Q], budgets: ObservedBudgets[Q], joins: int
    ) -> Iterator[Sample]:
        last = self._lasts[join.id]
        query = running(join.group.members[0].name.rpartition(": ")[0])
        _, places = query.shapes_of(join)
        if len(places) == 1:  # a query that joins the same streams twice has no single shape to change
            effort = Effort(self._pushes - last.pushes, self._seconds - last.seconds, last.span)
            yield sampled(join, query, budgets, last.time - last.span, effort, joins)
        self._lasts[join.id] = _Last(last.time, self._pushes, self._seconds)
