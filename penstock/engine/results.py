"""What a push returns: a table for every query, built when it is first read.

Ten thousand queries that share a join find their results at once. What each of them shows costs something only when it
is read. Tables that were not read are dropped with the mapping.

A table is built from the engine's windows, so reading one waits for running calls of the engine. If building it raises,
it can be read again. After the engine broke, tables that were not built before are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from penstock.engine.guard import Guard
from penstock.engine.query import RunningQuery
from penstock.engine.query_output import Matches, PulledOutput
from penstock.engine.results_display import format_results, render_results


class Results(Mapping[str, pa.Table]):
    """Tables by query. It compares and pickles as the dictionary of its tables."""

    def __init__(
        self,
        queries: Mapping[str, RunningQuery],
        buffered: Mapping[str, pa.Table],
        matches: Matches,
        guard: Guard,
        warn: Callable[[RunningQuery], None],
    ) -> None:
        """`queries` in their order; `buffered` are tables that were read already. Of the other queries, those that read
        the matches of a join have rows in `matches`, the rest have none.

        `warn` is called with a query that has stopped when its table is built.
        """
        self._queries = queries
        self._tables = dict(buffered)
        self._matches = matches
        self._guard = guard
        self._warn = warn

    def __getitem__(self, name: str) -> pa.Table:
        table = self._tables.get(name)
        return self._build_table(name) if table is None else table

    def __iter__(self) -> Iterator[str]:
        return iter(self._queries)

    def __len__(self) -> int:
        return len(self._queries)

    def __contains__(self, name: object) -> bool:
        return name in self._queries

    def pop(self, name: str, *default: Any) -> Any:
        """A table, which is removed from the mapping; `default` for an unknown name."""
        if default and name not in self._queries:
            return default[0]
        table = self[name]
        self._queries = {other: running for other, running in self._queries.items() if other != name}
        self._tables.pop(name, None)
        return table

    def take(self, name: str) -> pa.Table:
        """A table, in whose place an empty one remains; for a call that is inside the guard."""
        table = self._tables.get(name)
        if table is None:
            table = self._read_matches(self._queries[name])
        self._tables[name] = table.slice(0, 0)
        return table

    def copy(self) -> dict[str, pa.Table]:
        """All tables as a dictionary."""
        return {name: self[name] for name in self._queries}

    def __eq__(self, other: object) -> bool:
        return self.copy() == (other.copy() if isinstance(other, Results) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return format_results(self)

    def _repr_html_(self) -> str:
        return render_results(self)

    def __or__(self, other: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        return {**self.copy(), **other}

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.copy(),)

    def _build_table(self, name: str) -> pa.Table:
        with self._guard.enter("reading results"):
            running = self._queries[name]
            table = self._tables.get(name)
            if table is None:  # else another thread has built it
                table = self._read_matches(running)
                if running.failure is not None:
                    self._warn(running)
                self._tables[name] = table
            return table

    def _read_matches(self, running: RunningQuery) -> pa.Table:
        if isinstance(running.output, PulledOutput):
            return running.results(self._matches)
        return running.query.schema.empty_table()
