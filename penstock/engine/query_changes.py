"""Changes of running queries: their texts, plans, policies, budgets and slices, and their end.

Law: a change is checked first, then made inside the guard's `change`. So one that is refused has changed nothing that
results depend on. Queries that read a node of another query's join may have got a join of their own by then.
"""

from __future__ import annotations

from penstock.adapt.budget import Budget
from penstock.engine.budgets import Budgets
from penstock.engine.build import Starter
from penstock.engine.guard import Guard
from penstock.engine.join_registry import Groups
from penstock.engine.registry import Roster
from penstock.engine.relations import Relations
from penstock.errors import QueryError
from penstock.join.demand.gate import Kept
from penstock.join.operator import Migration
from penstock.join.sharing.shared_join import Slicing


class Changes:
    """Makes changes in one engine."""

    def __init__(self, relations: Relations, roster: Roster, groups: Groups, starter: Starter, guard: Guard) -> None:
        self._relations = relations
        self._roster = roster
        self._groups = groups
        self._starter = starter
        self._guard = guard

    def alter(self, name: str, text: str, plan: str | None, state: str | None, budgets: Budgets) -> None:
        """Let a query go on with another text."""
        running = self._roster[name]
        if running.feeds is not None:
            message = f"{running.name} is a stream that others may read; drop it and declare it again"
            raise QueryError("DERIVED_STREAM", message, stream=running.name)
        demand = running.demand if state is None and running.demanding else None
        altered = self._starter.started(running.name, text, plan, state or running.state, demand, history=True)
        with self._guard.change():
            self._roster.replace(altered)
            budgets.retire(running)
            running.remove()

    def drop(self, name: str, budgets: Budgets) -> None:
        """Take a query, or a derived stream without readers, out of the engine."""
        running = self._roster[name]
        readers = self._roster.readers(running) if running.feeds is not None else []
        if readers:
            message = f"the stream {running.name} is read by {', '.join(dict.fromkeys(readers))}; drop that first"
            raise QueryError("STREAM_IN_USE", message, stream=running.name)
        with self._guard.change():
            if running.feeds is not None:
                self._relations.forget(running.feeds)
            budgets.dismiss(running)
            self._roster.remove(running)
            running.remove()
        self._starter.apart(join for join in running.joins if len(join.tapped) == len(join.group.members))

    def migrate(self, name: str, plan: str, how: Migration) -> None:
        """Let a query go on with another plan."""
        self._starter.apart(self._roster[name].broken_by(plan))
        running = self._roster[name]
        running.check_migration(plan, how)
        with self._guard.change():
            running.migrate(plan, how)

    def adopt(self, name: str, state: str, node: str | None, demand: Kept | None) -> None:
        """Let the joins of a query, or one node of them, keep something else."""
        state, kept = self._starter.chosen(state, demand)
        self._starter.apart(self._roster[name].joins)
        running = self._roster[name]
        kept = running.demand if demand is None else kept
        place = None if node is None else running.node(node)
        with self._guard.change():
            if place is None:
                running.adopt(state, kept)
            else:
                place[0].adopt(state, kept, place[1])

    def bind(self, budget: Budget | None, query: str | None, budgets: Budgets) -> None:
        """Give all queries a budget, or one of them and those that share its joins; None lifts it."""
        if query is not None:
            self._roster[query]  # a wrong name is refused before anything changes
        self._starter.apart(self._groups)
        running = None if query is None else self._roster[query]
        if budget is not None:
            budgets.check_set(running)
        with self._guard.change():
            budgets.set(budget, running)

    def unbind(self, name: str, budgets: Budgets) -> None:
        """Take back a query's own budget."""
        running = self._roster[name]
        budgets.check_free(running)
        with self._guard.change():
            budgets.free(running)

    def reslice(self, slicing: Slicing, query: str | None) -> None:
        """Let all joins keep tuples by other slices, or those of one query."""
        joins = [] if query is None else self._roster[query].joins
        with self._guard.change():
            if query is None:
                self._groups.reslice(slicing)
            for join in joins:
                join.reslice(slicing)
