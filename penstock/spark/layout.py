"""The inlets of a pipeline: which rows and columns of a stream are sent where, for which queries.

An inlet is a stream with one route through the grid of cells. FROM items that need the same stream on the same route
share an inlet: its columns are the union of what they read, its filter the disjunction of theirs. In the engine of a
cell every inlet is a stream of its own, so that a row sent for one query is not seen by another.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from penstock.cql.bound import Select, Source, Window
from penstock.cql.catalog import Stream
from penstock.cql.script_parser import parse_query
from penstock.cql.syntax import BodySyntax, SelectSyntax, SourceSyntax
from penstock.errors import InternalError, UnsupportedError
from penstock.expr.nodes import Column, Expr, columns, rewrite
from penstock.expr.sql import quoted, to_sql
from penstock.plan.join_graph import JoinGraph, join_graph
from penstock.spark.colocation import placed, row_by_row
from penstock.spark.pipeline_config import QuerySpec
from penstock.spark.placement import Placement, Route, Step, selects
from penstock.spark.spec import Spec
from penstock.state import kernels
from penstock.state.windows import lifetime

LONGEST = 2**62
"""A lateness that leaves all judgement to the pipeline."""
ALWAYS = int(kernels.ALWAYS)
FOREVER = int(kernels.FOREVER)
"""The frontier of a stream of which nothing is known, and of one that has ended."""


@dataclass(frozen=True)
class Need:
    """What one FROM item needs of its stream. `place`: which of the query's FROM items it is, tables counted."""

    query: str
    place: int
    source: Source
    route: Route
    columns: frozenset[str]
    filters: tuple[Expr, ...]
    since: int
    label: int
    keeps_all: bool
    """Whether rows that are dead may still matter: a sequence remembers which rows it paired."""

    @property
    def stream(self) -> Stream:
        assert isinstance(self.source.relation, Stream)
        return self.source.relation

    @property
    def window(self) -> Window:
        assert self.source.window is not None
        return self.source.window


@dataclass(frozen=True)
class Inlet:
    """A stream on a route, for the FROM items that need it so."""

    number: int
    stream: Stream
    route: Route
    needs: tuple[Need, ...]

    @property
    def name(self) -> str:
        return f"{self.stream.name}__{self.number}"

    @cached_property
    def schema(self) -> pa.Schema:
        wanted = {self.stream.time}.union(*(need.columns for need in self.needs))
        return pa.schema([field for field in self.stream.schema if field.name in wanted])

    @cached_property
    def filters(self) -> tuple[tuple[Expr, ...], ...]:
        """A row is wanted if it passes all filters of one of these; nothing here wants every row."""
        return () if any(not need.filters for need in self.needs) else tuple(need.filters for need in self.needs)


class Layout:
    """Placements and inlets of a spec; a pure function of it."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.placements: dict[str, Placement] = placed(spec.bound, spec.derived, spec.cells)
        self._readers = self._who_reads()
        self.inlets: list[Inlet] = []
        self._places: dict[tuple[str, int], Inlet] = {}
        needs = [need for query in spec.queries for need in self._needs(query)]
        for since in sorted({need.since for need in needs}):
            self._add([need for need in needs if need.since == since])
        self.inlets.sort(key=lambda inlet: spec.streams.index(inlet.stream))

    def _who_reads(self) -> dict[str, list[tuple[str, Source]]]:
        """For every derived stream the queries that read it, and as which FROM item."""
        since = {query.name: query.since for query in self.spec.queries}
        found: dict[str, list[tuple[str, Source]]] = {name: [] for name in self.spec.derived}
        for name, query in self.spec.bound.items():
            for source in query.body.inputs:
                stream = source.relation.name
                if stream in found:
                    if since[name] != since[stream]:
                        message = (
                            f"{name} would read the derived stream {stream} from its middle on: both begin together"
                        )
                        raise UnsupportedError("DERIVED_EARLIER", message, stream=stream)
                    found[stream].append((name, source))
        return found

    def _needs(self, query: QuerySpec) -> Iterator[Need]:
        at = 0
        for side, select in enumerate(selects(self.spec.bound[query.name].body)):
            graph = join_graph(tuple(source.alias for source in select.sources), select.where)
            above = (*(item.expr for item in select.items), *(select.group_by or ()), select.having)
            read = [expr for expr in (*above, *graph.residuals) if expr is not None]
            keeps_all = select.sequence is not None or self._kept_for_readers(query.name)
            for source in select.sources:
                if source.window is not None and source.relation.name not in self.spec.derived:
                    yield self._need(query, at, (side, source), graph, read, keeps_all)
                at += 1

    def _need(
        self, query: QuerySpec, at: int, item: tuple[int, Source], graph: JoinGraph, read: list[Expr], keeps_all: bool
    ) -> Need:
        side, source = item
        assert source.window is not None
        filters = graph.filters_of(source.alias)
        terms = [term for _, term in graph.terms_of(source.alias)]
        used = {c.name for e in (*read, *terms, *filters) for c in columns(e) if c.alias == source.alias}
        early = source.window.kind != "rows" and not keeps_all  # elsewhere a row counts, whether it passes or not
        return Need(
            query.name,
            at,
            source,
            self.placements[query.name].routes[side, source.alias],
            frozenset(used | set(source.window.partition)),
            tuple(_without_alias(expr) for expr in filters) if early else (),
            query.since,
            query.labels[at] if query.labels else 0,
            keeps_all,
        )

    def _add(self, needs: list[Need]) -> None:
        """Inlets for queries that begin together. Those that run already keep theirs as they are."""
        groups: dict[tuple[str, Route, int], list[Need]] = {}
        for need in needs:
            groups.setdefault((need.stream.name, need.route, need.label), []).append(need)
        for (_, route, _), members in groups.items():
            inlet = Inlet(_number(members[0], route), members[0].stream, route, tuple(members))
            if any(other.number == inlet.number for other in self.inlets):
                raise InternalError("INLET_NUMBERS", f"two inlets have the number {inlet.number}", inlet=inlet.name)
            self.inlets.append(inlet)
            for member in members:
                self._places[member.query, member.place] = inlet

    def _kept_for_readers(self, name: str) -> bool:
        """Whether what a derived stream is made of can never be forgotten, for its readers may need all of it again."""
        return any(
            self._kept_for_readers(reader) or (self._reach(reader, source) is None)
            for reader, source in self._readers.get(name, ())
        )

    def _reach(self, reader: str, source: Source) -> int | None:
        """How far back a reader of a derived stream needs it; None without end."""
        query = self.spec.bound[reader]
        if isinstance(query.body, Select) and query.body.sequence is not None:
            return None
        if query.emit == "istream" and row_by_row(query):
            return 0  # a row is answered when it comes, and then forgotten
        return lifetime(source.window)

    def bases(self, name: str) -> frozenset[str]:
        """The streams a query reads, or those that what it reads is derived from."""
        streams = [source.relation.name for source in self.spec.bound[name].body.inputs if not source.is_table]
        derived = (self.bases(stream) for stream in streams if stream in self.spec.derived)
        return frozenset(stream for stream in streams if stream not in self.spec.derived).union(*derived)

    def _first(self, name: str, frontiers: Mapping[str, int]) -> int:
        """The first instant whose answer may still matter: to the query, or to those who read what it derives."""
        windows = [source.window for source in self.spec.bound[name].body.inputs if source.window is not None]
        own = min(frontiers.get(stream, ALWAYS) for stream in self.bases(name))
        read = (
            self._first(reader, frontiers) - (self._reach(reader, source) or 0)
            for reader, source in self._readers.get(name, ())
        )
        return min([own, *read]) - max((window.slide or 0 for window in windows), default=0)

    def bounds(self, frontiers: Mapping[str, int]) -> dict[int, int]:
        """For every inlet, the first instant whose answer may still matter to one of its queries.

        That is the smallest frontier of the query's streams; with SLIDE, what changes is told from the report before.
        What readers of a derived stream look back at is derived anew, if it must be.
        """
        first = {name: self._first(name, frontiers) for name in self.spec.bound}
        return {inlet.number: min(first[need.query] for need in inlet.needs) for inlet in self.inlets}

    @cached_property
    def fresh(self) -> bool:
        """Whether a query has FRESHNESS."""
        inputs = (source for query in self.spec.bound.values() for source in query.body.inputs)
        return any(source.freshness is not None for source in inputs)

    def inlet_of(self, query: str, place: int) -> Inlet | None:
        """The inlet that a FROM item reads; None if it is a table."""
        return self._places.get((query, place))

    def of_stream(self, stream: str) -> list[Inlet]:
        return [inlet for inlet in self.inlets if inlet.stream.name == stream]

    def rewritten(self, name: str) -> str:
        """The text of a query over inlets in the place of streams."""
        text = self.spec.bound[name].text
        sources = list(_sources(parse_query(text).body))
        for at, source in reversed(list(enumerate(sources))):
            inlet = self.inlet_of(name, at)
            if inlet is not None:
                alias = quoted(source.relation.text)
                if source.alias is None:
                    end = source.window.span[1] if source.window is not None else source.relation.span[1]
                    text = f"{text[:end]} AS {alias}{text[end:]}"
                text = text[: source.relation.span[0]] + quoted(inlet.name) + text[source.relation.span[1] :]
        return text


def _sources(body: BodySyntax) -> Iterator[SourceSyntax]:
    if isinstance(body, SelectSyntax):
        yield from body.sources
    else:
        yield from _sources(body.left)
        yield from _sources(body.right)


def _number(need: Need, route: Route) -> int:
    """A number that stays while other queries come and go: state refers to it."""
    steps = [(step.share, _coordinate(step)) for step in route.steps]
    return zlib.crc32(repr((need.stream.name, need.since, need.label, route.first, steps)).encode()) >> 1


def _coordinate(step: Step) -> str:
    if step.coordinate is None:
        return "copied"
    if step.coordinate.term is None:
        return "row"
    return to_sql(step.coordinate.term) + (" or NULL" if step.coordinate.nulls else "")


def _without_alias(expr: Expr) -> Expr:
    return rewrite(expr, lambda node: replace(node, alias="") if isinstance(node, Column) else node)


_LAYOUTS: dict[str, Layout] = {}


def layout_of(spec: Spec) -> Layout:
    """The layout of a spec, worked out once in a worker for the spec it works on."""
    if spec.id not in _LAYOUTS:
        _LAYOUTS.clear()
        _LAYOUTS[spec.id] = Layout(spec)
    return _LAYOUTS[spec.id]
