"""The streams of an engine: their sources, the clock that advances them, and the rows that are pushed to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import time_ns

import pyarrow as pa

from penstock.cql import OPERATION, Catalog, Stream, Table, View, name_changes, suggest_similar
from penstock.engine.inputs import TableData, read_table
from penstock.errors import DataError, QueryError
from penstock.graph import Buffer, Graph, Node
from penstock.ops import (
    ClockedSource,
    KeyedSource,
    LatentSource,
    SourceOperator,
    SplitRows,
    StreamWriter,
    ViewOperator,
    fit_stream_columns,
    make_stream_id,
    split_bad_rows,
    split_null_columns,
    to_tick,
)
from penstock.state import ALWAYS, FOREVER

Clock = Callable[[], int | datetime]

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class StreamNode:
    """A stream in the graph: the operator that writes it, a source or a query, and its node."""

    writer: StreamWriter
    node: Node


@dataclass(frozen=True)
class ViewNode:
    """A view in the graph: the operator that writes it, and its node."""

    writer: ViewOperator
    node: Node


@dataclass(frozen=True)
class NewSource:
    """A source that is not in the graph yet, and the buffer that it writes to."""

    operator: SourceOperator
    outlet: Buffer


@dataclass
class ArrivedRows:
    """Rows of a push that fit their stream, before they are fed."""

    source: SourceOperator
    rows: SplitRows

    def feed(self) -> None:
        """Feed the rows to their source, and the bad ones to the dead letters."""
        for columns, reason in self.rows.bad_rows:
            self.source.dead_letters.add(columns, reason)
        self.source.feed(self.rows.times, self.rows.columns, self.rows.scanned)


class StreamRegistry:
    """All streams that are not derived from a query."""

    def __init__(self, graph: Graph, catalog: Catalog, clock: Clock | None) -> None:
        self._graph = graph
        self._catalog = catalog
        self._clock: Clock = clock or (lambda: time_ns() // 1000)
        self._clock_in_ticks = clock is not None and isinstance(clock(), int)
        self._sources: dict[str, SourceOperator] = {}

    def __iter__(self) -> Iterator[SourceOperator]:
        return iter(self._sources.values())

    def __getitem__(self, name: str) -> SourceOperator:
        known_source = self._sources.get(name) if isinstance(name, str) else None
        if known_source is not None:
            return known_source
        relation = self._catalog.relations.get(name)
        if isinstance(relation, View):  # rows of an updating table are those of its changes
            changes = self._catalog.relations.get(name_changes(relation.name))
            relation = changes if isinstance(changes, Stream) and changes.key else relation
        if isinstance(relation, Stream):
            if relation.name not in self._sources:
                message = f"{relation.name} is derived from a query; its tuples come from there"
                raise DataError("DERIVED_STREAM", message, stream=name)
            return self._sources[relation.name]
        known = ", ".join(source.stream.name for source in self) or "none"
        if relation is not None:
            kind = "static table" if isinstance(relation, Table) else "view"
            raise DataError("NOT_A_STREAM", f"{relation.name} is a {kind}; streams: {known}", stream=name)
        hint = suggest_similar(str(name), [source.stream.name for source in self])
        owners = [source.stream.name for source in self if name in source.stream.schema.names]
        if owners and not hint:
            hint = f"; {name} is a column of {owners[0]}: push({{{owners[0]!r}: {{{name!r}: ...}}}})"
        raise DataError("UNKNOWN_STREAM", f"there is no stream {name}; declared: {known}{hint}", stream=name)

    def add(self, source: NewSource) -> StreamNode:
        """Add a source to the graph."""
        node = self._graph.add(source.operator, source.outlet)
        self._sources[source.operator.stream.name] = source.operator
        return StreamNode(source.operator, node)

    def make_source(self, stream: Stream) -> NewSource:
        """The source of a stream; QueryError if it needs a clock that the engine does not have."""
        outlet, id_ = Buffer(), make_stream_id(stream.name)
        if stream.ahead is not None:
            self._check_clock(stream)
        if stream.timestamps == "external" and not stream.skew and stream.idle_after is None:
            # A cell of a pipeline reads only the columns that its queries need.
            keyed = stream.key and {*stream.key, OPERATION} <= set(stream.schema.names)
            return NewSource((KeyedSource if keyed else SourceOperator)(id_, stream, outlet), outlet)
        kind = LatentSource if stream.timestamps == "latent" else ClockedSource
        return NewSource(kind(id_, stream, outlet, self._choose_clock(stream)), outlet)

    def has_clock(self, stream: Stream) -> bool:
        """Whether there is a clock in the unit of the time column."""
        return self._clock_in_ticks or pa.types.is_timestamp(stream.time_type)

    def _check_clock(self, stream: Stream) -> None:
        """Refuse `ahead` without a clock in the unit of the time column."""
        if not self.has_clock(stream):
            message = (
                f"{stream.name}: ahead compares times with the clock, but {stream.time} counts ticks: "
                "give Engine(clock=...) a function that returns ticks"
            )
            raise QueryError("CLOCK_NEEDED", message)

    def _choose_clock(self, stream: Stream) -> Callable[[], int]:
        """The clock that advances a stream: that of the engine, or the highest frontier of the other streams."""
        if self.has_clock(stream):
            return self.read_clock
        if stream.timestamps != "external":
            raise QueryError(
                "CLOCK_NEEDED",
                f"{stream.name} is stamped by the engine, but its {stream.time} counts ticks: "
                "give Engine(clock=...) a function that returns ticks",
            )
        return lambda: max(
            (
                other.frontier
                for other in self
                if other.stream.name != stream.name and not pa.types.is_timestamp(other.stream.time_type)
            ),
            default=int(ALWAYS),
        )

    def read_clock(self) -> int:
        """The clock of the engine in ticks."""
        now = self._clock()
        return now if isinstance(now, int) else (now - datetime(1970, 1, 1, tzinfo=now.tzinfo)) // _MICROSECOND

    def prepare_rows(self, data: Mapping[str, TableData]) -> list[ArrivedRows]:
        """Check the rows of a push. Nothing is fed yet: one table that does not fit refuses all of them."""
        if not isinstance(data, (dict, Mapping)):  # the test for a dict is faster
            raise self._make_mapping_error(data)
        sources = [(self[name], table) for name, table in data.items()]
        if len(dict(sources)) < len(sources):
            raise _make_twice_error([source.stream.name for source, _ in sources])
        read = [(source, read_table(source.stream.name, table, source.stream.schema)) for source, table in sources]
        return [self._prepare_arrival(source, table) for source, table in read]

    def _make_mapping_error(self, data: object) -> DataError:
        example, kind = next((source.stream.name for source in self), "A"), type(data).__name__
        message = f"push takes tables by stream, not a {kind}: push({{{example!r}: {kind.casefold()}}})"
        return DataError("NOT_A_MAPPING", message)

    def _prepare_arrival(self, source: SourceOperator, table: pa.Table | pa.RecordBatch) -> ArrivedRows:
        stream = source.stream
        if stream.key and OPERATION in stream.schema.names and OPERATION not in table.schema.names:
            table = table.append_column(OPERATION, pa.nulls(table.num_rows, pa.string()))
        if stream.timestamps == "external":
            now = None if stream.ahead is None else self.read_clock()
            rows = split_bad_rows(stream, fit_stream_columns(stream, table), now)
        else:
            rows = split_null_columns(stream, fit_stream_columns(stream, _clear_time_column(table, stream)))
        if source.frontier >= FOREVER and rows.times.size:
            message = (
                f"{stream.name} has ended: flush ends every stream, so rows after it would be late. Call flush when no "
                "more rows come; push returns the results that are certain before that. To begin again, create a new "
                "engine"
            )
            raise DataError("STREAM_ENDED", message, stream=stream.name)
        return ArrivedRows(source, rows)

    def resolve_frontiers(
        self, frontiers: Mapping[str, int | datetime | pa.Scalar]
    ) -> list[tuple[SourceOperator, int]]:
        """The sources of streams, and the frontiers that a push gives them."""
        if not isinstance(frontiers, Mapping):
            raise DataError(
                "NOT_A_MAPPING", f"frontiers are times by stream, {{name: time}}, not a {type(frontiers).__name__}"
            )
        sources = [(self[name], time) for name, time in frontiers.items()]
        return [(source, to_tick(time, source.stream)) for source, time in sources]


def _clear_time_column(table: pa.Table, stream: Stream) -> pa.Table:
    """A table for a stream that the engine stamps: its time column, if it has one, is replaced by NULLs."""
    if not isinstance(table, (pa.Table, pa.RecordBatch)):
        return table
    names = [name.casefold() for name in table.schema.names]
    others = table.select([place for place, name in enumerate(names) if name != stream.time.casefold()])
    return others.append_column(stream.schema.field(stream.time), pa.nulls(table.num_rows, stream.time_type))


def _make_twice_error(names: list[str]) -> DataError:
    """A stream is in a push under two spellings: the rows of one would be late after those of the other."""
    twice = next(name for name in names if names.count(name) > 1)
    return DataError("DUPLICATE_STREAM", f"the push has {twice} under two spellings; give one table", stream=twice)
