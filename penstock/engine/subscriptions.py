"""Results that are delivered, not returned: functions that a push calls, and iterations in other threads or tasks.

Law: while a query has a subscription, each of its results goes to every subscription exactly once, in temporal order,
and `push` returns no rows of it. A subscription gets the results of pushes that begin after it was made.

A push delivers before it returns, while it holds the engine's lock. So deliveries come in the order of the pushes, and
a function must not call the engine (`REENTRANT_CALL`). If a function raises, the push is still complete: all other
tables are delivered, then the push raises SUBSCRIBER_FAILED.

Functions get tables of at most `CHUNK_ROWS` rows, during the push: after each step of the last operator of a query, the
rows that it has written. So the order in which operators run decides when results leave, and a push holds few of them.
The matches of a join that several queries read are delivered during the push if all of these have functions, else after
it; so are results for iterators. If a push fails half-way, the engine must be restored and the push repeated: what it
delivered before comes again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from time import monotonic
from types import TracebackType
from typing import Any
from weakref import WeakSet, ref

import pyarrow as pa

from penstock.engine.guard import Guard
from penstock.engine.query import RunningQuery
from penstock.engine.query_output import BufferedOutput, Matches, PulledOutput
from penstock.engine.registry import QueryRegistry
from penstock.engine.result_iterator import ResultIterator
from penstock.engine.results import Results
from penstock.errors import InternalError, QueryError
from penstock.graph import GraphScheduler
from penstock.join import JoinOperator

CHUNK_ROWS = 1 << 18
"""The largest number of rows that a function gets at once."""
_PATIENCE = 0.05
"""Seconds after which a push that waits for a reader checks whether the reader is still there."""

ResultFunction = Callable[[pa.Table], Any]
"""Called with a table that has at least one row, with the columns of the query and `_ts`."""


class Subscription:
    """A function that gets the results of a query. `close` ends it; it is also a context manager.

    >>> from penstock import Engine
    >>> engine = Engine()
    >>> engine.stream("A", {"ts": "bigint", "x": "bigint"}, time="ts")
    >>> engine.query("large", "SELECT x FROM A WHERE x > 10")
    >>> with engine.subscribe("large", lambda rows: print(rows.column("x").to_pylist())):
    ...     out = engine.push({"A": {"ts": [1, 2], "x": [5, 50]}})
    [50]
    >>> out["large"].num_rows
    0
    """

    def __init__(self, query: str, function: ResultFunction, end: Callable[[Subscription], None]) -> None:
        self.query = query
        self.function = function
        self._end = end

    def close(self) -> None:
        """End the subscription: later pushes return the rows of the query, if no other subscription gets them."""
        self._end(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Subscription({self.query!r}, {self.function!r})"


@dataclass
class Deliveries:
    """The results of a push for subscriptions, and the other results."""

    results: Results
    functions: tuple[Subscription, ...] = ()
    iterators: tuple[ResultIterator, ...] = ()
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    failures: Mapping[str, QueryError] = field(default_factory=dict)
    """The queries that have stopped."""
    raised: Sequence[tuple[str, Exception]] = ()
    """What functions raised during the push, by query."""
    interrupt: BaseException | None = None
    """What interrupted a function during the push."""

    def send(self) -> Results:
        """Deliver; returns the results of the push. QueryError if a function raised."""
        raised = list(self.raised)
        for iterator in self.iterators:
            iterator.put(self.tables[iterator.query])
            if iterator.query in self.failures:
                iterator.end(self.failures[iterator.query])
        for each in self.functions:
            raised += _call(each, self.tables[each.query])
        if self.interrupt is not None:
            raise self.interrupt
        if raised:
            raise _make_failure(raised[0], self.results)
        return self.results


class Subscriptions:
    """The subscriptions of one engine."""

    def __init__(self, queries: QueryRegistry, guard: Guard, scheduler: GraphScheduler) -> None:
        self._queries = queries
        self._scheduler = scheduler
        self._guard = guard
        guard.when_broken = self._end_broken
        self._lock = Lock()
        self._functions: tuple[Subscription, ...] = ()
        self._iterators: WeakSet[ResultIterator] = WeakSet()
        self._raised: list[tuple[str, Exception]] = []
        self._interrupt: BaseException | None = None

    def subscribe(self, name: str, function: ResultFunction) -> Subscription:
        """Let pushes call a function with the results of a query."""
        if not callable(function):
            raise QueryError("NOT_CALLABLE", f"a subscription takes a function of one table, not {function!r}")
        made = Subscription(self._find_query(name), function, self._remove)
        with self._lock:
            self._functions = (*self._functions, made)
        return made

    def iterate(self, name: str, capacity: int) -> ResultIterator:
        """An iterator over the results of a query from now on. It ends when it is no longer referenced."""
        if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
            raise QueryError("BAD_LIMIT", f"capacity is a number of tables, at least 1, not {capacity!r}")
        made = ResultIterator(self._find_query(name), capacity)
        self._iterators.add(made)
        return made

    def _find_query(self, name: str) -> str:
        """The name of a query as declared."""
        running = self._queries[name]
        if running.derived_stream is not None:
            message = f"{running.name} is a derived stream; subscribe to a query that reads it"
            raise QueryError("DERIVED_STREAM", message, stream=running.name)
        if running.view is not None:
            message = f"{running.name} is a view; subscribe to a query that reads it"
            raise QueryError("NOT_A_QUERY", message, view=running.name)
        return running.name

    def _remove(self, gone: Subscription) -> None:
        with self._lock:
            self._functions = tuple(each for each in self._functions if each is not gone)

    # ── during a push ────────────────────────────────────────────────────────────────────────────────────────────

    def wait_for_room(self) -> None:
        """Wait until every iterator can take another table. The caller must not hold the engine's lock."""
        if not self._iterators:
            return
        begin = monotonic()
        for weak in [ref(each) for each in self._iterators]:
            while (iterator := weak()) is not None and not iterator.wait_for_room(_PATIENCE, monotonic() - begin):
                del iterator  # so that an iterator without a reader is collected while the push waits

    def deliver_early(self) -> AbstractContextManager[None]:
        """Deliver results during a push, as operators find them."""
        self._raised, self._interrupt = [], None
        return self._deliver_steps() if self._functions else nullcontext()

    def list_delivering(self) -> dict[JoinOperator, list[RunningQuery]]:
        """The joins whose matches are read by queries with functions only, with these queries."""
        joins: defaultdict[JoinOperator, list[RunningQuery]] = defaultdict(list)
        if self._functions:
            for name in {each.query for each in self._functions} - {each.query for each in self._iterators}:
                running = self._queries[name]
                if isinstance(running.output, PulledOutput):
                    joins[running.output.part.join].append(running)
        return {join: found for join, found in joins.items() if join.shared_join.pull_count == len(found)}

    @contextmanager
    def _deliver_steps(self) -> Iterator[None]:
        deliver: defaultdict[str, list[Callable[[], object]]] = defaultdict(list)
        for name in {each.query for each in self._functions} - {each.query for each in self._iterators}:
            running = self._queries[name]
            if isinstance(running.output, BufferedOutput):
                deliver[running.nodes[-1].id].append(partial(self._deliver_written, running, running.output))
        complete = self.list_delivering()
        for join, found in complete.items():
            join.output.deliver = partial(self._deliver, join, found)
            deliver[found[0].nodes[-1].id].append(join.output.deliver)
        self._scheduler.deliver_after = {node: partial(_call_all, calls) for node, calls in deliver.items()}
        try:
            yield
        finally:
            self._scheduler.deliver_after = {}
            for join in complete:
                join.output.deliver = None

    def _deliver(self, join: JoinOperator, queries: Sequence[RunningQuery]) -> None:
        if join.output.pending:
            matches = {join: join.output.take_matches()}
            for running in queries:
                self._send(running, matches)

    def _deliver_written(self, running: RunningQuery, output: BufferedOutput) -> None:
        if output.reader.next_time() is not None:
            self._send(running, {})

    def _send(self, running: RunningQuery, matches: Matches) -> None:
        rows = running.results(matches)
        for each in self._functions:
            if each.query == running.name:
                try:
                    self._raised += _call(each, rows)
                except BaseException as interrupt:  # raised when the push is complete, so that the engine stays intact
                    self._interrupt = interrupt

    def take(self, results: Results) -> Deliveries:
        """Take the results of subscribed queries; empty tables take their place."""
        functions = self._functions  # read once: another thread may close a subscription meanwhile
        if not functions and not self._iterators:
            return Deliveries(results)
        iterators = [each for each in self._iterators if not each.ended]
        names = {each.query for each in iterators} | {each.query for each in functions}
        tables = {name: results.take(name) for name in names}
        failures = {name: failure for name in names if (failure := self._queries[name].failure) is not None}
        return Deliveries(results, functions, tuple(iterators), tables, failures, tuple(self._raised), self._interrupt)

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────

    def end_query(self, name: str) -> None:
        """End the subscriptions of a query that was dropped."""
        with self._lock:
            self._functions = tuple(each for each in self._functions if each.query.casefold() != name.casefold())
        for iterator in list(self._iterators):
            if iterator.query.casefold() == name.casefold():
                iterator.end()

    def _end_broken(self) -> None:
        """Let all iterators raise ENGINE_BROKEN."""
        try:
            self._guard.require_intact()
        except InternalError as error:
            for iterator in list(self._iterators):
                iterator.end(error)

    def end_iterators(self) -> None:
        """End all iterators: no more results come."""
        for iterator in list(self._iterators):
            iterator.end()


def _call(each: Subscription, rows: pa.Table) -> list[tuple[str, Exception]]:
    """Call the function of a subscription with parts of a table; returns what it raised, with the query."""
    raised: list[tuple[str, Exception]] = []
    for first in range(0, rows.num_rows, CHUNK_ROWS):
        try:
            each.function(rows.slice(first, CHUNK_ROWS))
        except Exception as error:
            raised.append((each.query, error))
    return raised


def _call_all(functions: Sequence[Callable[[], object]]) -> None:
    for function in functions:
        function()


def _make_failure(raised: tuple[str, Exception], results: Results) -> QueryError:
    query, cause = raised
    message = (
        f"the function that is subscribed to {query} raised {type(cause).__name__}: {cause}. The push is complete, do "
        "not repeat it; results of queries without a subscription are in error.parameters['results']"
    )
    error = QueryError("SUBSCRIBER_FAILED", message, query=query, results=results)
    error.__cause__ = cause
    return error
