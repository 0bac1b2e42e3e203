"""The values of a status: operators, arcs, queries and streams of an engine at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property


@dataclass(frozen=True)
class OperatorStatus:
    """A source, a table, a node of a join, or another operator."""

    id: str
    kind: str
    """source, table, join, window, or the kind of the operator such as aggregate."""
    title: str
    rows_out: int = 0
    """The rows that it has written; for a join node, those it has built."""
    state_rows: int = 0
    bytes: int = 0
    waiting: int = 0
    """The rows on its inputs that it has not read."""
    suppressed: int = 0
    """Rows that were not built, because no result can use them yet."""
    policy: str | None = None
    demanded: float | None = None
    """The part of its rows that demand let through; None without demand."""
    complete: float | None = None
    """1.0 if no key lacks rows, less while a plan change is being completed; None without state."""
    members: int = 0
    """How many queries share it."""
    scope: str | None = None
    """The operator of the graph that a join node belongs to."""


@dataclass(frozen=True)
class ArcStatus:
    """Rows from an operator to another. `ets`: time passes the target without waiting for rows (an ETS arc)."""

    source: str
    target: str
    label: str = ""
    ets: bool = False


@dataclass(frozen=True)
class QueryFacts:
    """What seldom changes of a query, and the operator that has its results."""

    name: str
    text: str
    plan: str | None
    state: str
    operator: str
    error: str | None = None
    derived: bool = False
    """Whether its results are a stream or a view for other queries."""
    budget: str | None = None
    sink: str | None = None


@dataclass(frozen=True)
class QueryStatus(QueryFacts):
    """A query and its counters."""

    emitted: int = 0
    completeness: float = 1.0
    stale: int = 0


@dataclass(frozen=True)
class QueryCounts:
    """The counters of queries, in the order of their facts."""

    emitted: tuple[int, ...]
    completeness: Mapping[int, float] = field(default_factory=dict)
    """By place; the others are complete."""
    stale: Mapping[int, int] = field(default_factory=dict)
    """By place; the others have none."""


@dataclass(frozen=True)
class StreamStatus:
    """A stream and how far it has come. `frontier` is in seconds, or in ticks of an integer time column."""

    name: str
    arrived: int
    late: int
    dead: int
    frontier: float | None
    derived: bool = False
    in_seconds: bool = True
    """Whether the frontier is in seconds; else in ticks."""
    source: str | None = None
    """Where a script says that its rows come from."""


@dataclass(frozen=True)
class EngineStatus:
    """An engine at one moment."""

    pushes: int
    busy: float
    """The seconds that pushes took."""
    operators: tuple[OperatorStatus, ...]
    arcs: tuple[ArcStatus, ...]
    facts: tuple[QueryFacts, ...]
    """The same value as in the last status if nothing of it has changed."""
    counts: QueryCounts
    streams: tuple[StreamStatus, ...]
    notices: tuple[str, ...] = ()

    @cached_property
    def queries(self) -> tuple[QueryStatus, ...]:
        """The queries with their counters."""
        found, counts = zip(self.facts, self.counts.emitted, strict=True), self.counts
        return tuple(
            QueryStatus(
                **vars(facts),
                emitted=emitted,
                completeness=counts.completeness.get(place, 1.0),
                stale=counts.stale.get(place, 0),
            )
            for place, (facts, emitted) in enumerate(found)
        )


def split_queries(queries: Iterable[QueryStatus]) -> tuple[tuple[QueryFacts, ...], QueryCounts]:
    """The facts and the counters of queries."""
    found = list(queries)
    facts = tuple(QueryFacts(**{key: getattr(each, key) for key in _FACTS}) for each in found)
    return facts, QueryCounts(
        tuple(each.emitted for each in found),
        {place: each.completeness for place, each in enumerate(found) if each.completeness < 1},
        {place: each.stale for place, each in enumerate(found) if each.stale},
    )


_FACTS = tuple(each.name for each in fields(QueryFacts))
