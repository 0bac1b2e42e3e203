"""The embedded engine: catalogue, query graph and running queries behind one class.

Law: the multiset of results of a query depends only on the tuples pushed and the query's text (see docs/semantics.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from time import perf_counter
from typing import get_args

import pyarrow as pa

from penstock.adapt.budget import Timer, as_budget
from penstock.adapt.controller import Controller, DecisionReplay
from penstock.adapt.decide import Decision, Rules, as_rules
from penstock.adapt.join_budget import JoinBudget
from penstock.adapt.monitor import JoinSample
from penstock.adapt.sampler import Sampler
from penstock.cql.catalog import Stream, Timestamps
from penstock.engine.budgets import Budgets
from penstock.engine.build import QueryBuilder, require_plan
from penstock.engine.guard import Guard, guard_calls
from penstock.engine.join_registry import JoinRegistry
from penstock.engine.parts import DumpedJoins
from penstock.engine.query_changes import QueryChanges
from penstock.engine.registry import QueryRegistry
from penstock.engine.relations import Duration, Relations, describe_stream
from penstock.engine.snapshot import SnapshotArchive, refuse_bad_content
from penstock.engine.streams import Clock
from penstock.errors import QueryError, ResourceError, require_known
from penstock.graph.graph import Graph
from penstock.graph.rules import STRATEGIES
from penstock.graph.scheduler import GraphScheduler
from penstock.graph.timestamps import find_awaited_time
from penstock.join.demand.gate import DemandFilter
from penstock.join.running_trees import Migration
from penstock.join.sharing.slices import Slicing
from penstock.plan.explain import ExplainNode, as_mermaid, as_text
from penstock.state.kernels import FOREVER
from penstock.state.maintenance import SHIPPED, Maintenance


@guard_calls(
    nests=("awaits", "close", "dead_letters", "decisions", "failures", "late", "overloads", "picture"),
    always=("close",),
)
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
    ) -> None:
        """`share`: queries over the same streams run as one join; `slicing`: how it keeps tuples, see `reslice`.

        `max_queries`: how many queries there may be. With `adapt` plans, state policies and budgets follow what is
        measured, by some `Rules`; see docs/adapt.md. `timer` tells the seconds that pushes take, for `adapt` and for
        budgets per push. `maintenance`: when state is reorganised, which no result depends on.
        """
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise QueryError("BAD_BATCH", f"batch is the number of tuples per turn, at least 1, not {batch!r}")
        if isinstance(max_queries, bool) or not isinstance(max_queries, int) or max_queries < 1:
            raise QueryError("BAD_LIMIT", f"max_queries is a number of queries, at least 1, not {max_queries!r}")
        require_known(slicing, get_args(Slicing), "slicing")
        rules = as_rules(adapt)
        self._batch = batch
        self._share = share
        self._max_queries = max_queries
        self._maintenance = maintenance
        self._graph = Graph()
        self._cycle = GraphScheduler(self._graph, batch)
        self._guard = Guard()
        self._relations = Relations(self._graph, clock, self._guard)
        self._join_registry = JoinRegistry(share=share, slicing=slicing, nest=rules is None)
        self._registry = QueryRegistry(self._guard)
        self._budgets = Budgets(self._registry, timer)
        self._builder = QueryBuilder(
            state,
            demand,
            self._graph,
            self._relations,
            self._join_registry,
            self._registry,
            self._budgets,
            maintenance,
            self._guard,
        )
        self._changes = QueryChanges(self._relations, self._registry, self._join_registry, self._builder, self._guard)
        self._controller = None if rules is None else Controller(rules, timer)
        self._replay: DecisionReplay | None = None
        self._pushes = 0
        self._schedule = schedule
        self.schedule(schedule)

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
    ) -> None:
        """Declare a stream: its columns, which of them is its time, and how late a tuple may be.

        By default only tuples, `advance` and `flush` move its time. Else the engine's clock may: tuples of an
        "external" stream come at most `skew` after their time, and if none comes for `idle_after` none is expected
        that is older than that; those of an "internal" or "latent" stream are stamped by the engine, when they arrive
        or when they are first needed, whatever stands in their time column.
        """
        self._relations.require_free(name)
        self._relations.add_stream(describe_stream(name, schema, time, lateness, timestamps, skew, idle_after))

    def declare(self, stream: Stream) -> None:
        """Declare a stream that a script's CREATE STREAM has described."""
        self._relations.add_stream(stream)

    def table(self, name: str, table: pa.Table) -> None:
        """Declare a static table: its rows are always valid."""
        self._relations.add_table(name, table)

    def aggregate(self, name: str, cls: type) -> None:
        """Make a class usable as an aggregate by name; see docs/queries.md for what it must have."""
        self._relations.add_aggregate(name, cls)

    # ── queries ──────────────────────────────────────────────────────────────────────────────────────────────────

    def query(
        self,
        name: str,
        text: str,
        plan: str | None = None,
        state: str | None = None,
        demand: DemandFilter | None = None,
        *,
        history: bool = False,
    ) -> None:
        """Start a continuous query. It sees the tuples that arrive from now on.

        `plan` fixes the shape of the join tree by alias; a query with several joins takes one for each, divided by
        semicolons. `state` is its state policy, `demand` how "jit" and "auto" keep what is demanded of a state:
        "exact", or "bloom", a filter that lets some rows too many be built; both the engine's by default. With
        `history` a query that can share a running join also sees what its windows hold; the metric `complete_since`
        says from when on it lacks nothing.
        """
        self._registry.require_free(name)
        if len(self._registry.queries) >= self._max_queries:
            message = f"{self._max_queries} queries run, no more are allowed; drop one or give Engine(max_queries=...)"
            raise ResourceError("TOO_MANY_QUERIES", message, limit=self._max_queries)
        self._registry.add(self._builder.build_query(name, text, plan, state, demand, history=history))

    def alter(self, name: str, text: str, plan: str | None = None, state: str | None = None) -> None:
        """Go on with another text: another window, filter or select list. What the windows hold is looked back at.

        Results come by the new text from the next push on; see `history` of `query`. If the text is wrong, the query
        goes on as it was.
        """
        self._changes.alter(name, text, plan, state, self._budgets)

    def derive(
        self,
        name: str,
        text: str,
        plan: str | None = None,
        state: str | None = None,
        demand: DemandFilter | None = None,
    ) -> None:
        """Declare a stream that is the results of a query, for other queries to read; its time column is `_ts`."""
        self._relations.require_free(name)
        self._registry.require_free(name)
        try:
            running = self._builder.build_query(name, text, plan, state, demand, derives=True)
        except QueryError as error:
            if (
                error.condition == "UNKNOWN_RELATION"
                and str(error.parameters.get("relation")).casefold() == name.casefold()
            ):
                message = f"{name} would be derived from itself; a stream is derived from streams declared before it"
                raise QueryError("DERIVED_CYCLE", message, stream=name) from error
            raise
        self._registry.add(running)
        assert running.derived_stream is not None
        self._relations.register_stream(running.derived_stream)

    def drop(self, name: str) -> None:
        """Stop a query, or a derived stream nobody reads, and forget what it remembers."""
        self._changes.drop(name, self._budgets)

    def migrate(self, name: str, plan: str, how: str = "jisc") -> None:
        """Go on with another plan, without losing or repeating a result.

        What a chain of EXCEPT takes away stands in the order of the plan: "A; D; B" asks D before B.
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
    ) -> dict[str, pa.Table]:
        """Give tuples to streams; returns what became certain, per query in temporal order.

        `frontiers`: by stream, a time before which no tuple will come after these; see `advance`. Nothing is taken if
        any table does not fit its stream.
        """
        arrived = self._relations.streams.prepare_rows(data)
        promises = self._relations.streams.resolve_frontiers(frontiers or {})
        with self._guard.change():
            for rows in arrived:
                rows.feed()
            for source, frontier in promises:
                source.advance(frontier)
            return self._run_cycle()

    def advance(self, name: str, time: int | datetime | pa.Scalar) -> None:
        """No tuple of the stream before `time` will come.

        What becomes certain by that comes with the next push, which may be empty: `push({})`.
        """
        for source, frontier in self._relations.streams.resolve_frontiers({name: time}):
            source.advance(frontier)

    def flush(self) -> dict[str, pa.Table]:
        """The end of every stream."""
        with self._guard.change():
            for source in self._relations.streams:
                source.advance(int(FOREVER))
            return self._run_cycle()

    def _run_cycle(self) -> dict[str, pa.Table]:
        for steering in (self._replay, self._controller):
            if steering is not None:
                with self._guard.allow_nesting():
                    steering.before_push(self, self._pushes)
                self._guard.require_intact()
        self._budgets.begin()
        self._cycle.run()
        self._budgets.end()
        self._pushes += 1
        if self._controller is not None:
            self._controller.after_push(self._join_registry, self._registry.__getitem__, self._budgets)
        joins = list(self._join_registry)
        self._registry.warn_failures(joins)
        return self._registry.collect_results(joins)

    def failures(self) -> dict[str, QueryError]:
        """The queries and derived streams that stopped, because an expression or an aggregate of theirs raised.

        A stopped query writes nothing more until it is dropped and started again; the others go on.
        """
        return self._registry.failures()

    # ── while running ────────────────────────────────────────────────────────────────────────────────────────────

    def schedule(self, strategy: str, part: str | None = None) -> None:
        """The strategy by which the next operator is selected: "dfs", "bfs" or "rr".

        `part` is a query, or an operator by the name `explain(..., format="table")` shows; without it, all there is.
        """
        require_known(strategy, tuple(STRATEGIES), "schedule")
        ids = [] if part is None else [node.id for node in self._registry.find_nodes(part, self._graph)]
        with self._guard.change():
            self._schedule = strategy if part is None else self._schedule
            self._graph.schedule(strategy, *ids)

    def break_after(self, operator: str) -> None:
        """Set a virtual break node behind an operator, or a query's last: what follows is scheduled on its own."""
        self._graph.break_after(self._registry.find_nodes(operator, self._graph)[-1].id)

    def mend_after(self, operator: str) -> None:
        """Unset a virtual break node."""
        self._graph.break_after(self._registry.find_nodes(operator, self._graph)[-1].id, broken=False)

    def budget(
        self, probes: float | str | None, policy: str = "steady", query: str | None = None, sample: int | None = None
    ) -> None:
        """Limit the probes of joins: so many per second of event time, or what fits into a time per push ("500 ms").

        None lifts the limit. `policy` says how it is allocated, `query` whom it binds: every query, also those to
        come, or that one and who shares its join, if they all have FRESHNESS. Newest tuples probe first, with `sample`
        (a seed) a random choice. See docs/overload.md.
        """
        budget = None if probes is None else as_budget(probes, policy, sample)
        self._changes.set_budget(budget, query, self._budgets)

    def unbind(self, name: str) -> None:
        """Take back a query's own budget: it is bound as all others are; see `budget`."""
        self._changes.remove_budget(name, self._budgets)

    def decisions(self) -> list[Decision]:
        """What was decided under `adapt`, with the numbers that led to it, or repeated by `replay`: the newest 10,000.

        What could not be carried out has an `error`.
        """
        return [*(self._replay.log if self._replay else ()), *(self._controller.log if self._controller else ())]

    def replay(self, decisions: Iterable[Decision]) -> None:
        """Repeat the decisions of another engine, each after as many pushes as there."""
        if self._controller is not None:
            raise QueryError("ADAPTS_ITSELF", "an engine that adapts makes its own decisions; replay in Engine()")
        self._replay = DecisionReplay(decisions)

    def awaits(self, name: str) -> int | None:
        """The first time at which a query has something to do that it may not do yet; None if nothing waits."""
        return min(
            (time for node in self._registry[name].nodes if (time := find_awaited_time(node)) is not None), default=None
        )

    def take_samples(self, sampler: Sampler) -> list[JoinSample]:
        """What somebody who adapts the queries from outside sees of the joins; see `adapt.sampler`."""
        return sampler.take_samples(self._join_registry, self._registry.__getitem__, self._budgets)

    def close(self) -> None:
        """Stop adapting. Queries can go on as they are."""
        if self._controller is not None:
            self._controller.close()

    def overloads(self, name: str) -> list[JoinBudget]:
        """The joins of a query that keep to a budget, with what they measured and how it is allocated."""
        return self._budgets.join_budgets(self._registry[name])

    def explain(self, name: str, format: str = "text") -> str:
        """The plan of a query; as "table", the state table by which its part of the graph is run."""
        running = self._registry[name]
        if format == "table":
            part = {
                other.id
                for node in self._registry.find_nodes(name, self._graph)
                for other in self._graph.list_upstream(node)
            }
            return self._graph.table.restrict_to(part).as_text()
        picture = running.build_description(self._budgets.format_allowances(running))
        if format == "mermaid":
            return as_mermaid(picture)
        if format != "text":
            raise QueryError("UNKNOWN_FORMAT", f"explain knows the formats text, mermaid and table, not {format!r}")
        plan = "" if running.plan_text is None else f", plan {running.plan_text}"
        with self._guard.change():  # to tell the slices sums up their counts
            shared = running.format_sharing()
        return "\n".join([f"{running.name}: {running.query.emit.upper()}{plan}", as_text(picture), *shared])

    def reslice(self, slicing: Slicing, query: str | None = None) -> None:
        """How joins that queries share keep tuples, all of them or that of one query.

        "mem-opt" frees a tuple as soon as nobody wants it; "cpu-opt" at the ends of slices merged for the least work.
        """
        require_known(slicing, get_args(Slicing), "slicing")
        self._changes.reslice(slicing, query)

    def slices(self, name: str) -> pa.Table:
        """The slices of the join a query runs in: who reads each, the tuples it holds by stream, what it brought."""
        running = self._registry[name]
        running.check_single_join()
        with self._guard.change():  # sums up the counts of slices
            return running.slices()

    def picture(self, name: str) -> ExplainNode:
        """What a query does, as a tree to draw."""
        return self._registry[name].build_description()

    def metrics(self, name: str) -> dict[str, object]:
        """What a query has read, holds and has written, and what its streams turned away."""
        running = self._registry[name]
        streams = dict.fromkeys(source.relation.name for source in running.query.body.inputs if not source.is_table)
        with self._guard.change():  # sums up the counts of slices
            told = running.metrics()
        return {
            **told,
            **self._budgets.metrics(running),
            "streams": {stream: self._graph[f"source {stream}"].operator.metrics() for stream in streams},
        }

    def late(self, name: str) -> pa.Table:
        """Tuples of a stream that came too late to be joined (the newest million of them)."""
        return self._relations.streams[name].late.rows()

    def dead_letters(self, name: str) -> pa.Table:
        """Tuples of a stream that were not usable, with the reason in `_reason` (the newest million of them)."""
        return self._relations.streams[name].dead_letters.with_reasons()

    # ── snapshots ────────────────────────────────────────────────────────────────────────────────────────────────

    def snapshot(self) -> bytes:
        """All that is needed to go on elsewhere: declarations, queries, frontiers and base windows."""
        parts = SnapshotArchive()
        parts.add_options({
            "state": self._builder.state, "demand": self._builder.demand, "schedule": self._schedule,
            "batch": self._batch, "share": self._share, "slicing": self._join_registry.slicing,
            "max_queries": self._max_queries,
            "budgets": self._budgets.dump(self._controller.budgeted_queries if self._controller else ()),
            "adapt": asdict(self._controller.rules) if self._controller else None, "pushes": self._pushes,
            "maintenance": asdict(self._maintenance),
        })  # fmt: skip
        for name, table in self._relations.tables.items():
            parts.add_table(name, table)
        for source in self._relations.streams:
            parts.add_source(source, self._graph[source.id].outlet, self._graph.run_settings(source.id))
        parts.add_names(self._relations.stream_order, list(self._relations.catalog.aggregates))
        shared: DumpedJoins = {}
        for running in self._registry:
            parts.add_query(running, shared)
        return parts.to_bytes()

    @classmethod
    def restore(cls, blob: bytes, clock: Clock | None = None, aggregates: Mapping[str, type] | None = None) -> Engine:
        """The engine of a snapshot; its next results are those the old one would have given.

        A snapshot holds no code: `aggregates` gives the classes of user-defined aggregates again.
        """
        parts = SnapshotArchive.from_bytes(blob)
        with refuse_bad_content():
            return cls._restore_archive(parts, clock, aggregates or {})

    @classmethod
    def _restore_archive(cls, parts: SnapshotArchive, clock: Clock | None, aggregates: Mapping[str, type]) -> Engine:
        options = parts.options()
        budgets, rules, pushes = (options.pop(name, None) for name in ("budgets", "adapt", "pushes"))
        upkeep = Maintenance(**options.pop("maintenance", {}))
        engine = cls(**options, clock=clock, adapt=Rules(**rules) if rules else False, maintenance=upkeep)
        engine._pushes = pushes or 0
        for name, table in parts.tables():
            engine.table(name, table)
        for saved in parts.sources():
            source, outlet = engine._relations.streams.add(saved.stream)
            saved.apply(source, outlet)
            engine._graph.restore_settings(source.id, saved.entry["run_settings"])
            engine._relations.register_stream(saved.stream)
        engine._relations.restore(*parts.names(), aggregates)
        queries = list(parts.queries())
        engine._join_registry.assign_join_ids(seat for query in queries for seat in query.join_ids)
        for query in queries:
            start = engine.derive if query.derived else engine.query
            start(query.name, query.text, query.plan, query.state, query.demand)
        for query in queries:  # a join comes back when all who share it are there
            query.apply(engine._registry[query.name])
        engine._join_registry.assign_join_ids(None)
        if budgets is not None:
            engine._budgets.restore(budgets)
        return engine
