"""The embedded engine: catalogue, query graph and running queries behind one class.

Law: the multiset of results of a query depends only on the tuples pushed and the query's text (see docs/semantics.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal

import pyarrow as pa

from penstock import snapshot
from penstock.cql import bind_query, duration, stream_schema, time_column
from penstock.cql.catalog import Catalog, Names, Stream, Table
from penstock.errors import DataError, QueryError, UnsupportedError
from penstock.graph.buffers import Buffer
from penstock.graph.graph import Graph
from penstock.graph.rules import dfs
from penstock.graph.run import run
from penstock.ingest import fitted, split_null_times, ticks
from penstock.ops.source import SourceOperator
from penstock.plan.explain import as_mermaid, as_text, describe
from penstock.running import RunningQuery
from penstock.state.kernels import FOREVER

_STATES = {"auto": True, "eager": True, "none": True, "lazy": True, "jit": True}
_SCHEDULES = {"dfs": True, "bfs": False, "rr": False}
_MIGRATIONS = {"moving-state": True, "jisc": True, "parallel-track": False}


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

    def __init__(self, state: str = "auto", schedule: str = "dfs", batch: int = 4096) -> None:
        _known(state, _STATES, "state policy")
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise QueryError("BAD_BATCH", f"batch is the number of tuples per turn, at least 1, not {batch!r}")
        self._state = state
        self._batch = batch
        self._catalog = Catalog()
        self._graph = Graph()
        self._tables: dict[str, pa.Table] = {}
        self._queries: Names[RunningQuery] = Names()
        self.schedule(schedule)

    # ── declarations ─────────────────────────────────────────────────────────────────────────────────────────────

    def stream(
        self,
        name: str,
        schema: Mapping[str, str] | pa.Schema,
        time: str,
        lateness: str | int | timedelta = 0,
    ) -> None:
        """Declare a stream: its columns, which of them is its time, and how late a tuple may be."""
        self._free_name(name)
        columns = stream_schema(schema)
        time = time_column(columns, time)
        late = duration(lateness, columns.field(time).type)
        if late < 0:
            raise QueryError("BAD_DURATION", f"the lateness of {name} is negative")
        self._declare(Stream(name, columns, time, late))

    def _declare(self, stream: Stream) -> SourceOperator:
        outlet = Buffer()
        source = SourceOperator(f"source {stream.name}", stream, outlet)
        self._graph.add(source, outlet)
        self._catalog.relations.add(stream)
        return source

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

    def query(self, name: str, text: str, plan: str | None = None) -> None:
        """Start a continuous query. It sees the tuples that arrive from now on."""
        if not isinstance(name, str) or not name:
            raise QueryError("BAD_NAME", f"a name is a text that is not empty, not {name!r}")
        if name in self._queries:
            raise QueryError("DUPLICATE_NAME", f"there is a query {self._queries[name].name} already; drop it first")
        bound = bind_query(text, self._catalog)
        self._queries.add(RunningQuery(name, bound, plan, self._state, self._graph, self._tables))

    def drop(self, name: str) -> None:
        """Stop a query and forget what it remembers."""
        self._running(name).remove()
        self._queries.remove(name)

    def migrate(self, name: str, plan: str, how: str = "jisc") -> None:
        """Go on with another plan, without losing or repeating a result."""
        running = self._running(name)
        _known(how, _MIGRATIONS, "way to migrate")
        running.migrate(running.planned(plan), how)  # type: ignore[arg-type]

    def _running(self, name: str) -> RunningQuery:
        if name not in self._queries:
            known = ", ".join(self._queries) or "none"
            raise QueryError("UNKNOWN_QUERY", f"there is no query {name}; running: {known}", query=name)
        return self._queries[name]

    # ── data ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def push(self, data: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Give tuples to streams; returns what became certain, per query in temporal order.

        Nothing is taken if any table does not fit its stream.
        """
        fitting = []
        for name, table in data.items():
            source = self._source(name)
            fitting.append((source, fitted(source.stream.name, table, source.stream.schema)))
        for source, columns in fitting:
            timed, bad = split_null_times(columns, source.stream.time)
            if bad:
                source.dead.add(bad, f"{source.stream.time} is NULL")
            source.feed(ticks(timed[source.stream.time]), timed)
        return self._run()

    def advance(self, name: str, time: int | datetime | pa.Scalar) -> None:
        """No tuple of the stream before `time` will come.

        What becomes certain by that comes with the next push, which may be empty: `push({})`.
        """
        source = self._source(name)
        source.advance(_tick(time, source.stream))

    def flush(self) -> dict[str, pa.Table]:
        """The end of every stream."""
        for source in self._sources():
            source.advance(int(FOREVER))
        return self._run()

    def _run(self) -> dict[str, pa.Table]:
        run(self._graph, self._rule, self._batch)
        return {running.name: running.results() for running in self._queries.values()}

    def _sources(self) -> list[SourceOperator]:
        return [node.operator for node in self._graph if isinstance(node.operator, SourceOperator)]

    def _source(self, name: str) -> SourceOperator:
        relation = self._catalog.relations.get(name)
        if isinstance(relation, Stream):
            operator = self._graph[f"source {relation.name}"].operator
            assert isinstance(operator, SourceOperator)
            return operator
        known = ", ".join(source.stream.name for source in self._sources()) or "none"
        if relation is not None:
            raise DataError("NOT_A_STREAM", f"{relation.name} is a static table; streams: {known}", stream=name)
        raise DataError("UNKNOWN_STREAM", f"there is no stream {name}; declared: {known}", stream=name)

    # ── while running ────────────────────────────────────────────────────────────────────────────────────────────

    def schedule(self, strategy: str) -> None:
        """The strategy by which the next operator is selected."""
        _known(strategy, _SCHEDULES, "schedule")
        self._schedule = strategy
        self._rule = dfs

    def budget(self, probes: float | None, policy: str = "lp") -> None:
        """Limit the probes per second of event time; None lifts the limit."""
        if probes is not None:
            raise UnsupportedError(
                "NOT_EXECUTABLE_YET", f"a probe budget ({probes}, policy {policy}) cannot be enforced yet"
            )

    def explain(self, name: str, format: Literal["text", "mermaid"] = "text") -> str:
        """The plan of a query."""
        running = self._running(name)
        keeps = "keeps its rows" if running.state != "none" else "keeps no rows, looks them up"
        notes = {str(node.tree): keeps for node in running.plan.nodes() if node is not running.plan.root}
        picture = describe(running.plan, notes)
        if format == "mermaid":
            return as_mermaid(picture)
        if format != "text":
            raise QueryError("UNKNOWN_FORMAT", f"explain knows the formats text and mermaid, not {format!r}")
        return f"{running.name}: {running.query.emit.upper()}, plan {running.plan.tree}\n{as_text(picture)}"

    def metrics(self, name: str) -> dict[str, object]:
        """What a query has read, holds and has written, and what its streams turned away."""
        running = self._running(name)
        streams = {s.relation.name: self._source(s.relation.name) for s in running.select.sources if not s.is_table}
        return {
            **running.metrics(),
            "streams": {stream: source.metrics() for stream, source in streams.items()},
        }

    def late(self, name: str) -> pa.Table:
        """Tuples of a stream that came too late to be joined (the newest million of them)."""
        return self._source(name).late.rows()

    def dead_letters(self, name: str) -> pa.Table:
        """Tuples of a stream that were not usable, with the reason in `_reason` (the newest million of them)."""
        return self._source(name).dead.with_reasons()

    # ── snapshots ────────────────────────────────────────────────────────────────────────────────────────────────

    def snapshot(self) -> bytes:
        """All that is needed to go on elsewhere: declarations, queries, frontiers and base windows."""
        parts = snapshot.Parts()
        options = {"state": self._state, "schedule": self._schedule, "batch": self._batch}
        parts.add_options(options)
        for name, table in self._tables.items():
            parts.add_table(name, table)
        for source in self._sources():
            parts.add_source(source, self._graph[source.id].outlet)
        for running in self._queries.values():
            parts.add_query(running)
        return parts.packed()

    @classmethod
    def restore(cls, blob: bytes) -> Engine:
        """The engine of a snapshot; its next results are those the old one would have given."""
        parts = snapshot.Parts.unpacked(blob)
        engine = cls(**parts.options())
        for name, table in parts.tables():
            engine.table(name, table)
        for saved in parts.sources():
            source = engine._declare(saved.stream)
            saved.apply(source, engine._graph[source.id].outlet)
        for query in parts.queries():
            engine.query(query.name, query.text, query.plan)
            query.apply(engine._running(query.name))
        return engine


def _known(value: str, options: Mapping[str, bool], what: str) -> None:
    if value not in options:
        raise QueryError("UNKNOWN_OPTION", f"unknown {what} {value!r}; known: {', '.join(options)}")
    if not options[value]:
        ready = ", ".join(option for option, usable in options.items() if usable)
        raise UnsupportedError(
            "NOT_EXECUTABLE_YET", f"the {what} {value!r} cannot be run yet; this version has {ready}"
        )


def _tick(time: int | datetime | pa.Scalar, stream: Stream) -> int:
    """A value of the time column's type as an integer."""
    try:
        scalar = time if isinstance(time, pa.Scalar) else pa.scalar(time, stream.time_type)
        tick = scalar.cast(stream.time_type).cast(pa.int64()).as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            "TIME_TYPE", f"{time!r} is not a time of {stream.name}, whose {stream.time} is {stream.time_type}"
        ) from error
    if tick is None:
        raise DataError("TIME_TYPE", f"NULL is not a time of {stream.name}")
    return int(tick)
