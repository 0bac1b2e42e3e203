"""Binds FROM items, with windows and freshness in the unit of each stream's time column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.cql.bound import QueryBody, Source, Subquery, View
from penstock.cql.catalog import Catalog, NameMap, Stream, Table
from penstock.cql.durations import convert_duration, format_duration
from penstock.cql.errors import CqlUnsupportedError, Origin, Span, suggest_similar
from penstock.cql.scope import Scope
from penstock.cql.syntax import (
    Amount,
    BodySyntax,
    Name,
    RangeSyntax,
    RowsSyntax,
    SelectSyntax,
    SourceSyntax,
    WindowForm,
)
from penstock.cql.types import format_type
from penstock.cql.windows import CURRENT, STATIC, UNBOUNDED, PartitionedRows, Range, Rows, Window
from penstock.errors import QueryError
from penstock.expr import classify_type


@dataclass(frozen=True)
class Names:
    """What a FROM item can name: the declarations, and the queries of WITH, which hide declarations."""

    origin: Origin
    catalog: Catalog
    queries: NameMap[Subquery] = field(default_factory=NameMap)
    outer: Scope | None = None
    """The scope of the query around, for a subquery in an expression."""


BindBody = Callable[[BodySyntax, Names], QueryBody]


def check_sources(
    sources: Sequence[Source], written: Sequence[SourceSyntax], select: SelectSyntax, names: Names
) -> None:
    """Check the FROM items of a SELECT: at least one is a stream, and all count time alike."""
    origin = names.origin
    if select.sequence:
        for source, syntax in zip(sources, written, strict=True):
            _check_step(source, syntax, origin)
    if names.outer is None and all(base.is_table for source in sources for base in source.base_sources):
        message = "a continuous query reads at least one stream, but FROM has only tables"
        raise origin.error("NO_STREAM", message, written[0].relation.span)


def _check_step(source: Source, syntax: SourceSyntax, origin: Origin) -> None:
    """SEQ pairs streams; their windows bound the time between steps."""
    if not isinstance(source.relation, Stream):
        kind = "table" if source.is_table else "query"
        message = f"SEQ pairs streams, but {source.relation.name} is a {kind}"
        raise origin.error("TABLE_IN_SEQ", message, syntax.relation.span)
    if syntax.window and source.window.counted:
        message = (
            f"{source.alias} has a ROWS window; SEQ takes RANGE as a time bound, and MODE RECENT uses the last "
            "tuple of each key anyway"
        )
        raise CqlUnsupportedError("ROWS_IN_SEQ", message, origin.text, syntax.window.span, alias=source.alias)


def bind_freshness(sources: Sequence[Source], select: SelectSyntax, origin: Origin) -> tuple[Source, ...]:
    """The FROM items with their FRESHNESS."""
    bound_sources = list(sources)
    for written in select.freshness:
        alias, amount = written.alias, written.amount
        position, stream = _find_freshness_stream(alias, amount, bound_sources, origin)
        bound = convert_amount(amount, stream.time_type, origin)
        _check_freshness(bound, bound_sources[position], alias, amount, origin)
        bound_sources[position] = replace(bound_sources[position], freshness=bound, clock_freshness=written.by_clock)
    return tuple(bound_sources)


def bind_source(syntax: SourceSyntax, shorthand: Amount | None, names: Names, bind_subquery: BindBody) -> Source:
    name, catalog, origin = syntax.relation, names.catalog, names.origin
    if syntax.subquery is not None:
        query = Subquery(name.text, bind_subquery(syntax.subquery, replace(names, outer=None)))
        return Source(name.text, query, CURRENT, span=name.span)
    if name.text in names.queries:
        return _bind_query_name(syntax, names.queries[name.text], origin)
    if name.text not in catalog.relations:
        known = list(catalog.relations)
        listing = f"known are {', '.join(known)}" if known else "none is declared"
        message = f"unknown stream or table {name.text}; {listing}{suggest_similar(name.text, known)}"
        raise origin.error("UNKNOWN_RELATION", message, name.span, relation=name.text)
    relation = catalog.relations[name.text]
    if isinstance(relation, View):
        return _bind_query_name(syntax, relation, origin)
    alias = syntax.alias.text if syntax.alias else relation.name
    span = (name.span[0], (syntax.alias or syntax.window or name).span[1])
    if isinstance(relation, Table):
        if syntax.window:
            message = f"{relation.name} is a table: its rows are always valid, so it takes no window"
            raise origin.error("WINDOW_ON_TABLE", message, syntax.window.span)
        return Source(alias, relation, STATIC, span=span)
    if syntax.window:
        return Source(alias, relation, _bind_window(syntax.window.form, relation, alias, origin), span=span)
    if shorthand:
        window = Range(convert_amount(shorthand, relation.time_type, origin))
        return Source(alias, relation, window, span=span)
    return Source(alias, relation, UNBOUNDED, span=span)


def _bind_query_name(syntax: SourceSyntax, query: Subquery, origin: Origin) -> Source:
    if syntax.window:
        what = "view" if isinstance(query, View) else "query"
        message = f"{query.name} is a {what}: its rows are those of its answer, so it takes no window"
        raise origin.error("WINDOW_ON_SUBQUERY", message, syntax.window.span)
    alias = syntax.alias or syntax.relation
    return Source(syntax.alias.text if syntax.alias else query.name, query, CURRENT, span=alias.span)


def check_time_types(parts: Iterable[tuple[Source | QueryBody, Span]], origin: Origin) -> None:
    """All streams of a query must count time in one way, because its results are ordered by time."""
    first: Stream | None = None
    for part, span in parts:
        bases = part.base_sources if isinstance(part, Source) else part.inputs
        for stream in (base.relation for base in bases if isinstance(base.relation, Stream)):
            first = first or stream
            if classify_type(stream.time_type) != classify_type(first.time_type):
                counted = (
                    f"{first.name} in {format_type(first.time_type)}, {stream.name} in {format_type(stream.time_type)}"
                )
                message = "the streams of one query must count time alike: all in timestamps or all in integers"
                raise origin.error("TIME_TYPES_DIFFER", f"{message}; {counted}", span)


MAX_REPORTS = 1_000_000
"""A row can be in so many reports of a window with SLIDE."""


def _bind_window(syntax: WindowForm, stream: Stream, alias: str, origin: Origin) -> Window:
    match syntax:
        case Window():
            return syntax
        case RangeSyntax():
            size = convert_amount(syntax.size, stream.time_type, origin)
            return Range(size, _bind_slide(syntax.slide, size, stream, origin) if syntax.slide else None)
        case RowsSyntax():
            rule = "ROWS takes a whole number of rows, at least 1; write RANGE for a duration"
            count = _parse_row_count(syntax.count, origin, rule)
            by = resolve_partition(syntax.partition, stream, origin, alias)
            return PartitionedRows(count, by) if by else Rows(count, _bind_row_slide(syntax, count, origin))


def _bind_slide(amount: Amount, size: int, stream: Stream, origin: Origin) -> int:
    slide = convert_amount(amount, stream.time_type, origin)
    _check_reports(size, slide, lambda shortest: format_duration(shortest, stream.time_type).upper(), amount, origin)
    return slide


def _bind_row_slide(syntax: RowsSyntax, size: int, origin: Origin) -> int | None:
    if syntax.slide is None:
        return None
    slide = _parse_row_count(syntax.slide, origin, "SLIDE of a ROWS window takes a whole number of rows, at least 1")
    _check_reports(size, slide, str, syntax.slide, origin)
    return slide


def _check_reports(size: int, slide: int, write: Callable[[int], str], amount: Amount, origin: Origin) -> None:
    """Refuse a slide with which a row would be in too many reports."""
    if size // slide > MAX_REPORTS:
        shortest = write(-(-size // MAX_REPORTS))
        message = f"each row would be in {size // slide:,} reports, {MAX_REPORTS:,} are allowed; write SLIDE {shortest}"
        raise origin.error("SLIDE_TOO_SHORT", f"{message} or more", amount.span)


def _parse_row_count(amount: Amount, origin: Origin, rule: str) -> int:
    """A number of rows; `rule` says what is expected."""
    countable = amount.unit is None and amount.number.isdecimal() and len(amount.number) <= 18
    if not countable or int(amount.number) < 1:
        raise origin.error("INVALID_WINDOW", rule, amount.span)
    return int(amount.number)


def resolve_partition(
    names: tuple[Name, ...], stream: Stream, origin: Origin, alias: str | None = None
) -> tuple[str, ...]:
    """The columns of PARTITION BY, as the stream spells them. They can be qualified by its name or its alias."""
    spelling = {column.casefold(): column for column in stream.schema.names}
    known_as = (stream.name.casefold(), (alias or stream.name).casefold())
    for name in names:
        if name.qualifier is not None and name.qualifier.casefold() not in known_as:
            message = (
                f"PARTITION BY names a column of {name.qualifier}, but the window is that of {alias or stream.name}"
            )
            raise origin.error("UNKNOWN_ALIAS", message, name.span, alias=name.qualifier)
        if name.text.casefold() not in spelling:
            known = ", ".join(stream.schema.names)
            hint = suggest_similar(name.text, stream.schema.names)
            message = f"unknown column {name.text}; {stream.name} has {known}{hint}"
            raise origin.error("UNKNOWN_COLUMN", message, name.span, name=name.text)
    return tuple(dict.fromkeys(spelling[name.text.casefold()] for name in names))


def convert_amount(amount: Amount, time_type: pa.DataType, origin: Origin, least: int = 1) -> int:
    """A duration in the unit of a time column; it must be at least `least`."""
    try:
        value = convert_duration(amount.number, amount.unit, time_type)
    except QueryError as error:
        raise origin.error(error.condition, error.message, amount.span) from None
    if value < least:
        bound = "greater than zero" if least else "zero or more"
        raise origin.error("INVALID_DURATION", f"a duration here must be {bound}", amount.span)
    return value


def _find_freshness_stream(alias: Name, amount: Amount, sources: list[Source], origin: Origin) -> tuple[int, Stream]:
    """The stream that FRESHNESS names, and its position in FROM."""
    for position, source in enumerate(sources):
        if source.alias.casefold() == alias.text.casefold():
            if not isinstance(source.relation, Stream):
                kind = "table" if isinstance(source.relation, Table) else "query"
                message = f"{source.alias} is a {kind}: its rows do not age, so it takes no FRESHNESS"
                raise origin.error("INVALID_FRESHNESS", message, alias.span)
            if source.freshness is not None:
                place = (alias.span[0], amount.span[1])
                raise origin.error("INVALID_FRESHNESS", f"a second FRESHNESS for {source.alias}", place)
            return position, source.relation
    joined = (name for each in sources if isinstance(each.relation, Subquery) and each.relation.qualified
              for name in each.alias.split("+"))  # fmt: skip
    if alias.text.casefold() in map(str.casefold, joined):
        raise origin.unsupported_error("FRESHNESS in an outer join", alias.span, "its items are not bounded by age")
    known = [source.alias for source in sources]
    message = f"unknown alias {alias.text}; FROM has {', '.join(known)}{suggest_similar(alias.text, known)}"
    raise origin.error("UNKNOWN_ALIAS", message, alias.span, alias=alias.text)


def _check_freshness(bound: int, source: Source, alias: Name, amount: Amount, origin: Origin) -> None:
    window = source.window
    if window.lifetime is not None and bound < window.lifetime:
        message = (
            f"FRESHNESS of {source.alias} is shorter than its {window.keyword} window; it must be at least as long"
        )
        raise origin.error("INVALID_FRESHNESS", message, (alias.span[0], amount.span[1]))
