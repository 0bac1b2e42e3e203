"""Binds FROM items, with windows and freshness in the unit of each stream's time column."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.cql.bound import Source
from penstock.cql.catalog import Catalog, Stream, Table
from penstock.cql.durations import convert_duration
from penstock.cql.errors import CqlUnsupportedError, Origin, suggest_similar
from penstock.cql.syntax import (
    Amount,
    Name,
    RangeSyntax,
    RowsSyntax,
    SelectSyntax,
    SourceSyntax,
    WindowForm,
)
from penstock.cql.windows import STATIC, UNBOUNDED, PartitionedRows, Range, Rows, Window
from penstock.errors import QueryError


def bind_sources(select: SelectSyntax, catalog: Catalog, origin: Origin) -> tuple[Source, ...]:
    """Bind the FROM items of a SELECT; at least one must be a stream."""
    sources: list[Source] = []
    for syntax in select.sources:
        source = _bind_source(syntax, select.window, catalog, origin)
        written = syntax.alias or syntax.relation
        if any(source.alias.casefold() == other.alias.casefold() for other in sources):
            message = f"alias {source.alias} appears twice in FROM; give each item its own alias with AS"
            raise origin.error("DUPLICATE_ALIAS", message, written.span, alias=source.alias)
        if select.sequence and source.is_table:
            message = f"SEQ pairs streams, but {source.relation.name} is a table"
            raise origin.error("TABLE_IN_SEQ", message, syntax.relation.span)
        if select.sequence and syntax.window and source.window.counted:
            message = (
                f"{source.alias} has a ROWS window; SEQ takes RANGE as a time bound, and MODE RECENT uses the last "
                "tuple of each key anyway"
            )
            raise CqlUnsupportedError("ROWS_IN_SEQ", message, origin.text, syntax.window.span, alias=source.alias)
        sources.append(source)
    if all(source.is_table for source in sources):
        message = "a continuous query reads at least one stream, but FROM has only tables"
        raise origin.error("NO_STREAM", message, select.sources[0].relation.span)
    for alias, amount in select.freshness:
        position, stream = _find_freshness_stream(alias, amount, sources, origin)
        bound = convert_amount(amount, stream.time_type, origin)
        _check_freshness(bound, sources[position], alias, amount, origin)
        sources[position] = replace(sources[position], freshness=bound)
    return tuple(sources)


def _bind_source(syntax: SourceSyntax, shorthand: Amount | None, catalog: Catalog, origin: Origin) -> Source:
    name = syntax.relation
    if name.text not in catalog.relations:
        known = list(catalog.relations)
        listing = f"known are {', '.join(known)}" if known else "none is declared"
        message = f"unknown stream or table {name.text}; {listing}{suggest_similar(name.text, known)}"
        raise origin.error("UNKNOWN_RELATION", message, name.span, relation=name.text)
    relation = catalog.relations[name.text]
    alias = syntax.alias.text if syntax.alias else relation.name
    span = (name.span[0], (syntax.alias or syntax.window or name).span[1])
    if isinstance(relation, Table):
        if syntax.window:
            message = f"{relation.name} is a table: its rows are always valid, so it takes no window"
            raise origin.error("WINDOW_ON_TABLE", message, syntax.window.span)
        return Source(alias, relation, STATIC, span=span)
    if syntax.window:
        return Source(alias, relation, _bind_window(syntax.window.form, relation, origin), span=span)
    if shorthand:
        window = Range(convert_amount(shorthand, relation.time_type, origin))
        return Source(alias, relation, window, span=span)
    return Source(alias, relation, UNBOUNDED, span=span)


def _bind_window(syntax: WindowForm, stream: Stream, origin: Origin) -> Window:
    match syntax:
        case Window():
            return syntax
        case RangeSyntax():
            slide = convert_amount(syntax.slide, stream.time_type, origin) if syntax.slide else None
            return Range(convert_amount(syntax.size, stream.time_type, origin), slide)
        case RowsSyntax():
            count = _parse_row_count(syntax.count, origin)
            by = _resolve_partition(syntax.partition, stream, origin)
            return PartitionedRows(count, by) if by else Rows(count)


def _parse_row_count(amount: Amount, origin: Origin) -> int:
    countable = amount.unit is None and amount.number.isdecimal() and len(amount.number) <= 18
    if not countable or int(amount.number) < 1:
        message = "ROWS takes a whole number of rows, at least 1; write RANGE for a duration"
        raise origin.error("INVALID_WINDOW", message, amount.span)
    return int(amount.number)


def _resolve_partition(names: tuple[Name, ...], stream: Stream, origin: Origin) -> tuple[str, ...]:
    spelling = {column.casefold(): column for column in stream.schema.names}
    for name in names:
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
            if isinstance(source.relation, Table):
                message = f"{source.alias} is a table: its rows do not age, so it takes no FRESHNESS"
                raise origin.error("INVALID_FRESHNESS", message, alias.span)
            if source.freshness is not None:
                place = (alias.span[0], amount.span[1])
                raise origin.error("INVALID_FRESHNESS", f"a second FRESHNESS for {source.alias}", place)
            return position, source.relation
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
