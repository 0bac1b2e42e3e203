"""Changes of the queries of an engine: start, end, and changes of text, plan, policy, budget and slices.

Law: a change is checked first, then made inside the guard's `change`. A change that is refused changes nothing that
results depend on. Queries that read a node of another query's join may have got a join of their own by then.
"""

from __future__ import annotations

from penstock.adapt import Budget
from penstock.cql import Table, describe_view_cycle, is_unknown_relation
from penstock.engine.build import QueryBuilder, QueryRequest
from penstock.engine.components import EngineComponents
from penstock.engine.inputs import TableData
from penstock.engine.join_registry import JoinPlacement
from penstock.engine.query_output import DerivedOutput, ViewOutput
from penstock.errors import QueryError, ResourceError
from penstock.join import DemandFilter, Migration, Slicing


class QueryChanges:
    """Makes changes in one engine."""

    def __init__(self, components: EngineComponents, builder: QueryBuilder) -> None:
        self._options = components.options
        self._guard = components.guard
        self._relations = components.relations
        self._joins = components.joins
        self._queries = components.queries
        self._budgets = components.budgets
        self._builder = builder

    def declare_table(self, name: str, data: TableData) -> None:
        """Declare a static table, or replace the rows of the one with this name."""
        known = self._relations.catalog.relations.get(name) if isinstance(name, str) else None
        if isinstance(known, Table):
            self._relations.replace_table(known, data, list(self._joins))
        else:
            self._relations.add_table(name, data)

    def start(self, request: QueryRequest, joins: JoinPlacement | None = None) -> None:
        """Start a query, or declare a derived stream or a view; `joins` decides which joins it shares."""
        if request.declares:
            self._relations.require_free(request.name)
        self._queries.require_free(request.name)
        if not request.declares and len(self._queries.queries) >= self._options.max_queries:
            limit = self._options.max_queries
            message = f"{limit} queries run, no more are allowed; drop one or give Engine(max_queries=...)"
            raise ResourceError("TOO_MANY_QUERIES", message, limit=limit)
        try:
            running = self._builder.build_query(request, joins)
        except QueryError as error:
            if request.declares and is_unknown_relation(error, request.name):
                raise _make_cycle_error(request) from error
            raise
        self._queries.add(running)
        if isinstance(running.output, DerivedOutput):
            stream = running.output.stream
            self._relations.register_stream(stream.writer.stream, stream)
        elif isinstance(running.output, ViewOutput) and running.view is not None:
            self._relations.register_view(running.view, running.output.view)
        if joins is None:
            self._builder.nest_narrower(running)

    def alter(self, name: str, text: str, plan: str | None, state: str | None) -> None:
        """Replace the text of a query."""
        running = self._queries[name]
        if running.derived_stream is not None:
            message = f"{running.name} is a stream that other queries may read; drop it and declare it again"
            raise QueryError("DERIVED_STREAM", message, stream=running.name)
        if running.view is not None:
            message = f"{running.name} is a view that other queries may read; drop it and declare it again"
            raise QueryError("NOT_A_QUERY", message, view=running.name)
        demand = running.own_demand if state is None else None
        request = QueryRequest(running.name, text, plan, state or running.state, demand, history=True)
        altered = self._builder.build_query(request)
        with self._guard.change():
            self._queries.replace(altered)
            self._budgets.release_joins(running)
            running.remove()
        self._builder.nest_narrower(altered)

    def drop(self, name: str) -> None:
        """Remove a query, or a derived stream or view without readers."""
        running = self._queries[name]
        readers = self._queries.list_readers(running)
        if readers and running.view is not None:
            message = f"the view {running.name} is read by {', '.join(dict.fromkeys(readers))}; drop that first"
            raise QueryError("VIEW_IN_USE", message, view=running.name)
        if readers:
            message = f"the stream {running.name} is read by {', '.join(dict.fromkeys(readers))}; drop that first"
            raise QueryError("STREAM_IN_USE", message, stream=running.name)
        with self._guard.change():
            if running.derived_stream is not None:
                self._relations.unregister_stream(running.derived_stream)
            if running.view is not None:
                self._relations.unregister_view(running.view)
            self._budgets.remove_query(running)
            self._queries.remove(running)
            running.remove()
        self._builder.separate_readers(
            join for join in running.joins if len(join.shared_join.early_members) == len(join.shared_join.members)
        )

    def migrate(self, name: str, plan: str, how: Migration) -> None:
        """Change the plan of a query."""
        changed = self._queries[name].plan.replan(plan)
        self._builder.separate_readers(self._queries[name].plan.list_broken_joins(changed))
        running = self._queries[name].plan
        joins = running.plan_joins(changed, how)
        with self._guard.change():
            running.migrate(changed, joins, how)

    def set_policy(self, name: str, state: str, node: str | None, demand: DemandFilter | None) -> None:
        """Change the state policy of a query's joins, or of one node of them."""
        state, kept = self._options.choose_policy(state, demand)
        self._builder.separate_readers(self._queries[name].joins)
        running = self._queries[name]
        kept = running.demand if demand is None else kept
        place = None if node is None else running.plan.find_node(node)
        with self._guard.change():
            if place is None:
                running.set_policy(state, kept)
            else:
                place[0].set_policy(state, kept, place[1])

    def set_budget(self, budget: Budget | None, query: str | None) -> None:
        """Set the budget of all queries, or of one of them and those that share its joins; None lifts it."""
        if query is not None:
            self._queries[query]  # a wrong name is refused before anything changes
        self._builder.separate_readers(self._joins)
        running = None if query is None else self._queries[query]
        if budget is not None:
            self._budgets.check_set(running)
        with self._guard.change():
            self._budgets.set(budget, running)

    def remove_budget(self, name: str) -> None:
        """Remove a query's own budget."""
        running = self._queries[name]
        self._budgets.check_free(running)
        with self._guard.change():
            self._budgets.free(running)

    def reslice(self, slicing: Slicing, query: str | None) -> None:
        """Change the slices of all joins, or of those of one query."""
        joins = [] if query is None else self._queries[query].joins
        with self._guard.change():
            if query is None:
                self._joins.reslice(slicing)
            for join in joins:
                join.reslice(slicing)


def _make_cycle_error(request: QueryRequest) -> QueryError:
    name = request.name
    if request.view:
        return QueryError("VIEW_CYCLE", describe_view_cycle(name), view=name)
    message = f"{name} would be derived from itself; a stream is derived from streams declared before it"
    return QueryError("DERIVED_CYCLE", message, stream=name)
