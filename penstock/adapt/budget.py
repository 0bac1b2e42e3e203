"""A budget, the joins it limits, and how a time limit becomes a number of probes.

A budget in probes per second of event time is divided among its joins in proportion to the probes of each if nothing
were shed. A budget in seconds of the clock per push is converted by the time that its joins took for each probe in
earlier pushes, and by the time that everything else took, with a margin for their variance. If a push still exceeds
its time, its remaining rows are inserted without probing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import inf, nan, sqrt
from numbers import Real

import pyarrow as pa

from penstock.adapt.allocate import POLICIES
from penstock.adapt.join_budget import JoinBudget
from penstock.cql import parse_duration
from penstock.errors import QueryError, require_known
from penstock.join import JoinOperator

Timer = Callable[[], float]

_PLANNED_SHARE = 0.8
"""The part of a time limit that the plan uses."""
_LATE_SHARE = 0.9
"""The part of a time limit from which on a push is late: later rows are inserted without probing."""
_LEAST_SHARE = 0.1
"""The part of a time limit that the plan uses even if everything else takes the whole time: pushes vary."""
_SLOWER_WEIGHT, _FASTER_WEIGHT = 0.5, 0.2
"""The weight of a push that took longer than the average, and of one that took less."""
_INITIAL_RATE = 100_000.0
"""The first estimate of probes per second of the clock."""
_UNITS = {"ms": "milliseconds", "s": "seconds", "us": "microseconds", "min": "minutes"}


@dataclass(frozen=True)
class Budget:
    """A budget as declared: probes per second of event time, or seconds of the clock per push."""

    probes: float | None
    seconds: float | None
    policy: str = "steady"
    sample: int | None = None


def as_budget(value: object, policy: str, sample: object) -> Budget:
    """The budget of a call; invalid arguments raise a QueryError."""
    require_known(policy, tuple(POLICIES), "budget policy")
    if sample is not None and (isinstance(sample, bool) or not isinstance(sample, int) or sample < 0):
        raise QueryError("BAD_SAMPLE", f"sample is the seed of a random choice, a number from 0 on, not {sample!r}")
    if isinstance(value, str):
        return Budget(None, _parse_seconds(value), policy, sample)
    number = _to_number(value)
    if not 0 < number < inf:
        message = f'a budget is probes per second of event time, above 0, a time per push ("500 ms") or None: {value!r}'
        raise QueryError("BAD_BUDGET", message)
    return Budget(number, None, policy, sample)


def _to_number(value: object) -> float:
    """A number as a float; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return nan
    try:
        return float(value)
    except OverflowError:
        return inf


def _parse_seconds(text: str) -> float:
    words = text.split()
    if len(words) == 2 and words[1] in _UNITS:
        text = f"{words[0]} {_UNITS[words[1]]}"
    try:
        limit = parse_duration(text, pa.timestamp("us"))
    except QueryError as error:
        raise QueryError("BAD_BUDGET", f'a time per push is written as "500 ms": {error.message}') from error
    if not limit:
        raise QueryError("BAD_BUDGET", f"a time per push is above 0, not {text!r}")
    return limit / 1e6


class BudgetScope:
    """One budget and the joins it limits."""

    def __init__(self, budget: Budget, timer: Timer) -> None:
        self.budget = budget
        self._timer = timer
        self._probes_per_push = _PLANNED_SHARE * _INITIAL_RATE * (budget.seconds or 0.0)
        self._probe_cost = MeanTime()
        self._other_time = MeanTime()
        self._event_span = 0.0
        self._push_begin = 0.0
        self._work_before_push = (0, 0.0, 0.0)
        self.join_budgets: dict[str, JoinBudget] = {}
        """By the id of the join."""

    @property
    def mu(self) -> float:
        """Probes per second of event time, for all joins together."""
        if self.budget.probes is not None:
            return self.budget.probes
        return self._probes_per_push / (self._event_span or 1.0)

    def _compute_share(self, id_: str) -> float:
        demands = {other: over.load.saturation if over.load else 0.0 for other, over in self.join_budgets.items()}
        total = sum(demands.values())
        if not total or not all(demands.values()) or id_ not in demands:
            return self.mu / max(1, len({*self.join_budgets, id_}))
        return self.mu * demands[id_] / total

    def bind(self, joins: Iterable[JoinOperator]) -> None:
        """Limit joins that are not limited yet: queries that share a join share its budget."""
        for join in joins:
            if join.id not in self.join_budgets:
                share = partial(self._compute_share, join.id)
                self.join_budgets[join.id] = JoinBudget(
                    join, share, self.budget.policy, self.budget.sample, self._is_late, self._timer
                )

    def release(self, joins: Iterable[JoinOperator]) -> None:
        """Lift the limit of some joins."""
        for join in joins:
            if join.id in self.join_budgets:
                self.join_budgets.pop(join.id).lift()

    def lift(self) -> None:
        """Lift the limit of all joins."""
        while self.join_budgets:
            self.join_budgets.popitem()[1].lift()

    # ── the clock ────────────────────────────────────────────────────────────────────────────────────────────────

    def _measure_work(self) -> tuple[int, float, float]:
        """Probes, seconds of event time, and seconds of the clock in the joins, since the budget was set."""
        parts = [each.shedding for each in self.join_budgets.values()]
        elapsed = max((part.elapsed for part in parts), default=0.0)
        return sum(part.probes_spent for part in parts), elapsed, sum(part.seconds_spent for part in parts)

    def _is_late(self) -> bool:
        limit = self.budget.seconds
        return limit is not None and self._timer() - self._push_begin > limit * _LATE_SHARE

    def begin(self) -> None:
        """Record the begin of a push."""
        self._push_begin = self._timer()
        self._work_before_push = self._measure_work()

    def end(self) -> None:
        """Record the end of a push: its time decides how many probes the next push may have."""
        if self.budget.seconds is None:
            return
        took = max(self._timer() - self._push_begin, 1e-9)
        probes, span, inside = (
            after - before for after, before in zip(self._measure_work(), self._work_before_push, strict=True)
        )
        if not span:
            return
        self._event_span = span if not self._event_span else (self._event_span + span) / 2
        self._other_time.add(max(0.0, took - inside))
        if probes:
            self._probe_cost.add(inside / probes)
        possible = self._estimate_probes(self.budget.seconds)
        was_bound = probes > self._probes_per_push / 2
        if was_bound or possible < self._probes_per_push:
            low, high = self._probes_per_push / 4, self._probes_per_push * 2
            idle = took < _PLANNED_SHARE * self.budget.seconds and not was_bound
            self._probes_per_push = self._probes_per_push if idle else max(1.0, min(max(possible, low), high))

    def _estimate_probes(self, seconds: float) -> float:
        """How many probes fit: in `_PLANNED_SHARE` of the time on average, in `_LATE_SHARE` two deviations slower."""
        cost, other = self._probe_cost, self._other_time
        if not cost.mean:
            return inf
        usual = (_PLANNED_SHARE * seconds - other.mean) / cost.mean
        slow = (_LATE_SHARE * seconds - other.find_slow()) / cost.find_slow()
        return max(min(usual, slow), _LEAST_SHARE * seconds / cost.find_slow())


@dataclass
class MeanTime:
    """A decaying average of times that follows slower pushes faster than faster ones, with its variance."""

    mean: float = 0.0
    variance: float = 0.0

    def add(self, seconds: float) -> None:
        if not self.mean:
            self.mean = seconds
        change = min(seconds, 2 * self.mean) - self.mean  # a single slow push has little weight
        weight = _SLOWER_WEIGHT if change > 0 else _FASTER_WEIGHT
        self.mean += weight * change
        self.variance = (1 - weight) * (self.variance + weight * change**2)

    def find_slow(self) -> float:
        """The time of a push that is two deviations slower."""
        return self.mean + 2 * sqrt(self.variance)
