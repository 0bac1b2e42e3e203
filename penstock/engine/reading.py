"""What an engine shows: its queries, streams and tables, plans, metrics, failures, and tuples that it rejected.

The examples of the methods use `eng`: an engine with the streams A and B, which have an integer time `ts` and an
integer `x`, and the query `pairs` over both.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.adapt import Decision, JoinBudget
from penstock.display import render_text
from penstock.engine.adaptation import Adaptation
from penstock.engine.budgets import Budgets
from penstock.engine.descriptions import EngineDescriptions, QueryDescription, StreamDescription, TableDescription
from penstock.engine.display import PlanText, format_engine, render_engine
from penstock.engine.guard import Guard, guard_calls
from penstock.engine.notices import Notices
from penstock.engine.registry import QueryRegistry
from penstock.engine.relations import Relations
from penstock.engine.reports import Reports
from penstock.errors import QueryError, name_arguments
from penstock.graph import Graph
from penstock.ops import Notice
from penstock.plan import ExplainNode


@guard_calls(nests=("awaits", "dead_letters", "decisions", "failures", "late", "overloads", "picture"), always=())
@name_arguments
class ReadableEngine:
    """The methods of an engine that read it."""

    _guard: Guard
    _graph: Graph
    _relations: Relations
    _registry: QueryRegistry
    _budgets: Budgets
    _adaptation: Adaptation
    _reports: Reports
    _descriptions: EngineDescriptions
    _notices: Notices

    @property
    def queries(self) -> Mapping[str, QueryDescription]:
        """The running queries by name, each with its text, plan, columns and state policy.

        >>> eng.queries["pairs"].columns.names
        ['x', '_ts']
        """
        return self._read_descriptions("queries").queries

    @property
    def streams(self) -> Mapping[str, StreamDescription]:
        """The streams by name, derived ones too, with how many tuples have arrived and how far time has come.

        >>> eng.streams["A"].arrived
        0
        """
        return self._read_descriptions("streams").streams

    @property
    def tables(self) -> Mapping[str, TableDescription]:
        """The static tables by name.

        >>> list(eng.tables)
        []
        """
        return self._read_descriptions("tables").tables

    @property
    def graph(self) -> Graph:
        """The query graph, for measurements and tests. Only the methods of the engine may change it.

        >>> eng.graph.strategy
        'dfs'
        """
        self._guard.require_open("graph")
        return self._graph

    def failures(self) -> dict[str, QueryError]:
        """The queries and derived streams that stopped because one of their expressions or aggregates raised an error.

        A stopped query has no more results until it is dropped and started again. Other queries are not affected.

        >>> eng.failures()
        {}
        """
        return self._registry.failures()

    def explain(self, name: str, format: str = "text") -> PlanText:
        """The plan of a query as "text", as a "mermaid" diagram, or the state table of its operators as "table".

        The text ends with the warnings about the query and the active notices about its streams. A notebook shows the
        plan as a picture.

        >>> eng.explain("pairs")
        pairs: ISTREAM, plan (A B)
        join (A B)
        │  on: A.x = B.x
        ├─ stream A [RANGE 10]
        │     keeps: x
        └─ stream B [RANGE 10]
        """
        return PlanText.of_query(self._reports.explain(name, format), name, self._reports.picture(name))

    def picture(self, name: str) -> ExplainNode:
        """The plan of a query as a tree.

        >>> eng.picture("pairs").title
        'join (A B)'
        """
        return self._reports.picture(name)

    def metrics(self, name: str | None = None) -> dict[str, object]:
        """The metrics of a query, of its operators and of its streams; without a name, those of the engine.

        `metrics()["memory"]` has the bytes that the engine holds, by kind.

        >>> eng.metrics("pairs")["emitted"]
        0
        """
        return self._reports.metrics(name)

    def slices(self, name: str) -> pa.Table:
        """The slices of the join of a query: their queries, their tuples by stream, and their results.

        >>> eng.slices("pairs").num_rows
        1
        """
        return self._reports.slices(name)

    def awaits(self, name: str) -> int | None:
        """The time of the first tuple that a query holds and may not process yet; None if it holds none.

        >>> _ = eng.push({"A": [{"ts": 1, "x": 7}]})
        >>> eng.awaits("pairs")
        1
        """
        return self._reports.awaits(name)

    def overloads(self, name: str) -> list[JoinBudget]:
        """The joins of a query under a budget, with their measurements and allocation.

        >>> eng.overloads("pairs")
        []
        """
        return self._budgets.join_budgets(self._registry[name])

    def decisions(self) -> list[Decision]:
        """The newest 10,000 decisions that `adapt` made, with the measurements behind them, or that `replay` repeated.

        A decision that could not be executed has an `error`.

        >>> eng.decisions()
        []
        """
        return self._adaptation.decisions

    def notices(self) -> tuple[Notice, ...]:
        """The active notices: streams that hold others back, rows that are mostly late, times in another unit.

        Each has a `condition`, a `stream` and a `message`; docs/troubleshooting.md lists them.

        >>> eng.notices()
        ()
        """
        return self._notices.list_active()

    def late(self, name: str) -> pa.Table:
        """The late tuples of a stream (the newest million of them).

        >>> _ = eng.push({"A": [{"ts": 5, "x": 1}]}), eng.push({"A": [{"ts": 3, "x": 2}]})
        >>> eng.late("A").to_pylist()
        [{'ts': 3, 'x': 2}]
        """
        return self._relations.streams[name].late.rows()

    def dead_letters(self, name: str) -> pa.Table:
        """The tuples of a stream that were rejected, with the reason in `_reason` (the newest million of them).

        >>> _ = eng.push({"A": [{"ts": None, "x": 1}]})
        >>> eng.dead_letters("A").to_pylist()
        [{'ts': None, 'x': 1, '_reason': 'ts is NULL'}]
        """
        return self._relations.streams[name].dead_letters.with_reasons()

    def _read_descriptions(self, what: str) -> EngineDescriptions:
        self._guard.require_open(what)
        return self._descriptions

    def __repr__(self) -> str:
        return "<penstock.Engine: closed>" if self._guard.closed else format_engine(self._descriptions)

    def _repr_html_(self) -> str:
        return render_text(repr(self)) if self._guard.closed else render_engine(self._descriptions)
