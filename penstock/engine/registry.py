"""The running queries of an engine its derived streams and its views, by name."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from functools import partial

from penstock.cql import NameMap
from penstock.engine.guard import Guard
from penstock.engine.query import RunningQuery
from penstock.engine.query_output import BufferedOutput, DerivedOutput, ViewOutput
from penstock.engine.relations import require_name
from penstock.engine.results import Results
from penstock.errors import QueryError
from penstock.graph import Buffer, Graph, Node
from penstock.join import JoinOperator
from penstock.ops import Operator


class QueryRegistry:
    """All running queries. Iteration gives derived streams and views first, because queries read them."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.queries: NameMap[RunningQuery] = NameMap()
        self.derived: NameMap[RunningQuery] = NameMap()
        self._by_name: dict[str, RunningQuery] = {}
        self._is_shown = False
        """Whether results of a push refer to the dictionary of queries, so that it must not change."""
        self._buffered: dict[Buffer, list[RunningQuery]] = {}
        """The queries that read their rows from a buffer."""
        self._written: set[Buffer] = set()
        """The buffers to which rows were written since they were read."""
        self._warned: set[str] = set()

    def __iter__(self) -> Iterator[RunningQuery]:
        yield from self.derived.values()
        yield from self.queries.values()

    def __getitem__(self, name: str) -> RunningQuery:
        found = self.get(name)
        if found is None:
            known = ", ".join([*self.queries, *self.derived]) or "none"
            raise QueryError("UNKNOWN_QUERY", f"there is no query {name}; running: {known}", query=name)
        return found

    def get(self, name: str) -> RunningQuery | None:
        return self.queries.get(name) or self.derived.get(name)

    def require_free(self, name: str) -> None:
        """Refuse a name that is empty, is not a string, or is taken."""
        require_name(name)
        for running, what in ((self.queries, "query"), (self.derived, "derived stream or view")):
            if name in running:
                raise QueryError("DUPLICATE_NAME", f"there is a {what} {running[name].name} already; drop it first")

    def add(self, running: RunningQuery) -> None:
        if running.is_relation:
            self.derived.add(running)
            return
        self.queries.add(running)
        if self._is_shown:
            self._by_name, self._is_shown = dict(self._by_name), False
        self._by_name[running.name] = running
        self._watch_buffer(running)

    def replace(self, running: RunningQuery) -> None:
        """Replace the query of the same name."""
        self.queries.add(running)
        self._reindex()

    def remove(self, running: RunningQuery) -> None:
        (self.derived if running.is_relation else self.queries).remove(running.name)
        self._reindex()
        self._warned.discard(running.name)

    def _reindex(self) -> None:
        self._by_name, self._is_shown = {running.name: running for running in self.queries.values()}, False
        self._buffered, self._written = {}, set()
        for running in self.queries.values():
            self._watch_buffer(running)

    def _watch_buffer(self, running: RunningQuery) -> None:
        """Read the results of a query when rows are written to its buffer."""
        if isinstance(running.output, BufferedOutput):
            buffer = running.output.reader.buffer
            self._buffered.setdefault(buffer, []).append(running)
            buffer.on_write = partial(self._written.add, buffer)
            if running.output.reader.waiting():
                self._written.add(buffer)

    def list_readers(self, running: RunningQuery) -> list[str]:
        """The names of the queries that read a derived stream or a view."""
        match running.output:
            case DerivedOutput(stream=read) | ViewOutput(view=read):
                return [each.name for node in read.node.successors for each in self if node in each.nodes]
        return []

    def find_nodes(self, name: str, graph: Graph) -> list[Node]:
        """The operators of a query, or the operator of this name."""
        running = self.get(name)
        own = running.nodes if running is not None else ()
        found = [node for node in graph if node.id == name or node in own]
        if not found:
            known = ", ".join(node.id for node in graph) or "none"
            raise QueryError("UNKNOWN_OPERATOR", f"there is no query or operator {name}; operators: {known}")
        return found

    def collect_results(self, joins: Iterable[JoinOperator]) -> Results:
        """What every query found, read from its buffer now, or from the matches of its join later.

        `joins` are those that may have found something.
        """
        matches = {join: join.output.take_matches() for join in joins}
        written = [running for buffer in self._written for running in self._buffered.get(buffer, ())]
        buffered = {running.name: running.results(matches) for running in written}
        self._written.clear()
        self._is_shown = True
        return Results(self._by_name, buffered, matches, self._guard, self._warn_once)

    def failures(self) -> dict[str, QueryError]:
        return {each.name: each.failure for each in self if each.failure is not None}

    def warn_failures(self, operators: Iterable[Operator]) -> None:
        """Warn once of every query that has stopped; `operators` are those in which one may have stopped."""
        if any(map(_has_failed, operators)):
            for running in self:
                if running.failure is not None:
                    self._warn_once(running)

    def _warn_once(self, running: RunningQuery) -> None:
        if running.name not in self._warned:
            self._warned.add(running.name)
            warnings.warn(f"{running.name}: {running.failure}", RuntimeWarning, stacklevel=6)


def _has_failed(operator: Operator) -> bool:
    """Whether an operator has stopped, or a query for which a join writes rows; others stop when they are read."""
    if not isinstance(operator, JoinOperator):
        return getattr(operator, "failure", None) is not None
    shared = operator.shared_join
    if operator.stopped or shared.has_failed_filters:
        return True
    return bool(shared.writers) and any(each.failure is not None for each in shared.writers)
