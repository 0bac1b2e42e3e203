"""What an engine computes: its streams, tables, views, functions and queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from penstock.cql import (
    Duration,
    Query,
    Stream,
    Timestamps,
    describe_changes,
    describe_function,
    describe_stream,
    write_table_query,
)
from penstock.engine.build import QueryRequest
from penstock.engine.guard import Guard, guard_calls
from penstock.engine.inputs import TableData
from penstock.engine.query_changes import QueryChanges
from penstock.engine.relations import Relations
from penstock.engine.reports import Reports
from penstock.engine.subscriptions import Subscriptions
from penstock.errors import name_arguments
from penstock.join import DemandFilter


@guard_calls(nests=(), always=())
@name_arguments
class DeclaringEngine:
    """The methods of an engine that declare and drop things. `reading` describes the engine of the examples."""

    _guard: Guard
    _relations: Relations
    _changes: QueryChanges
    _reports: Reports
    _subscriptions: Subscriptions

    # ── declarations ─────────────────────────────────────────────────────────────────────────────────────────────────

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

        >>> eng.stream("C", {"ts": "timestamp", "room": "int"}, time="ts", lateness="5 seconds")
        """
        self._relations.require_free(name)
        self._relations.add_stream(describe_stream(name, schema, time, lateness, timestamps, skew, idle_after, ahead))

    def declare(self, stream: Stream) -> None:
        """Declare a stream as CREATE STREAM of a script describes it.

        >>> from penstock.cql import describe_stream
        >>> eng.declare(describe_stream("C", {"ts": "bigint", "x": "bigint"}, time="ts"))
        """
        self._relations.add_stream(stream)

    def table(
        self,
        name: str,
        data: TableData | Mapping[str, str] | pa.Schema,
        *,
        key: str | Sequence[str] | None = None,
        time: str | None = None,
        lateness: Duration = 0,
    ) -> None:
        """Declare a static table: its rows are always valid. `data` is anything that `push` takes for a stream.

        If there is a static table of this name, its rows are replaced, also while queries run. The new rows are for
        results behind the latest time that any stream has reached; rows that are in an answer stay as they are.

        With `key` and `time` the table is updating: `data` has the types of its columns, as for `stream`, and `push`
        brings its changes. A row with a key ends the earlier one with the same key; with '-' in the column `_op` it
        only ends it. Its changes are also the stream `name_changes`. A deletion of a row that is not there goes to the
        dead letters. See docs/queries.md.

        >>> eng.table("rooms", {"x": [1, 2], "name": ["hall", "cellar"]})
        >>> eng.table("rooms", {"x": [1, 2, 3], "name": ["hall", "cellar", "attic"]})
        >>> eng.table("prices", {"ts": "bigint", "x": "bigint", "price": "double"}, key="x", time="ts")
        >>> eng.query("priced", "SELECT A.x, p.price FROM A [NOW] JOIN prices AS p ON A.x = p.x")
        >>> _ = eng.push({"prices": [{"ts": 1, "x": 7, "price": 2.5}, {"ts": 5, "x": 7, "price": 3.0}]})
        >>> eng.push({"A": [{"ts": 3, "x": 7}]}, {"prices": 9, "A": 9})["priced"].to_pylist()
        [{'x': 7, 'price': 2.5, '_ts': 3}]
        """
        if key is None and time is None:
            self._changes.declare_table(name, cast("TableData", data))
            return
        changes = describe_changes(name, data, key, time, lateness)
        self._relations.require_free(name)
        self._relations.add_stream(changes)
        self._changes.start(QueryRequest(name, write_table_query(changes), view=True))

    def aggregate(self, name: str, cls: type) -> None:
        """Declare a class as an aggregate function; docs/queries.md lists its methods.

        >>> class Spread:
        ...     def initialise(self):
        ...         self.values = []
        ...     def iterate(self, value):
        ...         self.values.append(value)
        ...     def terminate(self):
        ...         return max(self.values) - min(self.values)
        >>> eng.aggregate("spread", Spread)
        >>> eng.query("wide", "SELECT spread(x) AS s FROM A [RANGE 10]")
        """
        self._relations.add_aggregate(name, cls)

    def function(self, name: str, function: Callable[..., Any], returns: str | pa.DataType) -> None:
        """Declare a scalar function that queries can call: it takes Arrow arrays and returns one of the same length.

        `returns` is the type of its values, as a SQL name or an Arrow type. The function must depend on its arguments
        alone, row by row. If it raises, or returns something else, the query that called it stops; see `failures`.

        >>> import pyarrow.compute as pc
        >>> eng.function("half", lambda x: pc.divide(pc.cast(x, "double"), 2), returns="double")
        >>> eng.query("halves", "SELECT half(x) AS h FROM A")
        >>> eng.push({"A": {"ts": [1, 2], "x": [3, 4]}})["halves"].column("h").to_pylist()
        [1.5, 2.0]
        """
        self._relations.add_function(describe_function(name, function, returns))

    # ── queries ──────────────────────────────────────────────────────────────────────────────────────────────────────

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

        >>> eng.query("wide", "SELECT A.x FROM A [RANGE 60], B [RANGE 60] WHERE A.x = B.x", plan="(B A)")
        """
        self._changes.start(QueryRequest(name, text, plan, state, demand, history=history))
        self._reports.warn_of_query(name)

    def alter(self, name: str, text: str, plan: str | None = None, state: str | None = None) -> None:
        """Replace the text of a query: another window, filter or select list. It keeps the tuples of its windows.

        Results follow the new text from the next push on; see `history` of `query`. If the text is wrong, the query
        does not change.

        >>> eng.alter("pairs", "SELECT A.x FROM A [RANGE 20], B [RANGE 20] WHERE A.x = B.x")
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
        """Declare a stream that consists of the results of a query; its time column is `_ts`.

        >>> eng.derive("large", "SELECT x FROM A WHERE x > 10")
        >>> eng.query("counts", "SELECT COUNT(*) AS n FROM large [RANGE 60]")
        """
        self._changes.start(QueryRequest(name, text, plan, state, demand, derives=True))
        self._reports.warn_of_query(name)

    def view(
        self, name: str, text: str | Query, plan: str | None = None, state: str | None = None,
        demand: DemandFilter | None = None,
    ) -> None:  # fmt: skip
        """Declare a view: a relation whose rows are those of the query's answer, at every instant.

        It is computed once, however many queries and views read it. A query that starts later begins with the rows that
        the view has then. `text` is a SELECT; the queries that read the view say which changes they emit.

        >>> eng.view("totals", "SELECT x, COUNT(*) AS n FROM A [RANGE 60] GROUP BY x")
        >>> eng.query("largest", "SELECT MAX(n) AS n FROM totals")
        """
        self._changes.start(QueryRequest(name, text, plan, state, demand, view=True))
        self._reports.warn_of_query(name)

    def drop(self, name: str) -> None:
        """Stop a query, or a derived stream or view without readers, and free its state.

        >>> eng.drop("pairs")
        >>> list(eng.queries)
        []
        """
        self._changes.drop(name)
        self._subscriptions.end_query(name)
