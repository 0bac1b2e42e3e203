"""The budgets of an engine: which queries each of them binds.

Only joins whose rows leave as they are can be bound: a COUNT over a part of the rows, a DISTINCT or an EXCEPT would be
wrong, not partial, and so would a query over a derived stream with tuples missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from time import perf_counter
from typing import Any

from penstock.adapt.budget import Budget, Keeper, Timer
from penstock.adapt.join_budget import Overload
from penstock.engine.query import RunningQuery
from penstock.engine.registry import Roster
from penstock.errors import UnsupportedError
from penstock.join.operator import JoinOperator, no_paths
from penstock.plan.physical import EddyPlan
from penstock.plan.query import DifferencePart, DistinctPart, GroupPart, JoinPart, Part, UnionPart, joins
from penstock.plan.tree import Tree

_EXEMPT = object()
"""The purse of queries that are exempt from the budget of the engine."""


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
            keeper.bind(running.joins)
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
