"""Budgets of an engine: what was asked for, whom it binds, and how a time limit becomes a number of probes.

A budget in probes per second of event time is divided among the joins it binds in proportion to what each would probe
if nothing were shed. A budget in seconds of the clock per push is turned into probes by what probes took in the pushes
before, with a margin for how much that varied; should a push still run out of its time, the rest of it is inserted
without probing.

Only joins whose rows leave as they are can be bound: a COUNT over a part of the rows, a DISTINCT or an EXCEPT would be
wrong, not partial, and so would a query over a derived stream with tuples missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import inf, nan, sqrt
from numbers import Real
from time import perf_counter
from typing import Any

import pyarrow as pa

from penstock.adapt.allocate import POLICIES
from penstock.adapt.overload import Overload
from penstock.cql.durations import duration
from penstock.errors import QueryError, UnsupportedError, require_known
from penstock.ops.join import JoinOperator, no_paths
from penstock.plan.physical import EddyPlan
from penstock.plan.query import DifferencePart, DistinctPart, GroupPart, JoinPart, Part, UnionPart, joins
from penstock.plan.tree import Tree
from penstock.roster import Roster
from penstock.running import RunningQuery

Timer = Callable[[], float]

_USED = 0.8
"""The part of a time limit that is planned to be used."""
_MOST = 0.9
"""The part of it from which on a push is late: what comes after is inserted without probing."""
_SLOWER, _FASTER = 0.5, 0.2
"""The weight of a push whose probes took longer than the average, or less long."""
_FIRST_RATE = 100_000.0
"""Probes per second of the clock to start with."""
_EXEMPT = object()
"""The purse of queries that are exempt from the budget of the engine."""
_UNITS = {"ms": "milliseconds", "s": "seconds", "us": "microseconds", "min": "minutes"}


@dataclass(frozen=True)
class Budget:
    """What was asked for: probes per second of event time, or seconds of the clock per push."""

    probes: float | None
    seconds: float | None
    policy: str = "steady"
    sample: int | None = None


def as_budget(value: object, policy: object, sample: object) -> Budget:
    """The budget of a call; what makes no sense is a QueryError."""
    require_known(policy, tuple(POLICIES), "budget policy")
    if sample is not None and (isinstance(sample, bool) or not isinstance(sample, int) or sample < 0):
        raise QueryError("BAD_SAMPLE", f"sample is the seed of a random choice, a number from 0 on, not {sample!r}")
    assert isinstance(policy, str)
    if isinstance(value, str):
        return Budget(None, _seconds(value), policy, sample)
    number = _number(value)
    if not 0 < number < inf:
        message = f'a budget is probes per second of event time, above 0, a time per push ("500 ms") or None: {value!r}'
        raise QueryError("BAD_BUDGET", message)
    return Budget(number, None, policy, sample)


def _number(value: object) -> float:
    """NaN for what is none."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return nan
    try:
        return float(value)
    except OverflowError:
        return inf


def _seconds(text: str) -> float:
    words = text.split()
    if len(words) == 2 and words[1] in _UNITS:
        text = f"{words[0]} {_UNITS[words[1]]}"
    try:
        limit = duration(text, pa.timestamp("us"))
    except QueryError as error:
        raise QueryError("BAD_BUDGET", f'a time per push is written as "500 ms": {error.message}') from error
    if not limit:
        raise QueryError("BAD_BUDGET", f"a time per push is above 0, not {text!r}")
    return limit / 1e6


def distorting(part: Part) -> str | None:
    """What above a join would be wrong, not partial, if rows of the join were missing; None if nothing would be."""
    match part:
        case GroupPart() if _sheds(part.input):
            return "an aggregate"
        case DistinctPart() if _sheds(part.input):
            return "DISTINCT"
        case DifferencePart() if any(map(_sheds, part.inputs)):
            return "EXCEPT"
        case UnionPart():
            return next(filter(None, map(distorting, part.inputs)), None)
    return None


def _sheds(part: Part) -> bool:
    return any(_probes(join) for join in joins(part))


def _probes(join: JoinPart) -> bool:
    return len(join.sources) > 1


class Keeper:
    """One budget and the joins it binds."""

    def __init__(self, budget: Budget, timer: Timer) -> None:
        self.budget = budget
        self._timer = timer
        self._per_push = _USED * _FIRST_RATE * (budget.seconds or 0.0)
        self._pace = Pace()
        self._span = 0.0
        self._began = 0.0
        self._before = (0, 0.0)
        self.overloads: dict[str, Overload] = {}
        """By the id of the join."""

    @property
    def mu(self) -> float:
        """Probes per second of event time, for all joins together."""
        if self.budget.probes is not None:
            return self.budget.probes
        return self._per_push / (self._span or 1.0)

    def _share(self, id_: str) -> float:
        demands = {other: over.load.saturation if over.load else 0.0 for other, over in self.overloads.items()}
        total = sum(demands.values())
        if not total or not all(demands.values()) or id_ not in demands:
            return self.mu / max(1, len({*self.overloads, id_}))
        return self.mu * demands[id_] / total

    def bind(self, running: RunningQuery) -> None:
        """Bind the joins of a query that are not bound yet: those who share a join share its budget."""
        for join in running.joins:
            if join.id not in self.overloads:
                share = partial(self._share, join.id)
                self.overloads[join.id] = Overload(join, share, self.budget.policy, self.budget.sample, self._is_late)

    def release(self, joins: Iterable[JoinOperator]) -> None:
        """Free some joins."""
        for join in joins:
            if join.id in self.overloads:
                self.overloads.pop(join.id).lift()

    def lift(self) -> None:
        """Free all joins."""
        while self.overloads:
            self.overloads.popitem()[1].lift()

    # ── the clock ────────────────────────────────────────────────────────────────────────────────────────────────

    def _done(self) -> tuple[int, float]:
        parts = [overload.shedding for overload in self.overloads.values()]
        return sum(part.spent for part in parts), max((part.elapsed for part in parts), default=0.0)

    def _is_late(self) -> bool:
        limit = self.budget.seconds
        return limit is not None and self._timer() - self._began > limit * _MOST

    def begin(self) -> None:
        """A push begins."""
        self._began = self._timer()
        self._before = self._done()

    def end(self) -> None:
        """A push has ended: what it took says how many probes the next may have."""
        if self.budget.seconds is None:
            return
        took = max(self._timer() - self._began, 1e-9)
        probes, span = (after - before for after, before in zip(self._done(), self._before, strict=True))
        if not span:
            return
        self._span = span if not self._span else (self._span + span) / 2
        if probes:
            self._pace.add(took / probes)
        possible = self._pace.probes(self.budget.seconds)
        was_bound = probes > self._per_push / 2
        if was_bound or possible < self._per_push:
            low, high = self._per_push / 4, self._per_push * 2
            idle = took < _USED * self.budget.seconds and not was_bound
            self._per_push = self._per_push if idle else max(1.0, min(max(possible, low), high))


@dataclass
class Pace:
    """What a probe takes, with all that comes with it: an average that fades, quick to slow down, slow to speed up."""

    mean: float = 0.0
    variance: float = 0.0

    def add(self, seconds: float) -> None:
        if not self.mean:
            self.mean = seconds
        change = min(seconds, 2 * self.mean) - self.mean  # a push that was held up once says little
        weight = _SLOWER if change > 0 else _FASTER
        self.mean += weight * change
        self.variance = (1 - weight) * (self.variance + weight * change**2)

    def probes(self, seconds: float) -> float:
        """As many as fit: `_USED` of the time on average, and `_MOST` of it if they take two deviations longer."""
        return seconds * min(_USED / self.mean, _MOST / (self.mean + 2 * sqrt(self.variance))) if self.mean else inf


class Budgets:
    """All budgets of an engine: one for every query, and some for single queries."""

    def __init__(self, roster: Roster, timer: Timer = perf_counter) -> None:
        self._roster = roster
        self._timer = timer
        self._general: Keeper | None = None
        self._single: dict[str, Keeper | None] = {}
        """By query; None for one that is exempt."""

    def _keeper(self, running: RunningQuery) -> Keeper | None:
        return self._single.get(running.name, self._general)

    def _sharers(self, running: RunningQuery) -> Iterator[RunningQuery]:
        """A query and those whom a budget of its own binds as well: they share a join with it, or with one of them."""
        found, waiting = {running.name}, [running]
        while waiting:
            yield (each := waiting.pop())
            others = {member.query for join in each.joins for member in join.group.members} - found
            found |= others
            waiting += [self._roster[name] for name in sorted(others)]

    def _keepers(self) -> Iterator[Keeper]:
        yield from filter(None, (self._general, *self._single.values()))

    def set(self, budget: Budget | None, only: RunningQuery | None) -> None:
        """Bind every query, or one and those who share its joins; None frees them. See `check_set`."""
        keeper = None if budget is None else Keeper(budget, self._timer)
        chosen = list(self._roster if only is None else self._sharers(only))
        if only is None:
            for former in self._keepers():
                former.lift()
            self._general, self._single = keeper, {}
        else:
            for running in chosen:
                self._release(running)
            self._single |= dict.fromkeys((running.name for running in chosen), keeper)
        for running in chosen:
            self._enter(running)

    def check_set(self, only: RunningQuery | None) -> None:
        """Refuse a budget if one of the queries cannot be bound: then none is."""
        chosen = list(self._roster if only is None else self._sharers(only))
        if only is not None:
            _check_agreed(only, chosen)
        for running in chosen:
            _check(running)

    def may_bind(self, running: RunningQuery) -> bool:
        """Whether a query has no budget, and it and all who share its joins allow one by FRESHNESS."""
        if self._general is not None or running.name in self._single:
            return False
        try:
            for each in self._sharers(running):
                if not fresh(each):
                    return False
                _check(each)
        except UnsupportedError:
            return False
        return True

    def alone(self, running: RunningQuery) -> bool:
        """Whether a query has a budget of its own."""
        return self._single.get(running.name) is not None

    def check_free(self, running: RunningQuery) -> None:
        """Refuse to take back a query's own budget if that of the engine cannot bind it."""
        if self._general is not None:
            for each in self._sharers(running):
                _check(each)

    def free(self, running: RunningQuery) -> None:
        """Take back a query's own budget: it, and who shares its joins, are bound as all others, and may share them."""
        freed = list(self._sharers(running))
        for each in freed:
            self._release(each)
        for each in freed:
            self._enter(each)

    def check_admission(self, name: str, part: Part, *, derives: bool) -> None:
        """Refuse a new query, or one with a new text, that the budget of the engine, or its own, cannot bind."""
        if self._single.get(name, self._general) is not None:
            if any(_probes(join) and isinstance(join.plan.root, EddyPlan) for join in joins(part)):
                raise no_paths(name)
            _check_part(name, part, derives=derives)

    def admit(self, running: RunningQuery) -> None:
        """A new query, or one with a new text: the budget of the engine binds it as well, or the one it has."""
        self._enter(running)

    def _enter(self, running: RunningQuery) -> None:
        keeper = self._keeper(running)
        if keeper is not None:
            keeper.bind(running)
        for join in running.joins:
            join.purse = self.purse(running.name)

    def purse(self, name: str) -> object:
        """What divides the joins of a query from those of others: its own budget, or that it has none; else None."""
        return (self._single[name] or _EXEMPT) if name in self._single else None

    def retire(self, running: RunningQuery) -> None:
        """A query with a text goes; joins that others share stay bound, and its name keeps its budget."""
        if (keeper := self._keeper(running)) is not None:
            keeper.release(join for join in running.joins if len(join.group.members) == 1)

    def dismiss(self, running: RunningQuery) -> None:
        """A query goes; joins that others share stay bound."""
        self.retire(running)
        self._single.pop(running.name, None)

    def _release(self, running: RunningQuery) -> None:
        keeper = self._keeper(running)
        self._single.pop(running.name, None)
        if keeper is not None:
            keeper.release(running.joins)

    def begin(self) -> None:
        for keeper in self._keepers():
            keeper.begin()

    def end(self) -> None:
        for keeper in self._keepers():
            keeper.end()

    def overloads(self, running: RunningQuery) -> list[Overload]:
        """The joins of a query under their budget; none if it has none."""
        keeper = self._keeper(running)
        return [] if keeper is None else [keeper.overloads[join.id] for join in running.joins]

    def metrics(self, running: RunningQuery) -> dict[str, object]:
        """The budget of a query's join, or of each of them."""
        found = [each.metrics(running.own_names(each.join)) for each in self.overloads(running)]
        return {"budget": found[0] if len(found) == 1 else found} if found else {}

    def allowances(self, running: RunningQuery) -> dict[JoinOperator, dict[Tree, str]]:
        """For `explain`: how many rows of each node of a join may probe."""
        return {
            overload.join: {node: f"{probes:.4g} per second" for node, probes in overload.shedding.allowances.items()}
            for overload in self.overloads(running)
        }

    # ── snapshots ────────────────────────────────────────────────────────────────────────────────────────────────

    def dump(self, without: Collection[str] = ()) -> dict[str, Any]:
        """What was asked for, except for some queries and who shares their budgets."""

        def plain(keeper: Keeper | None) -> dict[str, Any] | None:
            return None if keeper is None else asdict(keeper.budget)

        left_out = {id(self._single.get(name)) for name in without}
        single = {name: plain(each) for name, each in self._single.items() if each is None or id(each) not in left_out}
        return {"general": plain(self._general), "single": single}

    def revive(self, dumped: Mapping[str, Any]) -> None:
        """Bind queries as they were. What was agreed to then is not asked again."""

        def keeper(entry: Mapping[str, Any] | None) -> Keeper | None:
            return None if entry is None else Keeper(Budget(**entry), self._timer)

        self._general = keeper(dumped["general"])
        for name, entry in dumped["single"].items():
            if name not in self._single:  # else it shares the budget of one before
                names = [running.name for running in self._sharers(self._roster[name])]
                self._single |= dict.fromkeys(names, keeper(entry))
        for running in self._roster:
            self._enter(running)


def fresh(running: RunningQuery) -> bool:
    """Whether a query says what it can do without."""
    return any(source.freshness is not None for source in running.query.body.inputs)


def _check_agreed(only: RunningQuery, chosen: Sequence[RunningQuery]) -> None:
    """Refuse a budget for a query that probes nothing, or shares a join with one that cannot do without results."""
    if not any(map(_probes, joins(only.part))):
        message = f"{only.name} joins nothing: it does not probe, and a budget would change nothing"
        raise UnsupportedError("NOTHING_TO_BUDGET", message, query=only.name)
    others = sorted(each.name for each in chosen if each is not only and not fresh(each))
    if others:
        message = (
            f"{only.name} shares its join with {', '.join(others[:5])}, and a budget binds all who share: give them "
            "FRESHNESS as well, or the budget to the whole engine, or start the query in an Engine(share=False)"
        )
        raise UnsupportedError("SHARED_JOIN", message, query=only.name)


def _check(running: RunningQuery) -> None:
    """Refuse a query whose results would be wrong if rows of its joins were missing."""
    for join in running.joins:
        if any(isinstance(plan.root, EddyPlan) for plan in join.plans):
            raise no_paths(running.name)
    _check_part(running.name, running.part, derives=running.feeds is not None)


def _check_part(name: str, part: Part, *, derives: bool) -> None:
    above = distorting(part)
    if above is not None:
        why = f"{name} has {above} above a join: with rows missing its results would be wrong, not fewer"
    elif derives and _sheds(part):
        why = f"{name} is a stream derived from a join: with tuples missing its readers would be wrong"
    else:
        return
    message = f"{why}; give the budget to other queries by name: budget(..., query=...)"
    raise UnsupportedError("BUDGET_WOULD_DISTORT", message, query=name)
