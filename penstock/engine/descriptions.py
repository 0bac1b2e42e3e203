"""What an engine has: its queries, streams and tables, as read-only mappings from names to frozen descriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from penstock.cql import Timestamps, format_duration, format_type
from penstock.display import render_table
from penstock.engine.components import EngineComponents
from penstock.engine.guard import Guard
from penstock.engine.query import RunningQuery
from penstock.errors import PenstockError
from penstock.state import ALWAYS, FOREVER


class Description(Protocol):
    """A frozen value that can be shown as a row of a table."""

    @classmethod
    def list_headings(cls) -> tuple[str, ...]: ...

    def list_cells(self) -> tuple[object, ...]:
        """The values under the headings."""


D = TypeVar("D", bound=Description)


def format_columns(columns: pa.Schema) -> str:
    """Names and SQL types of columns."""
    return ", ".join(f"{field.name} {format_type(field.type)}" for field in columns)


class _Shown:
    """A description on a terminal: its fields, with the columns in a line."""

    def __repr__(self) -> str:
        values = ((field.name, getattr(self, field.name)) for field in fields(self))  # type: ignore[arg-type]
        shown = ", ".join(
            f"{name}={format_columns(value)!r}" if isinstance(value, pa.Schema) else f"{name}={value!r}"
            for name, value in values
        )
        return f"{type(self).__name__}({shown})"


@dataclass(frozen=True, repr=False)
class QueryDescription(_Shown):
    """A continuous query."""

    name: str
    text: str
    columns: pa.Schema
    """The columns of the results, `_ts` last."""
    reads: tuple[str, ...]
    """The streams and tables that it reads."""
    plan: str | None
    """The shape of its joins; None without joins, and on Spark while the engines choose it."""
    state: str
    """The state policy."""
    since: int | datetime | None = None
    """No result is missing from this time on; None if none is missing."""
    error: PenstockError | None = None
    """Why it stopped; None while it runs."""

    @classmethod
    def list_headings(cls) -> tuple[str, ...]:
        return "query", "text", "plan", "state", "columns", "since", "error"

    def list_cells(self) -> tuple[object, ...]:
        return self.name, self.text, self.plan, self.state, format_columns(self.columns), self.since, self.error

    def _repr_html_(self) -> str:
        return render_table("Query", self.list_headings(), [self.list_cells()], 1)


@dataclass(frozen=True, repr=False)
class StreamDescription(_Shown):
    """A stream as it is declared, and how far it has come."""

    name: str
    columns: pa.Schema
    time: str
    """The time column."""
    lateness: int
    """In microseconds, or in ticks of an integer time column; the same for `skew` and `idle_after`."""
    timestamps: Timestamps
    skew: int
    idle_after: int | None
    query: str | None
    """The text of the query that it is derived from; None for a stream that takes tuples."""
    arrived: int
    """How many tuples have arrived."""
    frontier: int | datetime | None
    """No tuple before it is expected; None before the first one and after the end of the stream."""

    @classmethod
    def list_headings(cls) -> tuple[str, ...]:
        return "stream", "columns", "time", "lateness", "arrived", "frontier", "derived from"

    def list_cells(self) -> tuple[object, ...]:
        late = format_duration(self.lateness, self.columns.field(self.time).type) if self.lateness else None
        columns = format_columns(self.columns)
        return self.name, columns, self.time, late, f"{self.arrived:,}", self.frontier, self.query

    def _repr_html_(self) -> str:
        return render_table("Stream", self.list_headings(), [self.list_cells()], 1)


@dataclass(frozen=True, repr=False)
class TableDescription(_Shown):
    """A static table."""

    name: str
    columns: pa.Schema
    rows: int

    @classmethod
    def list_headings(cls) -> tuple[str, ...]:
        return "table", "columns", "rows"

    def list_cells(self) -> tuple[object, ...]:
        return self.name, format_columns(self.columns), f"{self.rows:,}"

    def _repr_html_(self) -> str:
        return render_table("Table", self.list_headings(), [self.list_cells()], 1)


class Descriptions(Mapping[str, D], Generic[D]):
    """Descriptions by name, case-insensitive. Each one is made when it is read and shows that moment."""

    def __init__(self, title: str, kind: type[D], names: Callable[[], Iterable[str]], make: Callable[[str], D]) -> None:
        """`names` lists what there is now; `make` describes one of them, by its name as declared."""
        self._title = title
        self._kind = kind
        self._names = names
        self._make = make

    def __getitem__(self, name: str) -> D:
        spelling = {known.casefold(): known for known in self._names()}
        found = spelling.get(name.casefold()) if isinstance(name, str) else None
        if found is None:
            raise KeyError(f"{name!r}; known: {', '.join(spelling.values()) or 'none'}")
        return self._make(found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(list(self._names()))

    def __repr__(self) -> str:
        return f"{self._title}({', '.join(self._names())})"

    def _repr_html_(self) -> str:
        cells = (self[name].list_cells() for name in self)
        return render_table(self._title, self._kind.list_headings(), cells, len(self)) or f"<div>no {self._title}</div>"


class EngineDescriptions:
    """Describes the queries, streams and tables of one engine. Reading waits for running calls of other threads."""

    def __init__(self, components: EngineComponents) -> None:
        self._components = components
        self._guard: Guard = components.guard
        self.queries = Descriptions("queries", QueryDescription, self._list_queries, self._describe_query)
        self.streams = Descriptions("streams", StreamDescription, self._list_streams, self._describe_stream)
        self.tables = Descriptions("tables", TableDescription, self._list_tables, self._describe_table)

    def _list_queries(self) -> list[str]:
        with self._guard.enter("queries", nests=True, always=True):
            return list(self._components.queries.queries)

    def _list_streams(self) -> list[str]:
        with self._guard.enter("streams", nests=True, always=True):
            return list(self._components.relations.nodes)

    def _list_tables(self) -> list[str]:
        with self._guard.enter("tables", nests=True, always=True):
            return list(self._components.relations.tables)

    def _describe_query(self, name: str) -> QueryDescription:
        with self._guard.enter("queries", nests=True, always=True):
            return describe_query(self._components.queries[name])

    def _describe_stream(self, name: str) -> StreamDescription:
        with self._guard.enter("streams", nests=True, always=True):
            writer = self._components.relations.nodes[name].writer
            derived, stream = self._components.queries.derived.get(name), writer.stream
            frontier = writer.metrics()["frontier"]
            return StreamDescription(
                name, stream.schema, stream.time, stream.lateness, stream.timestamps, stream.skew, stream.idle_after,
                None if derived is None else derived.query.text,
                writer.arrival_count, _to_time(frontier if isinstance(frontier, int) else None, stream.time_type),
            )  # fmt: skip

    def _describe_table(self, name: str) -> TableDescription:
        with self._guard.enter("tables", nests=True, always=True):
            table = self._components.relations.tables[name]
            return TableDescription(name, table.schema, table.num_rows)


def describe_query(running: RunningQuery) -> QueryDescription:
    """A running query at this moment."""
    query = running.query
    reads = tuple(dict.fromkeys(source.relation.name for source in query.body.inputs))
    since = _to_time(running.complete_since, query.time_type)
    return QueryDescription(
        running.name, query.text, query.schema, reads, running.plan.text, running.state, since, running.failure
    )


def _to_time(tick: int | None, type_: pa.DataType) -> int | datetime | None:
    """An instant as a value of a time column; None at both ends of time, and where Python has no datetime for it."""
    if tick is None or tick in (int(ALWAYS), int(FOREVER)):
        return None
    if not pa.types.is_timestamp(type_):
        return tick
    try:
        time: datetime = pa.scalar(tick, pa.timestamp("us", type_.tz)).as_py()
    except (ValueError, OverflowError):
        return None
    return time
