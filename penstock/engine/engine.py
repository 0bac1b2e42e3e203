"""The embedded engine: catalogue, query graph and running queries behind one class.

Law: the multiset of results of a query depends only on the tuples pushed and the query's text (see docs/semantics.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from penstock.adapt import Rules, Timer, as_rules
from penstock.cql import FunctionSpec, Script
from penstock.engine.adaptation import Adaptation
from penstock.engine.budgets import Budgets
from penstock.engine.build import QueryBuilder
from penstock.engine.components import EngineComponents
from penstock.engine.declaring import DeclaringEngine
from penstock.engine.descriptions import EngineDescriptions
from penstock.engine.guard import Guard, guard_calls
from penstock.engine.inputs import TableData
from penstock.engine.join_registry import JoinRegistry
from penstock.engine.memory import MemoryControl
from penstock.engine.notices import Notices
from penstock.engine.options import EngineOptions
from penstock.engine.persistence import Persistence, read_options
from penstock.engine.push_cycle import PushCycle
from penstock.engine.query_changes import QueryChanges
from penstock.engine.reading import ReadableEngine
from penstock.engine.registry import QueryRegistry
from penstock.engine.relations import Relations
from penstock.engine.reports import Reports
from penstock.engine.result_iterator import ResultIterator
from penstock.engine.results import Results
from penstock.engine.scripts import declare_script, find_script
from penstock.engine.snapshot import Snapshot, refuse_bad_content
from penstock.engine.status import ServedEngine
from penstock.engine.streams import ArrivedRows, Clock
from penstock.engine.subscriptions import ResultFunction, Subscription, Subscriptions
from penstock.engine.tuning import TunableEngine
from penstock.errors import name_arguments
from penstock.graph import Graph, GraphScheduler
from penstock.join import DemandFilter, Slicing
from penstock.ops import SourceOperator
from penstock.state import FOREVER, SHIPPED, Maintenance


def _wait_for_readers(engine: Engine) -> None:
    """Wait, without the engine's lock, until the iterators over results have room."""
    engine._subscriptions.wait_for_room()


@guard_calls(nests=("close",), always=("close",), before={"push": _wait_for_readers})
@name_arguments
class Engine(DeclaringEngine, ReadableEngine, TunableEngine, ServedEngine):
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
        memory: int | str | None = None,
        spill: str | Path | None = None,
    ) -> None:
        """Create an engine without streams and queries.

        `state`: the state policy of queries, "auto", "eager", "lazy", "jit" or "none". `schedule`: see `schedule`.
        `batch`: how many tuples an operator takes per turn. `clock`: the time of streams that the engine stamps.
        `demand`: see `query`. `share`: queries over the same streams run as one join. `slicing`: see `reslice`.
        `max_queries`: the largest number of queries. `adapt`: plans, state policies and budgets follow measurements, by
        `Rules`; see docs/adapt.md. `timer`: a clock in seconds, for `adapt` and for budgets per push.
        `maintenance`: when state is reorganised; results do not depend on it. `warn`: warnings about queries, and
        `notices`, are also emitted once as `PenstockWarning`. `memory`: how much the engine may hold, such as "2 GB";
        a push that would need more is refused with MEMORY_LIMIT and changes nothing. `spill`: a folder to which the
        oldest rows of windows move before that; see docs/limits.md.
        """
        rules = as_rules(adapt)
        limits = EngineOptions.limit_memory(memory, spill)
        options = EngineOptions(state, demand, batch, share, slicing, max_queries, maintenance, *limits)
        self._guard = Guard(warns=warn)
        self._graph = Graph()
        self.scheduler = GraphScheduler(self._graph, batch)
        """Runs the operators; `on_step` observes the steps."""
        self._relations = Relations(self._graph, clock, self._guard)
        self._join_registry = JoinRegistry(share=share, slicing=slicing, nest=rules is None)
        self._registry = QueryRegistry(self._guard)
        self._budgets = Budgets(self._registry, self._join_registry, timer)
        self._components = EngineComponents(
            options, self._guard, self._graph, self._relations, self._join_registry, self._registry, self._budgets
        )
        self._memory = MemoryControl(self._components)
        self._changes = QueryChanges(self._components, QueryBuilder(self._components))
        self._adaptation = Adaptation(rules, timer)
        self._notices = Notices(self._relations.streams, self._registry, self._guard)
        self._cycle = PushCycle(self._components, self.scheduler, self._adaptation, self._notices)
        self._reports = Reports(self._components, self._notices, self._memory)
        self._descriptions = EngineDescriptions(self._components)
        self._subscriptions = Subscriptions(self._registry, self._guard, self.scheduler)
        self._persistence = Persistence(self._components, self._changes, self._cycle, self._adaptation)
        self.schedule(schedule)

    @classmethod
    def from_script(
        cls, script: str | Path | Script, *, tables: Mapping[str, TableData] | None = None, **options: Any
    ) -> Self:
        """An engine with the streams, tables and queries of a CQL script, which is a path or a text.

        Sources and sinks belong to Spark: push tuples to the streams, and read results by the name of their query,
        which is that of its sink or `query` for a bare SELECT. Tables are read from CSV, JSON and Parquet files, or
        given as `tables`. A TIMESTAMP has the zone UTC, as on Spark. `options` are those of `Engine`.

        >>> engine = Engine.from_script("CREATE STREAM A (ts BIGINT, x BIGINT) TIMESTAMP BY ts; SELECT x FROM A;")
        >>> engine.push({"A": [{"ts": 1, "x": 50}]})["query"].to_pylist()
        [{'x': 50, '_ts': 1}]
        """
        engine = cls(**options)
        declare_script(engine, find_script(script), tables or {})
        return engine

    def __enter__(self) -> Self:
        """Use the engine in a `with` block. Its end frees the engine: no stream is flushed, and later calls raise
        ENGINE_CLOSED. Result tables that were returned before can still be read.

        >>> with Engine() as engine:
        ...     engine.stream("A", {"ts": "bigint", "x": "bigint"}, time="ts")
        ...     engine.query("large", "SELECT x FROM A WHERE x > 10")
        ...     out = engine.push({"A": [{"ts": 1, "x": 50}]})
        >>> out["large"].to_pylist()
        [{'x': 50, '_ts': 1}]
        """
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        with self._guard.enter("the end of the with block", always=True):
            if self._guard.closed:  # by the end of an inner block
                return
            guard, scheduler = self._guard, GraphScheduler(Graph(), 1)
            guard.closed = True
            self._memory.free_windows()
            vars(self).clear()  # frees the streams, queries and windows
            self._guard, self._subscriptions = guard, Subscriptions(QueryRegistry(guard), guard, scheduler)

    def close(self) -> None:
        """Stop adapting, end iterations over `results` and delete files of `spill`. Queries keep running.

        >>> eng.close()
        """
        if not self._guard.closed:
            self._adaptation.close()
            self._subscriptions.end_iterators()
            self._memory.close()

    # ── data ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def push(
        self, data: Mapping[str, TableData], frontiers: Mapping[str, int | datetime | pa.Scalar] | None = None
    ) -> Results:
        """Push tuples to streams; returns the results that became certain, by query and in temporal order.

        The tuples of a stream are a pyarrow table, anything that exports Arrow (a pandas or polars DataFrame, a DuckDB
        relation, a RecordBatchReader), a dict of columns or a list of dicts. Columns are found by name, in any order,
        and cast to the declared types if no value is lost; see docs/python.md.

        `frontiers`: by stream, a time before which no tuple will come in later pushes; see `advance`. If a table does
        not fit its stream, the whole push is refused.

        >>> out = eng.push({"A": {"ts": [1, 2], "x": [7, 8]}, "B": [{"ts": 4, "x": 7}]}, {"A": 4})
        >>> out["pairs"].to_pylist()
        [{'x': 7, '_ts': 4}]
        """
        arrived = self._relations.streams.prepare_rows(data)
        promises = self._relations.streams.resolve_frontiers(frontiers) if frontiers else []
        self._memory.make_room(arrived, self._subscriptions.list_delivering)
        with self._guard.change(), self._subscriptions.deliver_early():
            deliveries = self._subscriptions.take(self._feed(arrived, promises))
        self._guard.complete_change()
        return self._show_results(deliveries.send())

    def load(self, data: Mapping[str, Any], frontiers: Mapping[str, int | datetime | pa.Scalar] | None = None) -> None:
        """Push tuples whose results are known: another engine with the same queries has processed them.

        As after a restore, join states are empty and are filled when a later push needs them. Queries with state of
        their own, such as aggregates, process the tuples now.

        >>> eng = ps.Engine()
        >>> eng.stream("bids", {"ts": "bigint", "item": "bigint"}, time="ts")
        >>> eng.query("pairs", "SELECT a.item FROM bids [RANGE 9] AS a, bids [RANGE 9] AS b WHERE a.item = b.item")
        >>> eng.load({"bids": [{"ts": 1, "item": 7}]})
        >>> eng.push({"bids": [{"ts": 2, "item": 7}]})["pairs"].num_rows
        3
        """
        arrived = self._relations.streams.prepare_rows(data)
        promises = self._relations.streams.resolve_frontiers(frontiers or {})
        self._memory.make_room(arrived)
        with self._guard.change(), self._join_registry.load():
            self._feed(arrived, promises)

    def _feed(self, arrived: list[ArrivedRows], promises: Iterable[tuple[SourceOperator, int]]) -> Results:
        """Empties `arrived`, so that the rows are freed when the graph needs them no more."""
        arrived.reverse()
        while arrived:
            arrived.pop().feed()
        for source, frontier in promises:
            source.advance(frontier)
        results = self._cycle.run(self)
        self._memory.end_push()
        return results

    def advance(self, name: str, time: int | datetime | pa.Scalar) -> None:
        """Promise that no tuple of the stream before `time` will come.

        The next push, which may be empty (`push({})`), returns the results that become certain by it.

        >>> _ = eng.push({"A": [{"ts": 1, "x": 7}], "B": [{"ts": 4, "x": 7}]})
        >>> eng.advance("A", 5)
        >>> eng.push({})["pairs"].num_rows
        1
        """
        for source, frontier in self._relations.streams.resolve_frontiers({name: time}):
            source.advance(frontier)

    def flush(self) -> Results:
        """End every stream; returns all results that are left. Iterations over `results` end.

        >>> _ = eng.push({"A": [{"ts": 1, "x": 7}], "B": [{"ts": 4, "x": 7}]})
        >>> eng.flush()
        pairs: 1 row
          x  _ts
          7  4
        """
        with self._guard.change(), self._subscriptions.deliver_early():
            for source in self._relations.streams:
                source.advance(int(FOREVER))
            deliveries = self._subscriptions.take(self._cycle.run(self))
        self._guard.complete_change()
        try:
            return self._show_results(deliveries.send())
        finally:
            self._subscriptions.end_iterators()

    def subscribe(self, name: str, function: ResultFunction) -> Subscription:
        """Call a function with the results of a query as they become certain, instead of returning them from `push`.

        The function gets tables with at least one row and at most 262,144, during the push that finds them: after each
        step of the query's last operator, so that `schedule` and `batch` decide when. It must not call this engine. If
        it raises, the push is complete and raises SUBSCRIBER_FAILED. `close` of the subscription ends it. A push holds
        few results of a join at a time if all its queries are subscribed to; see docs/limits.md.
        A snapshot does not contain subscriptions.

        >>> with eng.subscribe("pairs", lambda rows: print(rows.to_pylist())):
        ...     _ = eng.push({"A": [{"ts": 1, "x": 7}], "B": [{"ts": 4, "x": 7}]}, {"A": 4})
        [{'x': 7, '_ts': 4}]
        """
        return self._subscriptions.subscribe(name, function)

    def results(self, name: str, capacity: int = 64) -> ResultIterator:
        """Iterate over the results of a query as they become certain, in another thread or task than the pushes.

        Use it as `for rows in engine.results("q")` in a thread, or as `async for`. `push` then returns no rows of the
        query. The iterator buffers `capacity` tables; while it is full, pushes wait. The iteration ends when the query
        is dropped, the streams are flushed or the engine is closed.

        >>> found = eng.results("pairs")
        >>> _ = eng.push({"A": [{"ts": 1, "x": 7}], "B": [{"ts": 4, "x": 7}]}), eng.flush()
        >>> [rows.to_pylist() for rows in found]
        [[{'x': 7, '_ts': 4}]]
        """
        return self._subscriptions.iterate(name, capacity)

    # ── snapshots ────────────────────────────────────────────────────────────────────────────────────────────────────

    def snapshot(self) -> bytes:
        """The engine as bytes: declarations, queries, frontiers and base windows.

        >>> blob = eng.snapshot()
        """
        return self._persistence.take_snapshot().to_bytes()

    @classmethod
    def restore(
        cls,
        blob: bytes,
        clock: Clock | None = None,
        aggregates: Mapping[str, type] | None = None,
        functions: Mapping[str, FunctionSpec] | None = None,
        *,
        memory: int | str | None = None,
        spill: str | Path | None = None,
    ) -> Engine:
        """An engine that continues from a snapshot, with the results that the old one would have had.

        A snapshot holds no code: pass the classes of user-defined aggregates as `aggregates`, and user-defined
        functions with their types as `functions`: {"half": (half, "double")}. `memory` and `spill` are those of the old
        engine unless others are given.

        >>> again = Engine.restore(eng.snapshot())
        >>> again.queries["pairs"].plan
        '(A B)'
        """
        snapshot = Snapshot.from_bytes(blob)
        with refuse_bad_content():
            options = read_options(snapshot)
            options |= {name: value for name, value in (("memory", memory), ("spill", spill)) if value is not None}
            engine = cls(**options, clock=clock)
            engine._persistence.restore(snapshot, aggregates or {}, functions or {})
        return engine
