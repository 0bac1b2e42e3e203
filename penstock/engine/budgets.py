"""The budgets of an engine, and the queries that each of them binds.

A budget can bind only joins whose rows are results as they are. A COUNT, a DISTINCT or an EXCEPT over a part of the
rows is wrong, not partial, and so is a query over a derived stream that lacks rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from penstock.adapt import Budget, BudgetScope, JoinBudget, Timer
from penstock.engine.join_registry import JoinRegistry
from penstock.engine.query import RunningQuery
from penstock.engine.registry import QueryRegistry
from penstock.errors import UnsupportedError
from penstock.join import JoinOperator, make_eddy_budget_error
from penstock.plan import (
    EddyPlan,
    PlanPart,
    Tree,
    find_distortion,
    list_join_parts,
)

_EXEMPT = object()
"""The scope of queries that are exempt from the budget of the engine."""


class Budgets:
    """All budgets of an engine: one for every query, and some for single queries."""

    def __init__(self, registry: QueryRegistry, joins: JoinRegistry, timer: Timer) -> None:
        self._registry = registry
        self._joins = joins
        self._timer = timer
        self._engine_scope: BudgetScope | None = None
        self._query_scopes: dict[str, BudgetScope | None] = {}
        """By query; None for a query that is exempt."""

    def _find_scope(self, running: RunningQuery) -> BudgetScope | None:
        return self._query_scopes.get(running.name, self._engine_scope)

    def _iter_sharers(self, running: RunningQuery) -> Iterator[RunningQuery]:
        """A query and all queries that share a join with it, or with one of them: its own budget binds them too."""
        found, waiting = {running.name}, [running]
        while waiting:
            yield (each := waiting.pop())
            others = {member.id.query for join in each.joins for member in join.shared_join.members} - found
            found |= others
            waiting += [self._registry[name] for name in sorted(others)]

    def _list_scopes(self) -> Sequence[BudgetScope]:
        if self._engine_scope is None and not self._query_scopes:
            return ()
        scopes = self._engine_scope, *self._query_scopes.values()
        return [scope for scope in scopes if scope is not None]

    def set(self, budget: Budget | None, only: RunningQuery | None) -> None:
        """Bind every query, or one and those that share its joins; None frees them. See `check_set`."""
        scope = None if budget is None else BudgetScope(budget, self._timer)
        chosen = list(self._registry if only is None else self._iter_sharers(only))
        if only is None:
            for former in self._list_scopes():
                former.lift()
            self._engine_scope, self._query_scopes = scope, {}
        else:
            for running in chosen:
                self._release_query(running)
            self._query_scopes |= dict.fromkeys((running.name for running in chosen), scope)
        for running in chosen:
            self._bind(running)

    def check_set(self, only: RunningQuery | None) -> None:
        """Refuse a budget if it cannot bind one of the queries: then it binds none."""
        chosen = list(self._registry if only is None else self._iter_sharers(only))
        if only is not None:
            _check_sharers(only, chosen)
        for running in chosen:
            _check_query(running)

    def can_bind(self, running: RunningQuery) -> bool:
        """Whether a query has no budget, and it and all that share its joins allow one by FRESHNESS."""
        if self._engine_scope is not None or running.name in self._query_scopes:
            return False
        try:
            for each in self._iter_sharers(running):
                if not has_freshness(each):
                    return False
                _check_query(each)
        except UnsupportedError:
            return False
        return True

    def has_own_budget(self, running: RunningQuery) -> bool:
        """Whether a query has a budget of its own."""
        return self._query_scopes.get(running.name) is not None

    def check_free(self, running: RunningQuery) -> None:
        """Refuse to remove a query's own budget if that of the engine cannot bind it."""
        if self._engine_scope is not None:
            for each in self._iter_sharers(running):
                _check_query(each)

    def free(self, running: RunningQuery) -> None:
        """Remove a query's own budget: the engine's budget binds it and those that share its joins."""
        freed = list(self._iter_sharers(running))
        for each in freed:
            self._release_query(each)
        for each in freed:
            self._bind(each)

    def check_admission(self, name: str, part: PlanPart, *, derives: bool) -> None:
        """Refuse a query with a new text that its budget, its own or the engine's, cannot bind."""
        if self._query_scopes.get(name, self._engine_scope) is not None:
            if any(join.probes and isinstance(join.plan.root, EddyPlan) for join in list_join_parts(part)):
                raise make_eddy_budget_error(name)
            _check_part(name, part, derives=derives)

    def admit(self, running: RunningQuery) -> None:
        """Bind a query with a new text: by its own budget, else by that of the engine."""
        self._bind(running)

    def _bind(self, running: RunningQuery) -> None:
        scope = self._find_scope(running)
        if scope is not None:
            scope.bind(running.joins)
        for join in running.joins:
            self._joins.set_budget_scope(join, self.budget_scope(running.name))

    def budget_scope(self, name: str) -> object:
        """The scope within which a query shares joins: its own budget, or exempt; None: that of the engine."""
        return (self._query_scopes[name] or _EXEMPT) if name in self._query_scopes else None

    def release_joins(self, running: RunningQuery) -> None:
        """Free the joins that only this query uses; its name keeps its budget."""
        if (scope := self._find_scope(running)) is not None:
            scope.release(join for join in running.joins if len(join.shared_join.members) == 1)

    def remove_query(self, running: RunningQuery) -> None:
        """Free the joins that only this query uses, and forget its budget."""
        self.release_joins(running)
        self._query_scopes.pop(running.name, None)

    def _release_query(self, running: RunningQuery) -> None:
        scope = self._find_scope(running)
        self._query_scopes.pop(running.name, None)
        if scope is not None:
            scope.release(running.joins)

    def begin(self) -> None:
        for scope in self._list_scopes():
            scope.begin()

    def end(self) -> None:
        for scope in self._list_scopes():
            scope.end()

    def list_scopes_by_query(self) -> Sequence[object]:
        """What binds queries now: the budget of all, and names of queries with their own. See `budget_scope`."""
        return [self._engine_scope, *self._query_scopes, *self._query_scopes.values()]

    def join_budgets(self, running: RunningQuery) -> list[JoinBudget]:
        """The joins of a query under their budget; empty if it has none."""
        scope = self._find_scope(running)
        return [] if scope is None else [scope.join_budgets[join.id] for join in running.joins]

    def metrics(self, running: RunningQuery) -> dict[str, object]:
        """The budget of a query's join, or of each of them."""
        found = [each.metrics(running.own_aliases(each.join)) for each in self.join_budgets(running)]
        return {"budget": found[0] if len(found) == 1 else found} if found else {}

    def format_allowances(self, running: RunningQuery) -> dict[JoinOperator, dict[Tree, str]]:
        """For `explain`: how many rows of each node of a join may probe."""
        return {
            each.join: {node: f"{probes:.4g} per second" for node, probes in each.shedding.allowances.items()}
            for each in self.join_budgets(running)
        }

    # ── snapshots ────────────────────────────────────────────────────────────────────────────────────────────────

    def dump(self, without: Collection[str] = ()) -> dict[str, Any]:
        """The budgets that were set, except those of some queries and of those that share them."""

        def plain(scope: BudgetScope | None) -> dict[str, Any] | None:
            return None if scope is None else asdict(scope.budget)

        left_out = {id(self._query_scopes.get(name)) for name in without}
        single = {
            name: plain(each) for name, each in self._query_scopes.items() if each is None or id(each) not in left_out
        }
        return {"general": plain(self._engine_scope), "single": single}

    def restore(self, dumped: Mapping[str, Any]) -> None:
        """Bind queries as in a snapshot. Budgets that were accepted then are not checked again."""

        def make_scope(entry: Mapping[str, Any] | None) -> BudgetScope | None:
            return None if entry is None else BudgetScope(Budget(**entry), self._timer)

        self._engine_scope = make_scope(dumped["general"])
        for name, entry in dumped["single"].items():
            if name not in self._query_scopes:  # else it shares the budget of an earlier one
                names = [running.name for running in self._iter_sharers(self._registry[name])]
                self._query_scopes |= dict.fromkeys(names, make_scope(entry))
        for running in self._registry:
            self._bind(running)


def has_freshness(running: RunningQuery) -> bool:
    """Whether a query has a FRESHNESS clause: it accepts that results are missing."""
    return any(source.freshness is not None for source in running.query.body.inputs)


def _check_sharers(only: RunningQuery, chosen: Sequence[RunningQuery]) -> None:
    """Refuse a budget for a query that does not probe, or that shares a join with one without FRESHNESS."""
    if not any(join.probes for join in list_join_parts(only.plan.logical_plan)):
        message = f"{only.name} joins nothing: it does not probe, so a budget has no effect"
        raise UnsupportedError("NOTHING_TO_BUDGET", message, query=only.name)
    others = sorted(each.name for each in chosen if each is not only and not has_freshness(each))
    if others:
        message = (
            f"{only.name} shares its join with {', '.join(others[:5])}, and a budget binds all queries of a join: give "
            "them FRESHNESS as well, or the budget to the whole engine, or start the query in an Engine(share=False)"
        )
        raise UnsupportedError("SHARED_JOIN", message, query=only.name)


def _check_query(running: RunningQuery) -> None:
    """Refuse a query whose results are wrong if rows of its joins are missing."""
    for join in running.joins:
        if any(isinstance(plan.root, EddyPlan) for plan in join.trees.plans):
            raise make_eddy_budget_error(running.name)
    _check_part(running.name, running.plan.logical_plan, derives=running.is_relation)


def _check_part(name: str, part: PlanPart, *, derives: bool) -> None:
    above = find_distortion(part)
    if above is not None:
        why = f"{name} has {above} above a join: without some rows its results are wrong, not fewer"
    elif derives and any(join.probes for join in list_join_parts(part)):
        why = f"{name} is a derived stream or a view over a join: without some tuples its readers are wrong"
    else:
        return
    message = f"{why}; give the budget to other queries by name: budget(..., query=...)"
    raise UnsupportedError("BUDGET_WOULD_DISTORT", message, query=name)
