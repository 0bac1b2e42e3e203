"""The embedded engine: catalogue, query graph and running queries behind one class.

Law: the multiset of results of a query depends only on the tuples pushed and the query's text (see docs/semantics.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from time import perf_counter
from typing import get_args

import pyarrow as pa

from penstock import snapshot
from penstock.adapt.budget import Budgets, Timer, as_budget
from penstock.adapt.controller import Controller, Replay
from penstock.adapt.decide import Decision, Rules, as_rules
from penstock.adapt.lookout import Lookout
from penstock.adapt.monitor import Sample
from penstock.adapt.overload import Overload
from penstock.cql import bind_query, duration, stream_schema, time_column
from penstock.cql.bound import Query
from penstock.cql.catalog import Catalog, Stream, Table, Timestamps
from penstock.errors import DataError, QueryError, ResourceError, UnsupportedError
from penstock.graph.graph import Graph
from penstock.graph.rules import STRATEGIES
from penstock.graph.run import Cycle
from penstock.graph.timestamps import awaited
from penstock.groups import Groups
from penstock.ingest import fitted
from penstock.ops.group import Slicing
from penstock.ops.join import JoinOperator, Migration
from penstock.ops.policies import POLICIES
from penstock.ops.user_aggregate import checked
from penstock.plan.explain import Description, as_mermaid, as_text
from penstock.roster import Roster
from penstock.running import RunningQuery
from penstock.stages import Told
from penstock.state.demand import Kept
from penstock.state.kernels import FOREVER
from penstock.streams import Clock, Streams

_STATES = tuple(POLICIES)
_DEMANDS = get_args(Kept)
_MIGRATIONS = get_args(Migration)
_SLICINGS = get_args(Slicing)


class Engine:
    """Continuous queries in this process.

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
        demand: Kept = "exact",
        *,
        share: bool = True,
        slicing: Slicing = "mem-opt",
        max_queries: int = 10_000,
        adapt: bool | Rules = False,
        timer: Timer = perf_counter,
    ) -> None:
        """`share`: queries over the same streams run as one join; `slicing`: how it keeps tuples, see `reslice`.

        `max_queries`: how many queries there may be. With `adapt` plans, state policies and budgets follow what is
        measured, by some `Rules`; see docs/adapt.md. `timer` tells the seconds that pushes take, for `adapt` and for
        budgets per push.
        """
        _known(state, _STATES, "state policy")
        _known(demand, _DEMANDS, "way to keep demand")
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise QueryError("BAD_BATCH", f"batch is the number of tuples per turn, at least 1, not {batch!r}")
        if isinstance(max_queries, bool) or not isinstance(max_queries, int) or max_queries < 1:
            raise QueryError("BAD_LIMIT", f"max_queries is a number of queries, at least 1, not {max_queries!r}")
        self._state = state
        self._demand: Kept = demand
        self._batch = batch
        self._share = share
        self._max_queries = max_queries
        _known(slicing, _SLICINGS, "slicing")
        self._groups = Groups(share=share, slicing=slicing, nest=as_rules(adapt) is None)
        self._catalog = Catalog()
        self._graph = Graph()
        self._cycle = Cycle(self._graph, batch)
        self._streams = Streams(self._graph, self._catalog, clock)
        self._tables: dict[str, pa.Table] = {}
        self._roster = Roster()
        self._order: list[str] = []  # streams as they were declared: this orders tuples of one time
        self._budgets = Budgets(self._roster, timer)
        rules = as_rules(adapt)
        self._controller = None if rules is None else Controller(rules, timer)
        self._replay: Replay | None = None
        self._pushes = 0
        self.schedule(schedule)

    # ── declarations ─────────────────────────────────────────────────────────────────────────────────────────────

    def stream(
        self,
        name: str,
        schema: Mapping[str, str] | pa.Schema,
        time: str,
        lateness: str | int | timedelta = 0,
        timestamps: Timestamps = "external",
        skew: str | int | timedelta = 0,
        idle_after: str | int | timedelta | None = None,
    ) -> None:
        """Declare a stream: its columns, which of them is its time, and how late a tuple may be.

        By default only tuples, `advance` and `flush` move its time. Else the engine's clock may: tuples of an
        "external" stream come at most `skew` after their time, and if none comes for `idle_after` none is expected
        that is older than that; those of an "internal" or "latent" stream are stamped by the engine, when they arrive
        or when they are first needed, whatever stands in their time column.
        """
        self._free_name(name)
        _known(timestamps, get_args(Timestamps), "kind of timestamps")
        columns = stream_schema(schema)
        time = time_column(columns, time)
        unit = columns.field(time).type
        idle = None if idle_after is None else duration(idle_after, unit)
        self.declare(Stream(name, columns, time, duration(lateness, unit), timestamps, duration(skew, unit), idle))

    def declare(self, stream: Stream) -> None:
        """Declare a stream that a script's CREATE STREAM has described."""
        self._free_name(stream.name)
        self._streams.add(stream)
        self._know(stream)

    def _know(self, stream: Stream) -> None:
        self._catalog.relations.add(stream)
        if stream.name not in self._order:
            self._order.append(stream.name)

    def table(self, name: str, table: pa.Table) -> None:
        """Declare a static table: its rows are always valid."""
        self._free_name(name)
        if not isinstance(table, (pa.Table, pa.RecordBatch)):
            raise DataError("NOT_A_TABLE", f"table {name} is a {type(table).__name__}; give a pyarrow.Table")
        schema = stream_schema(table.schema)
        columns = fitted(name, table, schema)
        self._tables[name] = pa.table(columns, schema=schema)
        self._catalog.relations.add(Table(name, schema))

    def _free_name(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise QueryError("BAD_NAME", f"a name is a text that is not empty, not {name!r}")
        if name in self._catalog.relations:
            raise QueryError(
                "DUPLICATE_NAME", f"there is a stream or table {self._catalog.relations[name].name} already"
            )

    # ── queries ──────────────────────────────────────────────────────────────────────────────────────────────────

    def query(
        self,
        name: str,
        text: str,
        plan: str | None = None,
        state: str | None = None,
        demand: Kept | None = None,
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
        self._roster.require_free(name)
        if len(self._roster.queries) >= self._max_queries:
            message = f"{self._max_queries} queries run, no more are allowed; drop one or give Engine(max_queries=...)"
            raise ResourceError("TOO_MANY_QUERIES", message, limit=self._max_queries)
        query = bind_query(text, self._catalog)
        self._roster.add(self._start(name, query, plan, state, demand, history=history))

    def alter(self, name: str, text: str, plan: str | None = None, state: str | None = None) -> None:
        """Go on with another text: another window, filter or select list. What the windows hold is looked back at.

        Results come by the new text from the next push on; see `history` of `query`. If the text is wrong, the query
        goes on as it was.
        """
        running = self._roster[name]
        if running.feeds is not None:
            message = f"{running.name} is a stream that others may read; drop it and declare it again"
            raise QueryError("DERIVED_STREAM", message, stream=running.name)
        query = bind_query(text, self._catalog)
        demand = running.demand if state is None and running.demanding else None
        self._roster.replace(self._start(running.name, query, plan, state or running.state, demand, history=True))
        self._budgets.retire(running)
        running.remove()

    def derive(
        self, name: str, text: str, plan: str | None = None, state: str | None = None, demand: Kept | None = None
    ) -> None:
        """Declare a stream that is the results of a query, for other queries to read; its time column is `_ts`."""
        self._free_name(name)
        self._roster.require_free(name)
        try:
            query = bind_query(text, self._catalog)
        except QueryError as error:
            if (
                error.condition == "UNKNOWN_RELATION"
                and str(error.parameters.get("relation")).casefold() == name.casefold()
            ):
                message = f"{name} would be derived from itself; a stream is derived from streams declared before it"
                raise QueryError("DERIVED_CYCLE", message, stream=name) from error
            raise
        stream = Stream(name, query.schema, "_ts")
        self._roster.add(self._start(name, query, plan, state, demand, stream))
        self._know(stream)

    def _start(
        self,
        name: str,
        query: Query,
        plan: str | None,
        state: str | None,
        demand: Kept | None,
        feeds: Stream | None = None,
        *,
        history: bool = False,
    ) -> RunningQuery:
        if plan is not None:
            _plan(plan)
        state, demand = self._chosen(state, demand)
        ranks = {stream: place for place, stream in enumerate(self._order)}
        classes = self._catalog.aggregates
        self._groups.purse = self._budgets.purse(name)
        running = RunningQuery(
            name, query, plan, state, demand, self._graph, self._tables, ranks, classes, self._groups, feeds,
            history=history,
        )  # fmt: skip
        try:
            self._budgets.admit(running)
        except UnsupportedError:
            running.remove()
            raise
        return running

    def _chosen(self, state: str | None, demand: Kept | None) -> tuple[str, Kept]:
        """What is kept: as asked for, else as the engine has it."""
        state = self._state if state is None else state
        _known(state, _STATES, "state policy")
        if demand is None:
            return state, self._demand
        _known(demand, _DEMANDS, "way to keep demand")
        if POLICIES[state].gated == "never":
            message = f"the state policy {state} asks for no demand to keep ({demand}); jit and auto do"
            raise QueryError("NO_DEMAND", message, state=state)
        return state, demand

    def aggregate(self, name: str, cls: type) -> None:
        """Make a class usable as an aggregate by name; see docs/queries.md for what it must have."""
        if not isinstance(name, str) or not name.isidentifier():
            raise QueryError("BAD_NAME", f"an aggregate's name is a word, not {name!r}")
        taken = ("count", "sum", "avg", "min", "max", "abs", "coalesce", "cast", *self._catalog.aggregates)
        if name.casefold() in taken:
            raise QueryError("DUPLICATE_NAME", f"there is a function {name} already")
        self._catalog.aggregates[name.casefold()] = checked(name, cls)

    def drop(self, name: str) -> None:
        """Stop a query, or a derived stream nobody reads, and forget what it remembers."""
        running = self._roster[name]
        if running.feeds is not None:
            readers = self._roster.readers(running)
            if readers:
                message = f"the stream {running.name} is read by {', '.join(dict.fromkeys(readers))}; drop that first"
                raise QueryError("STREAM_IN_USE", message, stream=running.name)
            self._catalog.relations.remove(name)
        self._budgets.dismiss(running)
        self._roster.remove(running)
        running.remove()
        self._apart(join for join in running.joins if len(join.tapped) == len(join.group.members))

    def _apart(self, joins: Iterable[JoinOperator]) -> None:
        """Give the queries that read a node of these joins a join of their own, at the point where they are."""
        for join in [join for join in joins if join.tapped]:
            readers = [running for running in self._roster if running.nested_in(join)]
            told: Told = {}
            rests = [running.dump(told) for running in readers]
            self._groups.seat(rest.values["seat"] for each in rests for rest in each)
            demands = [running.demand if running.demanding else None for running in readers]
            new = [self._start(r.name, r.query, r.plan_text, r.state, d) for r, d in zip(readers, demands, strict=True)]
            for old, own, rest in zip(readers, new, rests, strict=True):
                self._roster.replace(own)
                own.revive(rest, None)
                own.stop(old.failure)
                old.remove()
            self._groups.seat(None)

    def migrate(self, name: str, plan: str, how: str = "jisc") -> None:
        """Go on with another plan, without losing or repeating a result.

        What a chain of EXCEPT takes away stands in the order of the plan: "A; D; B" asks D before B.
        """
        _known(how, _MIGRATIONS, "way to migrate")
        _plan(plan)
        self._apart(self._roster[name].broken_by(plan))
        self._roster[name].migrate(plan, how)  # type: ignore[arg-type]

    def policy(self, name: str, state: str, node: str | None = None, demand: Kept | None = None) -> None:
        """Change the state policy of a running query, or of one node of its plan such as "(A B)"."""
        state, kept = self._chosen(state, demand)
        self._apart(self._roster[name].joins)
        running = self._roster[name]
        running.adopt(state, running.demand if demand is None else kept, node)

    # ── data ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def push(
        self, data: Mapping[str, pa.Table], frontiers: Mapping[str, int | datetime | pa.Scalar] | None = None
    ) -> dict[str, pa.Table]:
        """Give tuples to streams; returns what became certain, per query in temporal order.

        `frontiers`: by stream, a time before which no tuple will come after these; see `advance`. Nothing is taken if
        any table does not fit its stream.
        """
        self._streams.feed(data)
        for name, time in (frontiers or {}).items():
            self._streams.advance(name, time)
        return self._run()

    def advance(self, name: str, time: int | datetime | pa.Scalar) -> None:
        """No tuple of the stream before `time` will come.

        What becomes certain by that comes with the next push, which may be empty: `push({})`.
        """
        self._streams.advance(name, time)

    def flush(self) -> dict[str, pa.Table]:
        """The end of every stream."""
        for source in self._streams:
            source.advance(int(FOREVER))
        return self._run()

    def _run(self) -> dict[str, pa.Table]:
        for steering in (self._replay, self._controller):
            if steering is not None:
                steering.before(self, self._pushes)
        self._budgets.begin()
        self._cycle.run()
        self._budgets.end()
        self._pushes += 1
        if self._controller is not None:
            self._controller.after(self._groups, self._roster.__getitem__, self._budgets)
        joins = list(self._groups)
        self._roster.warn(joins)
        return self._roster.results(joins)

    def failures(self) -> dict[str, QueryError]:
        """The queries and derived streams that stopped, because an expression or an aggregate of theirs raised.

        A stopped query writes nothing more until it is dropped and started again; the others go on.
        """
        return self._roster.failures()

    # ── while running ────────────────────────────────────────────────────────────────────────────────────────────

    def schedule(self, strategy: str, part: str | None = None) -> None:
        """The strategy by which the next operator is selected: "dfs", "bfs" or "rr".

        `part` is a query, or an operator by the name `explain(..., format="table")` shows; without it, all there is.
        """
        _known(strategy, tuple(STRATEGIES), "schedule")
        if part is None:
            self._schedule = strategy
            self._graph.schedule(strategy)
        else:
            self._graph.schedule(strategy, *(node.id for node in self._roster.part(part, self._graph)))

    def break_after(self, operator: str) -> None:
        """Set a virtual break node behind an operator, or a query's last: what follows is scheduled on its own."""
        self._graph.break_after(self._roster.part(operator, self._graph)[-1].id)

    def mend_after(self, operator: str) -> None:
        """Unset a virtual break node."""
        self._graph.break_after(self._roster.part(operator, self._graph)[-1].id, broken=False)

    def budget(
        self, probes: float | str | None, policy: str = "steady", query: str | None = None, sample: int | None = None
    ) -> None:
        """Limit the probes of joins: so many per second of event time, or what fits into a time per push ("500 ms").

        None lifts the limit. `policy` says how it is allocated, `query` whom it binds: every query, also those to
        come, or that one and who shares its join, if they all have FRESHNESS. Newest tuples probe first, with `sample`
        (a seed) a random choice. See docs/overload.md.
        """
        budget = None if probes is None else as_budget(probes, policy, sample)
        self._apart(self._groups)
        running = None if query is None else self._roster[query]
        self._budgets.set(budget, running)

    def unbind(self, name: str) -> None:
        """Take back a query's own budget: it is bound as all others are; see `budget`."""
        self._budgets.free(self._roster[name])

    def decisions(self) -> list[Decision]:
        """What was decided under `adapt`, with the numbers that led to it, or repeated by `replay`: the newest 10,000.

        What could not be carried out has an `error`.
        """
        return [*(self._replay.log if self._replay else ()), *(self._controller.log if self._controller else ())]

    def replay(self, decisions: Iterable[Decision]) -> None:
        """Repeat the decisions of another engine, each after as many pushes as there."""
        if self._controller is not None:
            raise QueryError("ADAPTS_ITSELF", "an engine that adapts makes its own decisions; replay in Engine()")
        self._replay = Replay(decisions)

    def awaits(self, name: str) -> int | None:
        """The first time at which a query has something to do that it may not do yet; None if nothing waits."""
        return min((time for node in self._roster[name].nodes if (time := awaited(node)) is not None), default=None)

    def look(self, lookout: Lookout) -> list[Sample]:
        """What somebody who adapts the queries from outside sees of the joins; see `adapt.lookout`."""
        return lookout.look(self._groups, self._roster.__getitem__, self._budgets)

    def close(self) -> None:
        """Stop adapting. Queries can go on as they are."""
        if self._controller is not None:
            self._controller.close()

    def overloads(self, name: str) -> list[Overload]:
        """The joins of a query that keep to a budget, with what they measured and how it is allocated."""
        return self._budgets.overloads(self._roster[name])

    def explain(self, name: str, format: str = "text") -> str:
        """The plan of a query; as "table", the state table by which its part of the graph is run."""
        running = self._roster[name]
        if format == "table":
            part = {other.id for node in self._roster.part(name, self._graph) for other in self._graph.upstream(node)}
            return self._graph.table.among(part).as_text()
        picture = running.picture(self._budgets.allowances(running))
        if format == "mermaid":
            return as_mermaid(picture)
        if format != "text":
            raise QueryError("UNKNOWN_FORMAT", f"explain knows the formats text, mermaid and table, not {format!r}")
        plan = "" if running.plan_text is None else f", plan {running.plan_text}"
        return "\n".join([f"{running.name}: {running.query.emit.upper()}{plan}", as_text(picture), *running.shared()])

    def reslice(self, slicing: Slicing, query: str | None = None) -> None:
        """How joins that queries share keep tuples, all of them or that of one query.

        "mem-opt" frees a tuple as soon as nobody wants it; "cpu-opt" at the ends of slices merged for the least work.
        """
        _known(slicing, _SLICINGS, "slicing")
        if query is None:
            self._groups.reslice(slicing)
        else:
            for join in self._roster[query].joins:
                join.reslice(slicing)

    def slices(self, name: str) -> pa.Table:
        """The slices of the join a query runs in: who reads each, the tuples it holds by stream, what it brought."""
        return self._roster[name].slices()

    def picture(self, name: str) -> Description:
        """What a query does, as a tree to draw."""
        return self._roster[name].picture()

    def metrics(self, name: str) -> dict[str, object]:
        """What a query has read, holds and has written, and what its streams turned away."""
        running = self._roster[name]
        streams = dict.fromkeys(source.relation.name for source in running.query.body.inputs if not source.is_table)
        return {
            **running.metrics(),
            **self._budgets.metrics(running),
            "streams": {stream: self._graph[f"source {stream}"].operator.metrics() for stream in streams},
        }

    def late(self, name: str) -> pa.Table:
        """Tuples of a stream that came too late to be joined (the newest million of them)."""
        return self._streams[name].late.rows()

    def dead_letters(self, name: str) -> pa.Table:
        """Tuples of a stream that were not usable, with the reason in `_reason` (the newest million of them)."""
        return self._streams[name].dead.with_reasons()

    # ── snapshots ────────────────────────────────────────────────────────────────────────────────────────────────

    def snapshot(self) -> bytes:
        """All that is needed to go on elsewhere: declarations, queries, frontiers and base windows."""
        parts = snapshot.Parts()
        parts.add_options({
            "state": self._state, "schedule": self._schedule, "batch": self._batch, "demand": self._demand,
            "share": self._share, "slicing": self._groups.slicing, "max_queries": self._max_queries,
            "budgets": self._budgets.dump(self._controller.bound if self._controller else ()),
            "adapt": asdict(self._controller.rules) if self._controller else None, "pushes": self._pushes,
        })  # fmt: skip
        for name, table in self._tables.items():
            parts.add_table(name, table)
        for source in self._streams:
            parts.add_source(source, self._graph[source.id].outlet, self._graph.habits(source.id))
        parts.add_names(self._order, list(self._catalog.aggregates))
        shared: Told = {}
        for running in self._roster:
            parts.add_query(running, shared)
        return parts.packed()

    @classmethod
    def restore(cls, blob: bytes, clock: Clock | None = None, aggregates: Mapping[str, type] | None = None) -> Engine:
        """The engine of a snapshot; its next results are those the old one would have given.

        A snapshot holds no code: `aggregates` gives the classes of user-defined aggregates again.
        """
        parts = snapshot.Parts.unpacked(blob)
        options = parts.options()
        budgets, rules, pushes = (options.pop(name, None) for name in ("budgets", "adapt", "pushes"))
        engine = cls(**options, clock=clock, adapt=Rules(**rules) if rules else False)
        engine._pushes = pushes or 0
        for name, table in parts.tables():
            engine.table(name, table)
        for saved in parts.sources():
            source, outlet = engine._streams.add(saved.stream)
            saved.apply(source, outlet)
            engine._graph.resume(source.id, saved.entry["habits"])
            engine._know(saved.stream)
        engine._order, names = parts.names()
        for name, class_ in (aggregates or {}).items():
            engine.aggregate(name, class_)
        missing = [name for name in names if name not in engine._catalog.aggregates]
        if missing:
            message = f"the snapshot's engine has the aggregates {', '.join(missing)}; give their classes: aggregates="
            raise QueryError("MISSING_AGGREGATES", message, aggregates=missing)
        queries = list(parts.queries())
        engine._groups.seat(seat for query in queries for seat in query.seats)
        for query in queries:
            start = engine.derive if query.derived else engine.query
            start(query.name, query.text, query.plan, query.state, query.demand)
        for query in queries:  # a join comes back when all who share it are there
            query.apply(engine._roster[query.name])
        engine._groups.seat(None)
        if budgets is not None:
            engine._budgets.revive(budgets)
        return engine


def _known(value: str, options: Sequence[str], what: str) -> None:
    if value not in options:
        raise QueryError("UNKNOWN_OPTION", f"unknown {what} {value!r}; known: {', '.join(options)}")


def _plan(plan: str) -> None:
    if not isinstance(plan, str):
        raise QueryError("PLAN_MISFIT", f"a plan is a text such as (A B), not a {type(plan).__name__}")
