"""The embedded engine: catalogue, query graph and running queries behind one class.

Law: the multiset of results of a query depends only on the tuples pushed and the query's text (see docs/semantics.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from time import perf_counter
from typing import get_args

import pyarrow as pa

from penstock.adapt import Decision, JoinBudget, JoinSample, Rules, Sampler, Timer, as_budget, as_rules
from penstock.cql import Duration, Query, Stream, Timestamps, describe_stream
from penstock.engine.adaptation import Adaptation
from penstock.engine.budgets import Budgets
from penstock.engine.build import QueryBuilder, QueryRequest, require_plan
from penstock.engine.components import EngineComponents
from penstock.engine.guard import Guard, guard_calls
from penstock.engine.join_registry import JoinRegistry
from penstock.engine.notices import Notices
from penstock.engine.options import EngineOptions
from penstock.engine.persistence import Persistence, read_options
from penstock.engine.push_cycle import PushCycle
from penstock.engine.query_changes import QueryChanges
from penstock.engine.registry import QueryRegistry
from penstock.engine.relations import Relations
from penstock.engine.reports import Reports
from penstock.engine.results import Results
from penstock.engine.snapshot import Snapshot, refuse_bad_content
from penstock.engine.streams import Clock
from penstock.errors import QueryError, name_arguments, require_known
from penstock.graph import STRATEGIES, Graph, GraphScheduler
from penstock.join import DemandFilter, Migration, Slicing
from penstock.ops import Notice
from penstock.plan import ExplainNode
from penstock.state import FOREVER, SHIPPED, Maintenance


@guard_calls(
    nests=("awaits", "close", "dead_letters", "decisions", "failures", "late", "overloads", "picture"),
    always=("close",),
)
@name_arguments
class Engine:
    """Continuous queries in this process. It may be called from several threads: calls wait for each other.

    >>> import pyarrow as pa
    >>> engine = Engine()
    >>> engine.stream("A", {"ts": "bigint", "x": "bigint"}, time="ts")
    >>> engine.stream("B", {"ts": "bigint", "x": "bigint"}, time="ts")
    >>> engine.query("pairs", "SELECT A.x FROM A [RANGE 10], B [RANGE 10] WHERE A.x = B.x")
    >>> _ = engine.push({"A": pa.table({"ts": [1], "x": [7]}), "B": pa.table({"ts": [4], "x": [7]})})
    >>> engine.flush()["pairs"].to_pylist()
    [{'x': 7, '_ts': 4}]
    """

    def __init__(
        self,
        state: str = "auto",
        schedule: str = "dfs",
        batch: int = 4096,
        clock: Clock | None = None,
        demand: DemandFilter = "exact",
        *,
        share: bool = True,
        slicing: Slicing = "mem-opt",
        max_queries: int = 10_000,
        adapt: bool | Rules = False,
        timer: Timer = perf_counter,
        maintenance: Maintenance = SHIPPED,
        warn: bool = True,
    ) -> None:
        """Create an engine without streams and queries.

        `state`: the state policy of queries, "auto", "eager", "lazy", "jit" or "none". `schedule`: see `schedule`.
        `batch`: how many tuples an operator takes per turn. `clock`: the time of streams that the engine stamps.
        `demand`: see `query`. `share`: queries over the same streams run as one join. `slicing`: see `reslice`.
        `max_queries`: the largest number of queries. `adapt`: plans, state policies and budgets follow measurements, by
        `Rules`; see docs/adapt.md. `timer`: a clock in seconds, for `adapt` and for budgets per push.
        `maintenance`: when state is reorganised; results do not depend on it. `warn`: warnings about queries, and
        `notices`, are also emitted once as `PenstockWarning`.
        """
        rules = as_rules(adapt)
        options = EngineOptions(state, demand, batch, share, slicing, max_queries, maintenance)
        self._guard = Guard(warns=warn)
        self._graph = Graph()
        self._scheduler = GraphScheduler(self._graph, batch)
        self._relations = Relations(self._graph, clock, self._guard)
        self._join_registry = JoinRegistry(share=share, slicing=slicing, nest=rules is None)
        self._registry = QueryRegistry(self._guard)
        self._budgets = Budgets(self._registry, self._join_registry, timer)
        self._components = EngineComponents(
            options, self._guard, self._graph, self._relations, self._join_registry, self._registry, self._budgets
        )
        self._changes = QueryChanges(self._components, QueryBuilder(self._components))
        self._adaptation = Adaptation(rules, timer)
        self._notices = Notices(self._relations.streams, self._registry, self._guard)
        self._cycle = PushCycle(self._components, self._scheduler, self._adaptation, self._notices)
        self._reports = Reports(self._components, self._notices)
        self._persistence = Persistence(self._components, self._changes, self._cycle, self._adaptation)
        self.schedule(schedule)

    @property
    def graph(self) -> Graph:
        """The query graph, for measurements and tests. Only the methods of the engine may change it."""
        return self._graph

    # ── declarations ─────────────────────────────────────────────────────────────────────────────────────────────

    def stream(
        self,
        name: str,
        schema: Mapping[str, str] | pa.Schema,
        time: str,
        lateness: Duration = 0,
        timestamps: Timestamps = "external",
        skew: Duration = 0,
        idle_after: Duration | None = None,
        ahead: Duration | None = None,
    ) -> None:
        """Declare a stream: its columns, its time column, and how late a tuple may be.

        By default only tuples, `advance` and `flush` advance its time. The engine's clock does too in these cases: with
        `skew`, tuples of an "external" stream come at most that long after their time; with `idle_after`, a stream
        without tuples for that long is taken to have none older than that; tuples of an "internal" stream are stamped
        when they arrive, those of a "latent" stream when they are first read, and their time column is ignored.

        With `ahead`, a tuple whose time is further than that ahead of the clock goes to the dead letters. Without it,
        one tuple from a far future makes every later one late.
        """
        self._relations.require_free(name)
        self._relations.add_stream(describe_stream(name, schema, time, lateness, timestamps, skew, idle_after, ahead))

    def declare(self, stream: Stream) -> None:
        """Declare a stream as CREATE STREAM of a script describes it."""
        self._relations.add_stream(stream)

    def table(self, name: str, table: pa.Table) -> None:
        """Declare a static table: its rows are always valid."""
        self._relations.add_table(name, table)

    def aggregate(self, name: str, cls: type) -> None:
        """Declare a class as an aggregate function; docs/queries.md lists its methods."""
        self._relations.add_aggregate(name, cls)

    # ── queries ──────────────────────────────────────────────────────────────────────────────────────────────────

    def query(
        self,
        name: str,
        text: str | Query,
        plan: str | None = None,
        state: str | None = None,
        demand: DemandFilter | None = None,
        *,
        history: bool = False,
    ) -> None:
        """Start a continuous query. It sees the tuples that arrive from now on.

        `text` is CQL, or a query that is bound to the streams and tables of this engine.
        `plan` fixes the shape of the join tree by alias; a query with several joins takes one for each, separated by
        semicolons. `state` is its state policy. `demand` is how "jit" and "auto" keep the keys that are demanded of a
        state: "exact", or "bloom", a smaller filter with which some rows are built that are not needed. Both default to
        those of the engine. With `history` a query that shares a running join also sees the tuples that the windows of
        the join hold; the metric `complete_since` is the time from which on no result is missing.
        """
        self._changes.start(QueryRequest(name, text, plan, state, demand, history=history))
        self._reports.warn_of_query(name)

    def alter(self, name: str, text: str, plan: str | None = None, state: str | None = None) -> None:
        """Replace the text of a query: another window, filter or select list. It keeps the tuples of its windows.

        Results follow the new text from the next push on; see `history` of `query`. If the text is wrong, the query
        does not change.
        """
        self._changes.alter(name, text, plan, state)
        self._reports.warn_of_query(name)

    def derive(
        self,
        name: str,
        text: str | Query,
        plan: str | None = None,
        state: str | None = None,
        demand: DemandFilter | None = None,
    ) -> None:
        """Declare a stream that consists of the results of a query; its time column is `_ts`."""
        self._changes.start(QueryRequest(name, text, plan, state, demand, derives=True))
        self._reports.warn_of_query(name)

    def drop(self, name: str) -> None:
        """Stop a query, or a derived stream without readers, and free its state."""
        self._changes.drop(name)

    def migrate(self, name: str, plan: str, how: str = "jisc") -> None:
        """Change the plan of a query, without losing or repeating a result.

        `how` is "jisc", "moving-state" or "parallel-track". A chain of EXCEPT tests its inputs in the order of the
        plan: with "A; D; B" it tests D before B.
        """
        require_known(how, get_args(Migration), "way to migrate")
        require_plan(plan)
        self._changes.migrate(name, plan, how)  # type: ignore[arg-type]

    def policy(self, name: str, state: str, node: str | None = None, demand: DemandFilter | None = None) -> None:
        """Change the state policy of a running query, or of one node of its plan such as "(A B)"."""
        self._changes.set_policy(name, state, node, demand)

    # ── data ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def push(
        self, data: Mapping[str, pa.Table], frontiers: Mapping[str, int | datetime | pa.Scalar] | None = None
    ) -> Results:
        """Push tuples to streams; returns the results that became certain, by query and in temporal order.

        `frontiers`: by stream, a time before which no tuple will come in later pushes; see `advance`. If a table does
        not fit its stream, the whole push is refused.
        """
        arrived = self._relations.streams.prepare_rows(data)
        promises = self._relations.streams.resolve_frontiers(frontiers or {})
        with self._guard.change():
            for rows in arrived:
                rows.feed()
            for source, frontier in promises:
                source.advance(frontier)
            return self._cycle.run(self)

    def advance(self, name: str, time: int | datetime | pa.Scalar) -> None:
        """Promise that no tuple of the stream before `time` will come.

        The next push, which may be empty (`push({})`), returns the results that become certain by it.
        """
        for source, frontier in self._relations.streams.resolve_frontiers({name: time}):
            source.advance(frontier)

    def flush(self) -> Results:
        """End every stream; returns all results that are left."""
        with self._guard.change():
            for source in self._relations.streams:
                source.advance(int(FOREVER))
            return self._cycle.run(self)

    def failures(self) -> dict[str, QueryError]:
        """The queries and derived streams that stopped because one of their expressions or aggregates raised an error.

        A stopped query has no more results until it is dropped and started again. Other queries are not affected.
        """
        return self._registry.failures()

    # ── while running ────────────────────────────────────────────────────────────────────────────────────────────

    def schedule(self, strategy: str, part: str | None = None) -> None:
        """Set the strategy that selects the next operator: "dfs", "bfs" or "rr".

        `part` is a query, or an operator by its name in `explain(..., format="table")`; without it, the whole graph.
        """
        require_known(strategy, tuple(STRATEGIES), "schedule")
        ids = [] if part is None else [node.id for node in self._registry.find_nodes(part, self._graph)]
        with self._guard.change():
            self._graph.schedule(strategy, *ids)

    def break_after(self, operator: str) -> None:
        """Set a virtual break node behind an operator, or a query's last: operators behind it are scheduled apart."""
        self._graph.break_after(self._registry.find_nodes(operator, self._graph)[-1].id)

    def clear_break(self, operator: str) -> None:
        """Remove a virtual break node."""
        self._graph.break_after(self._registry.find_nodes(operator, self._graph)[-1].id, broken=False)

    def budget(
        self, probes: float | str | None, policy: str = "steady", query: str | None = None, sample: int | None = None
    ) -> None:
        """Limit the probes of joins, per second of event time (a number) or per push ("500 ms").

        None lifts the limit. `policy` is how it is allocated. `query`: it binds that query and those that share its
        joins, which must all have FRESHNESS; without it, every query, also later ones. The newest tuples probe first;
        with `sample` (a seed) a random sample of them. See docs/overload.md.
        """
        budget = None if probes is None else as_budget(probes, policy, sample)
        self._changes.set_budget(budget, query)

    def unbind(self, name: str) -> None:
        """Remove a query's own budget: the budget of the engine, if there is one, binds it. See `budget`."""
        self._changes.remove_budget(name)

    def decisions(self) -> list[Decision]:
        """The newest 10,000 decisions that `adapt` made, with the measurements behind them, or that `replay` repeated.

        A decision that could not be executed has an `error`.
        """
        return self._adaptation.decisions

    def replay(self, decisions: Iterable[Decision]) -> None:
        """Repeat the decisions of another engine, each after the same number of pushes."""
        self._adaptation.replay(decisions)

    def awaits(self, name: str) -> int | None:
        """The time of the first tuple that a query holds and may not process yet; None if it holds none."""
        return self._reports.awaits(name)

    def take_samples(self, sampler: Sampler) -> list[JoinSample]:
        """Samples of the joins, for a controller outside of the engine; see `adapt.sampler`."""
        return sampler.take_samples(self._join_registry, self._registry.__getitem__, self._budgets)

    def close(self) -> None:
        """Stop adapting. Queries keep running."""
        self._adaptation.close()

    def overloads(self, name: str) -> list[JoinBudget]:
        """The joins of a query under a budget, with their measurements and allocation."""
        return self._budgets.join_budgets(self._registry[name])

    def explain(self, name: str, format: str = "text") -> str:
        """The plan of a query as "text", as a "mermaid" diagram, or the state table of its operators as "table".

        The text ends with the warnings about the query and the active notices about its streams.
        """
        return self._reports.explain(name, format)

    def reslice(self, slicing: Slicing, query: str | None = None) -> None:
        """Change how shared joins keep tuples: all joins, or those of one query.

        "mem-opt" frees a tuple as soon as no query needs it; "cpu-opt" frees it at the ends of slices, which are merged
        for the least work.
        """
        require_known(slicing, get_args(Slicing), "slicing")
        self._changes.reslice(slicing, query)

    def slices(self, name: str) -> pa.Table:
        """The slices of the join of a query: their queries, their tuples by stream, and their results."""
        return self._reports.slices(name)

    def picture(self, name: str) -> ExplainNode:
        """The plan of a query as a tree."""
        return self._reports.picture(name)

    def metrics(self, name: str) -> dict[str, object]:
        """The metrics of a query, of its operators and of its streams."""
        return self._reports.metrics(name)

    def notices(self) -> tuple[Notice, ...]:
        """The active notices: streams that hold others back, rows that are mostly late, times in another unit.

        Each has a `condition`, a `stream` and a `message`; docs/troubleshooting.md lists them.
        """
        return self._notices.list_active()

    def late(self, name: str) -> pa.Table:
        """The late tuples of a stream (the newest million of them)."""
        return self._relations.streams[name].late.rows()

    def dead_letters(self, name: str) -> pa.Table:
        """The tuples of a stream that were rejected, with the reason in `_reason` (the newest million of them)."""
        return self._relations.streams[name].dead_letters.with_reasons()

    # ── snapshots ────────────────────────────────────────────────────────────────────────────────────────────────

    def snapshot(self) -> bytes:
        """The engine as bytes: declarations, queries, frontiers and base windows."""
        return self._persistence.take_snapshot().to_bytes()

    @classmethod
    def restore(cls, blob: bytes, clock: Clock | None = None, aggregates: Mapping[str, type] | None = None) -> Engine:
        """An engine that continues from a snapshot, with the results that the old one would have had.

        A snapshot holds no code: pass the classes of user-defined aggregates as `aggregates`.
        """
        snapshot = Snapshot.from_bytes(blob)
        with refuse_bad_content():
            engine = cls(**read_options(snapshot), clock=clock)
            engine._persistence.restore(snapshot, aggregates or {})
        return engine
