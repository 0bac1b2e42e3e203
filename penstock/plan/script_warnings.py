"""Warnings about scripts: sources that Spark may not know, and declarations that nothing uses. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.cql import (
    SOURCE_FORMATS,
    BareQuery,
    CreateSink,
    CreateStream,
    CreateStreamAs,
    CreateTable,
    InsertInto,
    Script,
    SourceFormat,
    Span,
    Stream,
    Table,
    find_source_format,
    suggest_similar,
)
from penstock.plan.estimates import WarningContext
from penstock.plan.warnings import QueryWarning, list_query_warnings


def list_script_warnings(script: Script) -> tuple[QueryWarning, ...]:
    """The warnings about a script and its queries, in the order of the rules."""
    return tuple(warning for rule in SCRIPT_RULES for warning in rule(script))


def warn_missing_sources(script: Script) -> Iterator[QueryWarning]:
    """`penstock run` must know where a stream or table is read."""
    for relation, span in _list_relations(script):
        if relation.connector is None:
            message = (
                f"{relation.name} has no FROM, so `penstock run` cannot read it. "
                f"Write FROM and a format, such as FROM parquet OPTIONS (path 'data/{relation.name}')"
            )
            yield QueryWarning("NO_SOURCE", message, span)


def warn_formats(script: Script) -> Iterator[QueryWarning]:
    """Formats that Spark does not contain or cannot stream, and columns that they do not have."""
    for relation, span in _list_relations(script):
        if relation.connector is None or "." in relation.connector.format:  # a class name: nothing is known of it
            continue
        name, known = relation.connector.format, find_source_format(relation.connector)
        if known is None:
            contained = ", ".join(each for each, format_ in SOURCE_FORMATS.items() if not format_.package)
            message = (
                f"{relation.name}: Spark contains no format {name}; it contains {contained}, and others if their "
                f"package is installed{suggest_similar(name, SOURCE_FORMATS)}"
            )
            yield QueryWarning("UNKNOWN_FORMAT", message, span)
        elif isinstance(relation, Stream) and not known.streams:
            message = f"{relation.name}: Spark cannot read {name} as a stream. Declare it with CREATE TABLE"
            yield QueryWarning("NOT_A_STREAM_FORMAT", message, span)
        elif other := _list_foreign_columns(relation, known):
            message = (
                f"{relation.name}: {name} has the columns {', '.join(known.columns)}, but not {', '.join(other)}. "
                "Declare those columns, or parse them in Python: pipe.stream(name, spark.readStream...)"
            )
            yield QueryWarning("COLUMNS_NOT_IN_FORMAT", message, span)


def _list_relations(script: Script) -> Iterator[tuple[Stream | Table, Span]]:
    """The declared streams and tables, with the places of their names."""
    for statement in script.statements:
        match statement:
            case CreateStream(stream=relation, span=span) | CreateTable(table=relation, span=span):
                yield relation, span


def _list_foreign_columns(relation: Stream | Table, known: SourceFormat) -> list[str]:
    """The declared columns that a format of fixed columns does not have."""
    if relation.connector is not None and any(key.casefold() == "payload" for key, _ in relation.connector.options):
        return []  # columns are those of the payload
    given = {name.casefold() for name in known.columns}
    if isinstance(relation, Stream) and relation.timestamps != "external":
        given.add(relation.time.casefold())  # stamped on arrival
    return [name for name in relation.schema.names if known.columns and name.casefold() not in given]


def warn_unused(script: Script) -> Iterator[QueryWarning]:
    """Streams and tables that no query reads, sinks that no query writes."""
    used = {source.relation.name.casefold() for query in script.queries.values() for source in query.body.inputs}
    used |= {statement.sink.casefold() for statement in script.statements if isinstance(statement, InsertInto)}
    for statement in script.statements:
        match statement:
            case CreateStream(stream=declared, span=span) | CreateTable(table=declared, span=span):
                name, verb = declared.name, "reads"
            case CreateStreamAs(name=name, span=span):
                verb = "reads"
            case CreateSink(sink=sink):
                name, span, verb = sink.name, sink.span, "writes to"
            case _:
                continue
        if name.casefold() not in used:
            yield QueryWarning("UNUSED", f"no query {verb} {name}. Remove it, or write the query", span)


def warn_no_query(script: Script) -> Iterator[QueryWarning]:
    """A script that only declares has nothing to run."""
    if not any(isinstance(statement, InsertInto | BareQuery) for statement in script.statements):
        message = "the script has no query to run, only declarations. Write SELECT ... or INSERT INTO sink SELECT ..."
        yield QueryWarning("NO_QUERY", message)


def warn_queries(script: Script) -> Iterator[QueryWarning]:
    """The warnings about its queries."""
    for query in script.queries.values():
        yield from list_query_warnings(query, WarningContext())


SCRIPT_RULES: tuple[Callable[[Script], Iterator[QueryWarning]], ...] = (
    warn_missing_sources,
    warn_formats,
    warn_unused,
    warn_no_query,
    warn_queries,
)
