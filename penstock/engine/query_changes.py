"""Changes of running queries: their texts, plans, policies, budgets and slices, and their end.

Law: a change is checked first, then made inside the guard's `change`. So one that is refused has changed nothing that
results depend on. Queries that read a node of another query's join may have got a join of their own by then.
"""

from __future__ import annotations

from penstock.adapt.budget import Budget
from penstock.engine.budgets import Budgets
from penstock.engine.build import QueryBuilder
from penstock.engine.guard import Guard
from penstock.engine.join_registry import JoinRegistry
from penstock.engine.registry import QueryRegistry
from penstock.engine.relations import Relations
from penstock.errors import QueryError
from penstock.join.demand.gate import DemandFilter
from penstock.join.running_trees import Migration
from penstock.join.sharing.slices import Slicing


class QueryChanges:
    """Makes changes in one engine."""

    def __init__(
        self,
        relations: Relations,
        registry: QueryRegistry,
        join_registry: JoinRegistry,
        builder: QueryBuilder,
        guard: Guard,
    ) -> None:
        self._relations = relations
        self._registry = registry
        self._join_registry = join_registry
        self._builder = builder
        self._guard = guard

    def alter(self, name: str, text: str, plan: str | None, state: str | None, budgets: Budgets) -> None:
        """Let a query go on with another text."""
        running = self._registry[name]
        if running.derived_stream is not None:
            message = f"{running.name} is a stream that others may read; drop it and declare it again"
            raise QueryError("DERIVED_STREAM", message, stream=running.name)
        demand = running.demand if state is None and running.keeps_demand else None
        altered = self._builder.build_query(running.name, text, plan, state or running.state, demand, history=True)
        with self._guard.change():
            self._registry.replace(altered)
            budgets.release_joins(running)
            running.remove()

    def drop(self, name: str, budgets: Budgets) -> None:
        """Take a query, or a derived stream without readers, out of the engine."""
        running = self._registry[name]
        readers = self._registry.list_readers(running) if running.derived_stream is not None else []
        if readers:
            message = f"the stream {running.name} is read by {', '.join(dict.fromkeys(readers))}; drop that first"
            raise QueryError("STREAM_IN_USE", message, stream=running.name)
        with self._guard.change():
            if running.derived_stream is not None:
                self._relations.unregister_stream(running.derived_stream)
            budgets.remove_query(running)
            self._registry.remove(running)
            running.remove()
        self._builder.separate_readers(
            join for join in running.joins if len(join.shared_join.early_members) == len(join.shared_join.members)
        )

    def migrate(self, name: str, plan: str, how: Migration) -> None:
        """Let a query go on with another plan."""
        self._builder.separate_readers(self._registry[name].list_broken_joins(plan))
        running = self._registry[name]
        running.check_migration(plan, how)
        with self._guard.change():
            running.migrate(plan, how)

    def set_policy(self, name: str, state: str, node: str | None, demand: DemandFilter | None) -> None:
        """Let the joins of a query, or one node of them, keep something else."""
        state, kept = self._builder.choose_policy(state, demand)
        self._builder.separate_readers(self._registry[name].joins)
        running = self._registry[name]
        kept = running.demand if demand is None else kept
        place = None if node is None else running.find_node(node)
        with self._guard.change():
            if place is None:
                running.set_policy(state, kept)
            else:
                place[0].set_policy(state, kept, place[1])

    def set_budget(self, budget: Budget | None, query: str | None, budgets: Budgets) -> None:
        """Give all queries a budget, or one of them and those that share its joins; None lifts it."""
        if query is not None:
            self._registry[query]  # a wrong name is refused before anything changes
        self._builder.separate_readers(self._join_registry)
        running = None if query is None else self._registry[query]
        if budget is not None:
            budgets.check_set(running)
        with self._guard.change():
            budgets.set(budget, running)

    def remove_budget(self, name: str, budgets: Budgets) -> None:
        """Take back a query's own budget."""
        running = self._registry[name]
        budgets.check_free(running)
        with self._guard.change():
            budgets.free(running)

    def reslice(self, slicing: Slicing, query: str | None) -> None:
        """Let all joins keep tuples by other slices, or those of one query."""
        joins = [] if query is None else self._registry[query].joins
        with self._guard.change():
            if query is None:
                self._join_registry.reslice(slicing)
            for join in joins:
                join.reslice(slicing)
