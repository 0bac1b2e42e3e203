"""From text to bound values: queries and scripts against a catalog."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from penstock.cql.bound import (
    BareQuery,
    CreateSink,
    CreateStream,
    CreateStreamAs,
    CreateTable,
    InsertInto,
    Query,
    Statement,
)
from penstock.cql.catalog import Catalog, Connector, Named, Names, Sink, Stream, Table
from penstock.cql.dialect import too_deep
from penstock.cql.errors import Origin, did_you_mean
from penstock.cql.script_parser import parse_query, parse_script
from penstock.cql.select import bind_body, check_times
from penstock.cql.syntax import (
    ColumnSyntax,
    ConnectorSyntax,
    CreateSinkSyntax,
    CreateStreamAsSyntax,
    CreateStreamSyntax,
    CreateTableSyntax,
    InsertSyntax,
    Name,
    QuerySyntax,
    StatementSyntax,
)
from penstock.cql.types import arrow_type, time_column
from penstock.cql.windows import measure
from penstock.errors import QueryError

T = TypeVar("T", bound=Named)


def bind_query(text: str, catalog: Catalog) -> Query:
    """One query with every name and type resolved; the catalog stays as it is."""
    if not isinstance(text, str):
        raise QueryError("NOT_A_TEXT", f"a query is a text, not a {type(text).__name__}")
    syntax = parse_query(text)
    try:
        return _query(syntax, catalog, Origin(text))
    except RecursionError:
        raise too_deep(text) from None


def bind_script(text: str, catalog: Catalog) -> list[Statement]:
    """Every statement of a script, each seeing what the ones before it declare.

    The declarations enter the catalog when the whole script is right; a mistake leaves it as it was.
    """
    origin = Origin(text)
    draft = Catalog(_copied(catalog.relations), _copied(catalog.sinks), catalog.aggregates)
    statements: list[Statement] = []
    try:
        for syntax in parse_script(text):
            statement = _statement(syntax, draft, origin)
            _declare(statement, draft)
            statements.append(statement)
    except RecursionError:
        raise too_deep(text) from None
    for statement in statements:
        _declare(statement, catalog)
    return statements


def _query(syntax: QuerySyntax, catalog: Catalog, origin: Origin) -> Query:
    body = bind_body(syntax.body, catalog, origin)
    check_times(body, syntax.body, origin)
    return Query(origin.text[slice(*syntax.span)], syntax.emit, body)


def _statement(syntax: StatementSyntax, catalog: Catalog, origin: Origin) -> Statement:
    match syntax:
        case QuerySyntax():
            return BareQuery(_query(syntax, catalog, origin))
        case InsertSyntax():
            return InsertInto(_sink(syntax.sink, catalog, origin).name, _query(syntax.query, catalog, origin))
        case CreateStreamAsSyntax():
            _new(syntax.name, catalog.relations, origin)
            return CreateStreamAs(syntax.name.text, _query(syntax.query, catalog, origin))
        case CreateStreamSyntax():
            _new(syntax.name, catalog.relations, origin)
            return CreateStream(_stream(syntax, origin))
        case CreateTableSyntax():
            _new(syntax.name, catalog.relations, origin)
            schema = _schema(syntax.columns, origin)
            return CreateTable(Table(syntax.name.text, schema, _connector(syntax.connector)))
        case CreateSinkSyntax():
            _new(syntax.name, catalog.sinks, origin)
            connector = Connector(syntax.connector.format, syntax.connector.options)
            return CreateSink(Sink(syntax.name.text, connector, syntax.connector.span))


def _declare(statement: Statement, catalog: Catalog) -> None:
    match statement:
        case CreateStream(stream):
            catalog.relations.add(stream)
        case CreateStreamAs(name, query):
            catalog.relations.add(Stream(name, query.schema, time="_ts"))
        case CreateTable(table):
            catalog.relations.add(table)
        case CreateSink(sink):
            catalog.sinks.add(sink)


def _stream(syntax: CreateStreamSyntax, origin: Origin) -> Stream:
    schema = _schema(syntax.columns, origin)
    try:
        time = time_column(schema, syntax.time.text)
    except QueryError as error:
        raise origin.error(error.condition, error.message, syntax.time.span) from None
    stream = Stream(
        syntax.name.text, schema, time, timestamps=syntax.timestamps, connector=_connector(syntax.connector)
    )
    lateness, skew, idle = syntax.lateness, syntax.skew, syntax.idle_after
    return replace(
        stream,
        lateness=measure(lateness, stream.time_type, origin, least=0) if lateness else 0,
        skew=measure(skew, stream.time_type, origin, least=0) if skew else 0,
        idle_after=measure(idle, stream.time_type, origin) if idle else None,
    )


def _schema(columns: tuple[ColumnSyntax, ...], origin: Origin) -> pa.Schema:
    fields: dict[str, pa.Field] = {}
    for column in columns:
        try:
            declared = arrow_type(column.type.text)
        except QueryError as error:
            raise origin.error(error.condition, error.message, column.type.span) from None
        if column.name.text.casefold() in fields:
            message = f"column {column.name.text} is declared twice"
            raise origin.error("DUPLICATE_COLUMN", message, column.name.span)
        fields[column.name.text.casefold()] = pa.field(column.name.text, declared)
    return pa.schema(list(fields.values()))


def _connector(syntax: ConnectorSyntax | None) -> Connector | None:
    return Connector(syntax.format, syntax.options) if syntax else None


def _sink(name: Name, catalog: Catalog, origin: Origin) -> Sink:
    if name.text not in catalog.sinks:
        known = list(catalog.sinks)
        listing = f"known are {', '.join(known)}" if known else "none is declared; write CREATE SINK first"
        message = f"unknown sink {name.text}; {listing}{did_you_mean(name.text, known)}"
        raise origin.error("UNKNOWN_SINK", message, name.span, sink=name.text)
    return catalog.sinks[name.text]


def _new(name: Name, declared: Names[Sink] | Names[Stream | Table], origin: Origin) -> None:
    if name.text in declared:
        message = f"{name.text} is already declared"
        raise origin.error("DUPLICATE_NAME", message, name.span, name=name.text)


def _copied(names: Names[T]) -> Names[T]:
    copy: Names[T] = Names()
    for name in names:
        copy.add(names[name])
    return copy
