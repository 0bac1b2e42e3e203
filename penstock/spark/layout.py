"""The inlets of a pipeline: which rows and columns of a stream are sent to which cells, for which queries.

An inlet is a stream with one route through the grid of cells. FROM items that read the same stream on the same route
share an inlet: its columns are the union of their columns, its filter the disjunction of their filters. In the engine
of a cell every inlet is a stream of its own, so that a row sent for one query is not seen by another.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

import pyarrow as pa

from penstock.cql import Query, Select, Source, Stream, Window, reads_final_joins
from penstock.errors import InternalError
from penstock.expr import Expr, find_columns
from penstock.plan import JoinGraph, build_join_graph
from penstock.spark.colocation import is_row_by_row, place_queries
from penstock.spark.derived_copies import complete_copies
from penstock.spark.frame_placement import find_kept_windows
from penstock.spark.from_items import map_sources
from penstock.spark.grid import count_items, list_selects
from penstock.spark.pipeline_config import PipelineConfig, QuerySpec
from penstock.spark.placement import Placement
from penstock.spark.route import Route, strip_alias
from penstock.spark.spec import PipelineSpec
from penstock.state import kernels

MAX_LATENESS = 2**62
"""A lateness with which no row is late: the pipeline judges lateness."""
ALWAYS = int(kernels.ALWAYS)
FOREVER = int(kernels.FOREVER)
"""The frontier of a stream before its first row, and of one that has ended."""


@dataclass(frozen=True)
class StreamScan:
    """What one FROM item reads of its stream. `item_index`: its index among the FROM items of the query."""

    query: str
    item_index: int
    stream: Stream
    window: Window
    route: Route
    columns: frozenset[str]
    filters: tuple[Expr, ...]
    since: int
    inlet: int
    """The number of the inlet it reads; 0 if it has none yet."""
    keeps_all: bool
    """Whether dead rows are kept too: a sequence must find the rows it has paired."""


@dataclass(frozen=True)
class StreamInlet:
    """A stream on a route, for the FROM items that read it on that route."""

    number: int
    stream: Stream
    route: Route
    scans: tuple[StreamScan, ...]

    @property
    def name(self) -> str:
        return f"{self.stream.name}__{self.number}"

    @cached_property
    def schema(self) -> pa.Schema:
        wanted = {self.stream.time}.union(*(scan.columns for scan in self.scans))
        return pa.schema([field for field in self.stream.schema if field.name in wanted])

    @cached_property
    def declaration(self) -> Stream:
        """The inlet as a stream of a cell's engine. The pipeline judges lateness, so no row is late there."""
        return Stream(self.name, self.schema, self.stream.time, MAX_LATENESS)

    @cached_property
    def filters(self) -> tuple[tuple[Expr, ...], ...]:
        """A row is sent if it passes all filters of one of these tuples; without any, every row is sent."""
        return () if any(not scan.filters for scan in self.scans) else tuple(scan.filters for scan in self.scans)


class Layout:
    """Placements and inlets of a spec, computed from it alone.

    The queries of its spec have the numbers of their inlets: those that the given spec has, and new ones for others. It
    has the copies of derived streams that queries need; see `derived_copies`.
    """

    def __init__(self, spec: PipelineSpec) -> None:
        spec = complete_copies(spec)
        self.spec = spec
        self.placements: dict[str, Placement] = place_queries(spec.bound_queries, spec.derived_streams, spec.cells)
        self._derived_readers = self._find_readers()
        self.scans: dict[str, list[StreamScan]] = {query.name: list(self._list_scans(query)) for query in spec.queries}
        """The FROM items of each query that read declared streams."""
        self.inlets: list[StreamInlet] = []
        self._inlet_by_item: dict[tuple[str, int], StreamInlet] = {}
        if any(not query.inlets for query in spec.queries):
            numbered = number_inlets(self, spec.config, lambda scan: (scan.stream.name, scan.route, scan.since))
            self.spec = spec.with_inlets(numbered)
            self.scans = {query.name: list(self._list_scans(query)) for query in self.spec.queries}
        self._add_inlets([scan for scans in self.scans.values() for scan in scans])
        self.inlets.sort(key=lambda inlet: spec.streams.index(inlet.stream))

    def _find_readers(self) -> dict[str, list[tuple[str, Source]]]:
        """For every derived stream, the queries that read it and their FROM items."""
        found: dict[str, list[tuple[str, Source]]] = {name: [] for name in self.spec.derived_streams}
        for name, query in self.spec.bound_queries.items():
            for source in query.body.inputs:
                stream = source.relation.name
                if stream in found:
                    found[stream].append((name, source))
        return found

    def _list_scans(self, query: QuerySpec) -> Iterator[StreamScan]:
        routes, indexes = self.placements[query.name].routes, count()
        body = self.spec.bound_queries[query.name].body
        kept = find_kept_windows(self.spec.bound_queries[query.name])
        counts_partners = reads_final_joins(body) and any(map(_has_open_end, body.inputs))
        for side, select in enumerate(list_selects(body)):
            graph = build_join_graph(tuple(source.alias for source in select.sources), select.where)
            keeps_all = select.sequence is not None or self._is_kept_for_readers(query.name) or counts_partners
            keeps_all |= len(select.sources) > 1 and _slides_by_rows(select)  # a report may be of any time ago
            for source, index in zip(select.sources, indexes, strict=False):  # the sources end first
                stream, window = source.relation, kept.get(id(source), source.window)
                if not isinstance(stream, Stream) or stream.name in self.spec.derived_streams:
                    continue
                early = not window.counted and not keeps_all  # elsewhere a row counts, whether it passes or not
                yield StreamScan(
                    query.name,
                    index,
                    stream,
                    window,
                    routes[side, source.alias],
                    _find_columns_read(select, graph, source.alias) | set(window.partition),
                    tuple(map(strip_alias, graph.filters_of(source.alias))) if early else (),
                    query.since,
                    query.inlets[index] if query.inlets else 0,
                    keeps_all,
                )

    def _add_inlets(self, scans: Sequence[StreamScan]) -> None:
        groups: dict[int, list[StreamScan]] = {}
        for scan in scans:
            groups.setdefault(scan.inlet, []).append(scan)
        for number, members in groups.items():
            inlet = StreamInlet(number, members[0].stream, members[0].route, tuple(members))
            if any((member.stream, member.route) != (inlet.stream, inlet.route) for member in members):
                raise InternalError("INLET_ROUTES", f"{inlet.name} has several routes", inlet=inlet.name)
            self.inlets.append(inlet)
            for member in members:
                self._inlet_by_item[member.query, member.item_index] = inlet

    def _is_kept_for_readers(self, name: str) -> bool:
        """Whether the base rows of a derived stream are kept for ever: after a rebuild readers may need all of it."""
        return any(
            self._is_kept_for_readers(reader) or (self._compute_lookback(reader, source) is None)
            for reader, source in self._derived_readers.get(name, ())
        )

    def _compute_lookback(self, reader: str, source: Source) -> int | None:
        """How far back a reader of a derived stream scans it; None for without limit."""
        query = self.spec.bound_queries[reader]
        if isinstance(query.body, Select) and query.body.sequence is not None:
            return None
        if query.emit == "istream" and is_row_by_row(query):
            return 0  # a row is answered when it comes and is not kept
        return find_kept_windows(query).get(id(source), source.window).lifetime

    def find_base_streams(self, name: str) -> frozenset[str]:
        """The streams a query reads, directly or through derived streams."""
        streams = [source.relation.name for source in self.spec.bound_queries[name].body.inputs if not source.is_table]
        derived = (self.find_base_streams(stream) for stream in streams if stream in self.spec.derived_streams)
        return frozenset(stream for stream in streams if stream not in self.spec.derived_streams).union(*derived)

    def _find_first_instant(self, name: str, frontiers: Mapping[str, int]) -> int:
        """The first instant whose answer is still needed, by the query or by readers of the stream it derives."""
        windows = [source.window for source in self.spec.bound_queries[name].body.inputs]
        own = min(frontiers.get(stream, ALWAYS) for stream in self.find_base_streams(name))
        read = (
            self._find_first_instant(reader, frontiers) - (self._compute_lookback(reader, source) or 0)
            for reader, source in self._derived_readers.get(name, ())
        )
        before = max((window.slide or 0 for window in windows), default=0)
        if reads_final_joins(self.spec.bound_queries[name].body):  # a row also needs the partners that it has had
            before += max((window.lifetime or 0 for window in windows), default=0)
        return min([own, *read]) - before

    def compute_bounds(self, frontiers: Mapping[str, int]) -> dict[int, int]:
        """For every inlet, the first instant whose answer one of its queries still scans.

        That is the smallest frontier of the query's streams; with SLIDE one report earlier: the rows of the last report
        leave at the next one. Rows of a derived stream that readers look back at are derived again after a rebuild.
        """
        first = {name: self._find_first_instant(name, frontiers) for name in self.spec.bound_queries}
        return {inlet.number: min(first[scan.query] for scan in inlet.scans) for inlet in self.inlets}

    @cached_property
    def has_freshness(self) -> bool:
        """Whether a query has FRESHNESS."""
        inputs = (source for query in self.spec.bound_queries.values() for source in query.body.inputs)
        return any(source.freshness is not None for source in inputs)

    def find_inlet(self, query: str, place: int) -> StreamInlet | None:
        """The inlet that a FROM item reads; None for a table or a derived stream."""
        return self._inlet_by_item.get((query, place))

    def list_inlets(self, stream: str) -> list[StreamInlet]:
        return [inlet for inlet in self.inlets if inlet.stream.name == stream]

    def read_inlets(self, name: str) -> Query:
        """A bound query that reads inlets in place of streams: the form in which a cell runs it."""
        query, indexes = self.spec.bound_queries[name], count()

        def read_inlet(source: Source) -> Source:
            inlet = self.find_inlet(name, next(indexes))
            return source if inlet is None else replace(source, relation=inlet.declaration)

        return replace(query, body=map_sources(query.body, read_inlet))


def _slides_by_rows(select: Select) -> bool:
    return any(source.window.row_slide is not None for source in select.sources)


def _has_open_end(source: Source) -> bool:
    """Whether it is not known when a row of a stream expires, until it does."""
    return not source.is_table and source.window.lifetime is None


def _find_columns_read(select: Select, graph: JoinGraph, alias: str) -> frozenset[str]:
    """The columns of a FROM item that a SELECT reads."""
    shown = (*(item.expr for item in select.items), *(select.group_by or ()), *graph.residuals)
    terms = (term for _, term in graph.terms_of(alias))
    having = () if select.having is None else (select.having,)
    exprs = (*shown, *having, *terms, *graph.filters_of(alias))
    return frozenset(column.name for expr in exprs for column in find_columns(expr) if column.alias == alias)


def number_inlets(layout: Layout, config: PipelineConfig, key: Callable[[StreamScan], Hashable]) -> PipelineConfig:
    """A config with the queries of a layout; those without inlets get new ones. FROM items of one `key` share one."""
    used = {number for query in config.queries for number in query.inlets}
    numbers: dict[Hashable, int] = {}
    fresh = (number for number in count(config.next_inlet) if number not in used)
    queries = []
    for query in config.queries:
        inlets = query.inlets
        if not inlets:
            by_item = {scan.item_index: key(scan) for scan in layout.scans[query.name]}
            for group in by_item.values():
                if group not in numbers:
                    numbers[group] = next(fresh)
            items = range(count_items(layout.spec.bound_queries[query.name].body))
            inlets = tuple(numbers[by_item[item]] if item in by_item else 0 for item in items)
        queries.append(replace(query, inlets=inlets))
    return replace(config, queries=tuple(queries), next_inlet=max([config.next_inlet - 1, *numbers.values()]) + 1)


_LAYOUTS: dict[str, Layout] = {}


def get_layout(spec: PipelineSpec) -> Layout:
    """The layout of a spec; a worker keeps the last two, because commands change that of a micro-batch."""
    if spec.id not in _LAYOUTS:
        for old in list(_LAYOUTS)[:-1]:
            del _LAYOUTS[old]
        _LAYOUTS[spec.id] = Layout(spec)
    return _LAYOUTS[spec.id]
