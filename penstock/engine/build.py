"""How a query begins: bound to what was declared, put into the graph with what it is to keep, under its budget."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from penstock.cql import bind_query
from penstock.cql.bound import Query
from penstock.cql.catalog import Stream
from penstock.engine.budgets import Budgets
from penstock.engine.guard import Guard
from penstock.engine.join_registry import JoinRegistry
from penstock.engine.parts import DumpedJoins
from penstock.engine.query import RunningQuery
from penstock.engine.registry import QueryRegistry
from penstock.engine.relations import Relations
from penstock.errors import QueryError, require_known
from penstock.graph.graph import Graph
from penstock.join.demand.gate import DemandFilter
from penstock.join.operator import JoinOperator
from penstock.join.state_policy import POLICIES
from penstock.plan.query import plan_body
from penstock.state.maintenance import Maintenance

_DEMAND_KINDS = get_args(DemandFilter)


class QueryBuilder:
    """Starts queries. `state` and `demand`: what is kept if nothing else is asked for."""

    def __init__(
        self,
        state: str,
        demand: DemandFilter,
        graph: Graph,
        relations: Relations,
        join_registry: JoinRegistry,
        registry: QueryRegistry,
        budgets: Budgets,
        maintenance: Maintenance,
        guard: Guard,
    ) -> None:
        require_known(state, tuple(POLICIES), "state policy")
        require_known(demand, _DEMAND_KINDS, "way to keep demand")
        self.state = state
        self.demand: DemandFilter = demand
        self._graph = graph
        self._relations = relations
        self._join_registry = join_registry
        self._registry = registry
        self._budgets = budgets
        self._guard = guard
        self._maintenance = maintenance

    def choose_policy(self, state: str | None, demand: DemandFilter | None) -> tuple[str, DemandFilter]:
        """What is kept: as asked for, else as the engine has it."""
        state = self.state if state is None else state
        require_known(state, tuple(POLICIES), "state policy")
        if demand is None:
            return state, self.demand
        require_known(demand, _DEMAND_KINDS, "way to keep demand")
        if POLICIES[state].gated == "never":
            message = f"the state policy {state} asks for no demand to keep ({demand}); jit and auto do"
            raise QueryError("NO_DEMAND", message, state=state)
        return state, demand

    def build_query(
        self,
        name: str,
        text: str | Query,
        plan: str | None,
        state: str | None,
        demand: DemandFilter | None,
        *,
        derives: bool = False,
        history: bool = False,
    ) -> RunningQuery:
        """A query at work. With `derives` its results are a stream of its name, of which nobody knows yet."""
        query = text if isinstance(text, Query) else bind_query(text, self._relations.catalog)
        if plan is not None:
            require_plan(plan)
        state, demand = self.choose_policy(state, demand)
        feeds = Stream(name, query.schema, "_ts") if derives else None
        tables = self._relations.tables
        rows = {table: data.num_rows for table, data in tables.items()}
        part = plan_body(query.body, plan, rows, self._relations.stream_ranks)
        self._budgets.check_admission(name, part, derives=derives)
        with self._guard.change():
            self._join_registry.budget_scope = self._budgets.budget_scope(name)
            running = RunningQuery(
                name, query, part, state, demand, self._graph, tables, self._relations.catalog.aggregates,
                self._join_registry, feeds, plan_given=plan is not None, maintenance=self._maintenance,
                history=history,
            )  # fmt: skip
            self._budgets.admit(running)
        return running

    def separate_readers(self, joins: Iterable[JoinOperator]) -> None:
        """Give the queries that read a node of these joins a join of their own, at the point where they are."""
        for join in [join for join in joins if join.shared_join.early_members]:
            with self._guard.change():
                self._separate_join(join)

    def _separate_join(self, join: JoinOperator) -> None:
        readers = [running for running in self._registry if running.is_nested_in(join)]
        told: DumpedJoins = {}
        saved_states = [running.dump(told) for running in readers]
        self._join_registry.assign_join_ids(rest.values["join_id"] for each in saved_states for rest in each)
        demands = [old.demand if old.keeps_demand else None for old in readers]
        new = [
            self.build_query(r.name, r.query, r.plan_text, r.state, d) for r, d in zip(readers, demands, strict=True)
        ]
        for old, own, rest in zip(
            readers, new, saved_states, strict=True
        ):  # a join comes back when all who share it do
            self._registry.replace(own)
            own.restore(rest, None)
            own.stop(old.failure)
            old.remove()
        self._join_registry.assign_join_ids(None)


def require_plan(plan: object) -> None:
    """Refuse a plan that is no text."""
    if not isinstance(plan, str):
        raise QueryError("PLAN_MISFIT", f"a plan is a text such as (A B), not a {type(plan).__name__}")
