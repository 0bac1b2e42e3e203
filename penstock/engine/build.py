"""How a query starts: it is bound to the declarations, planned, and compiled into the graph under its budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.cql import Query, Stream, View, bind_query, bind_view, refuse_clock_reader
from penstock.engine.checked_query import CheckedQuery
from penstock.engine.compiler import Compiler
from penstock.engine.components import EngineComponents
from penstock.engine.join_registry import ChosenNode, JoinMatch, JoinPlacement, RestoredJoins
from penstock.engine.parts import DumpedJoins
from penstock.engine.query import RunningQuery
from penstock.errors import QueryError
from penstock.join import DemandFilter, JoinOperator, StartPoint, take_over
from penstock.ops import SavedState
from penstock.plan import PlanningContext, plan_body, plan_query


@dataclass(frozen=True)
class QueryRequest:
    """A query to start, as the user wrote it. None: the engine's default."""

    name: str
    text: str | Query
    plan: str | None = None
    state: str | None = None
    demand: DemandFilter | None = None
    derives: bool = False
    """Whether the results are a stream, of the name of the query."""
    history: bool = False
    view: bool = False
    """Whether the answer is a view, of the name of the query."""

    @property
    def declares(self) -> bool:
        """Whether other queries can name it."""
        return self.derives or self.view


class QueryBuilder:
    """Builds running queries."""

    def __init__(self, components: EngineComponents) -> None:
        self._options = components.options
        self._guard = components.guard
        self._graph = components.graph
        self._relations = components.relations
        self._joins = components.joins
        self._queries = components.queries
        self._budgets = components.budgets

    def build_query(self, request: QueryRequest, joins: JoinPlacement | None = None) -> RunningQuery:
        """Add a query to the graph. `joins` decides which joins it shares; None: all that fit."""
        spec = self._make_spec(request)
        placement = self._joins if joins is None else joins
        with self._guard.change():
            compiler = Compiler(spec, self._graph, self._relations, placement, self._options.maintenance)
            running = RunningQuery(spec, compiler.compile_query(), self._graph, self._joins)
            self._budgets.admit(running)
        return running

    def _make_spec(self, request: QueryRequest) -> CheckedQuery:
        """Check a request: one that is refused changes nothing."""
        name, text = request.name, request.text
        query = text if isinstance(text, Query) else self._bind(text, view=request.view)
        if request.plan is not None:
            require_plan(request.plan)
        self._check_clock(name, query, read=request.declares)
        state, demand = self._options.choose_policy(request.state, request.demand)
        rows = {table: data.num_rows for table, data in self._relations.tables.items()}
        context = PlanningContext(request.plan, rows, self._relations.stream_ranks)
        plan = plan_body(query.body, context) if request.view else plan_query(query, context)
        self._budgets.check_admission(name, plan, derives=request.declares)
        return CheckedQuery(
            name, query, plan, state, demand,
            derived_stream=Stream(name, query.schema, "_ts") if request.derives else None,
            view=View(name, query.body) if request.view else None,
            plan_given=request.plan is not None, history=request.history,
            budget_scope=self._budgets.budget_scope(name),
        )  # fmt: skip

    def _check_clock(self, name: str, query: Query, *, read: bool) -> None:
        """Refuse a bound of freshness by the clock without a clock, or in what other queries read."""
        if read:
            refuse_clock_reader(name, query)
        for source in query.body.inputs:
            stream = source.relation
            if source.clock_freshness and isinstance(stream, Stream) and not self._relations.streams.has_clock(stream):
                message = (
                    f"{name}: FRESHNESS {source.alias} BY CLOCK compares times with the clock, but {stream.time} "
                    "counts ticks: give Engine(clock=...) a function that returns ticks"
                )
                raise QueryError("CLOCK_NEEDED", message, query=name)

    def _bind(self, text: str, *, view: bool) -> Query:
        return (bind_view if view else bind_query)(text, self._relations.catalog)

    def nest_narrower(self, wide: RunningQuery) -> None:
        """Let queries over some of the streams of a new query read a node of its join, if that join is new."""
        for join in wide.joins:
            found = self._joins.find_narrower(join) if len(join.shared_join.members) == 1 else None
            if found is None:
                continue
            narrow, names = found
            readers = [running for running in self._queries if narrow in running.joins]
            if all(running.reads_join_alone(narrow) for running in readers):
                with self._guard.change():
                    self._nest_queries(readers, join, names)

    def _nest_queries(self, readers: Sequence[RunningQuery], wide: JoinOperator, names: Mapping[str, str]) -> None:
        narrow, node, moved = readers[0].joins[0], self._joins.find_node(wide), {}
        replaced = []
        for each in readers:
            (part,) = each.join_parts
            first = part.member.filter_group.start
            numbers = tuple(sorted((names[alias], number) for alias, number in first.first_numbers))
            renaming = {mine: names[theirs] for mine, theirs in part.member.renaming.items()}
            start = StartPoint(numbers, first.drained_until)
            request = QueryRequest(each.name, each.query, each.plan.text, each.state, each.own_demand)
            own = self.build_query(request, ChosenNode(JoinMatch(node, wide, renaming, nested=True, start=start)))
            moved[part.member] = own.join_parts[0].member
            replaced.append((each, own))
        take_over(wide, narrow, names, moved)
        for each, own in replaced:
            self._queries.replace(own)
            each.remove()

    def separate_readers(self, joins: Iterable[JoinOperator]) -> None:
        """Give the queries that read a node of these joins a join of their own, with the state they have."""
        for join in [join for join in joins if join.shared_join.early_members]:
            with self._guard.change():
                self._separate_join(join)

    def _separate_join(self, join: JoinOperator) -> None:
        readers = [running for running in self._queries if running.is_nested_in(join)]
        dumped: DumpedJoins = {}
        saved = [running.dump(dumped) for running in readers]
        joins = RestoredJoins(self._joins)
        separate = [
            self.build_query(
                QueryRequest(each.name, each.query, each.plan.text, each.state, each.own_demand),
                joins.for_query(list_join_ids(states)),
            )
            for each, states in zip(readers, saved, strict=True)
        ]
        for old, own, states in zip(readers, separate, saved, strict=True):  # after all queries of the join were added
            self._queries.replace(own)
            own.restore(states)
            old.remove()


def list_join_ids(states: Iterable[SavedState]) -> tuple[int, ...]:
    """The numbers of a query's joins in its saved state: queries that shared a join have the same number."""
    return tuple(state.values["join_id"] for state in states if "join_id" in state.values)


def has_grouped_join(states: Iterable[SavedState]) -> bool:
    """Whether a query's saved state is that of a join that groups its rows."""
    return any("grouped" in state.values for state in states)


def require_plan(plan: object) -> None:
    """Refuse a plan that is not a string."""
    if not isinstance(plan, str):
        raise QueryError("PLAN_MISFIT", f"a plan is a text such as (A B), not a {type(plan).__name__}")
