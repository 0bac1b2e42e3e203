"""The streams of an engine: their sources in the graph, the clock they are promised by, and what arrives at them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from time import time_ns

import numpy as np
import pyarrow as pa

from penstock.cql.catalog import Catalog, Stream
from penstock.errors import DataError, QueryError
from penstock.graph.buffers import Buffer
from penstock.graph.graph import Graph
from penstock.ingest import fitted, split_null_times, tick
from penstock.ops.source import ClockedSource, LatentSource, SourceOperator
from penstock.state.codeset import Mask
from penstock.state.instants import ticks
from penstock.state.kernels import ALWAYS, FOREVER

Clock = Callable[[], int | datetime]

_MICROSECOND = timedelta(microseconds=1)


class Streams:
    """All streams that are not derived from a query."""

    def __init__(self, graph: Graph, catalog: Catalog, clock: Clock | None) -> None:
        self._graph = graph
        self._catalog = catalog
        self._clock: Clock = clock or (lambda: time_ns() // 1000)
        self._counts_ticks = clock is not None and isinstance(clock(), int)

    def __iter__(self) -> Iterator[SourceOperator]:
        return (node.operator for node in self._graph if isinstance(node.operator, SourceOperator))

    def __getitem__(self, name: str) -> SourceOperator:
        relation = self._catalog.relations.get(name)
        if isinstance(relation, Stream):
            operator = self._graph[f"source {relation.name}"].operator
            if not isinstance(operator, SourceOperator):
                message = f"{relation.name} is derived from a query; its tuples come from there"
                raise DataError("DERIVED_STREAM", message, stream=name)
            return operator
        known = ", ".join(source.stream.name for source in self) or "none"
        if relation is not None:
            raise DataError("NOT_A_STREAM", f"{relation.name} is a static table; streams: {known}", stream=name)
        raise DataError("UNKNOWN_STREAM", f"there is no stream {name}; declared: {known}", stream=name)

    def add(self, stream: Stream) -> tuple[SourceOperator, Buffer]:
        """Put the source of a stream into the graph."""
        outlet, id_ = Buffer(), f"source {stream.name}"
        clocked = stream.timestamps != "external" or stream.skew or stream.idle_after is not None
        kind = LatentSource if stream.timestamps == "latent" else ClockedSource
        clock = self._clock_of(stream) if clocked else None
        source = SourceOperator(id_, stream, outlet) if clock is None else kind(id_, stream, outlet, clock)
        self._graph.add(source, outlet)
        return source, outlet

    def _clock_of(self, stream: Stream) -> Callable[[], int]:
        """The time by which a stream is promised on: the engine's clock, or what the other streams have reached."""
        if self._counts_ticks or pa.types.is_timestamp(stream.time_type):
            return self._now
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

    def _now(self) -> int:
        now = self._clock()
        return now if isinstance(now, int) else (now - datetime(1970, 1, 1, tzinfo=now.tzinfo)) // _MICROSECOND

    def feed(self, data: Mapping[str, pa.Table]) -> None:
        """Give tuples to their sources; nothing is taken if any table does not fit its stream."""
        if not isinstance(data, Mapping):
            raise DataError(
                "NOT_A_MAPPING", f"push takes tables by stream, {{name: table}}, not a {type(data).__name__}"
            )
        fitting = []
        for name, table in data.items():
            source = self[name]
            rows = _untimed(table, source.stream) if source.stream.timestamps != "external" else table
            fitting.append((source, fitted(source.stream.name, rows, source.stream.schema)))
        for source, columns in fitting:
            if source.stream.timestamps != "external":
                source.feed(np.zeros(len(columns[source.stream.time]), np.int64), columns)
                continue
            timed, bad = split_null_times(columns, source.stream.time)
            if bad:
                source.dead.add(bad, f"{source.stream.time} is NULL")
            times = ticks(timed[source.stream.time])
            if times.max(initial=0) == FOREVER:
                source.dead.add(_rows(timed, times == FOREVER), f"{source.stream.time} is the end of time")
                timed, times = _rows(timed, times < FOREVER), times[times < FOREVER]
            source.feed(times, timed)

    def advance(self, name: str, time: int | datetime | pa.Scalar) -> None:
        """No tuple of the stream before `time` will come."""
        source = self[name]
        source.advance(tick(time, source.stream))


def _rows(columns: Mapping[str, pa.Array], chosen: Mask) -> dict[str, pa.Array]:
    return {name: column.filter(pa.array(chosen)) for name, column in columns.items()}


def _untimed(table: pa.Table, stream: Stream) -> pa.Table:
    """A table for a stream the engine stamps: its time column, if it has one, does not count."""
    if not isinstance(table, (pa.Table, pa.RecordBatch)):
        return table
    names = [name.casefold() for name in table.schema.names]
    rest = table.select([place for place, name in enumerate(names) if name != stream.time.casefold()])
    return rest.append_column(stream.schema.field(stream.time), pa.nulls(table.num_rows, stream.time_type))
