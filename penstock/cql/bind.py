"""Binds queries and scripts against a catalog."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa

from penstock.cql.body import bind_body
from penstock.cql.bound import (
    BareQuery,
    CreateSink,
    CreateStream,
    CreateStreamAs,
    CreateTable,
    CreateView,
    InsertInto,
    Query,
    Statement,
    View,
)
from penstock.cql.catalog import Catalog, Connector, SinkDeclaration, Stream, Table
from penstock.cql.clock_freshness import check_clock_freshness, refuse_clock_reader
from penstock.cql.connectors import list_missing_options
from penstock.cql.dialect import make_nesting_error
from penstock.cql.errors import CqlUnsupportedError, Origin, Span, suggest_similar
from penstock.cql.nested_values import check_nested_values
from penstock.cql.script_parser import parse_query, parse_script
from penstock.cql.sources import Names, convert_amount
from penstock.cql.syntax import (
    ColumnSyntax,
    ConnectorSyntax,
    CreateSinkSyntax,
    CreateStreamAsSyntax,
    CreateStreamSyntax,
    CreateTableSyntax,
    CreateUpdatingTableSyntax,
    CreateViewSyntax,
    InsertSyntax,
    Name,
    QuerySyntax,
    StatementSyntax,
)
from penstock.cql.types import find_time_column, format_type, parse_column_type, split_not_null
from penstock.cql.updating import make_changes, name_changes, write_table_query
from penstock.cql.window_close import bind_window_close
from penstock.errors import QueryError, UnsupportedError

_EXPLICIT_ISTREAM = re.compile(r"istream\s*\(", re.IGNORECASE)
_FILE_SINKS = ("parquet", "csv", "json", "delta")


def bind_query(text: str, catalog: Catalog) -> Query:
    """Bind one query. The catalog does not change."""
    if not isinstance(text, str):
        raise QueryError("NOT_A_TEXT", f"a query is a text, not a {type(text).__name__}")
    syntax = parse_query(text)
    try:
        return _bind_query_syntax(syntax, catalog, Origin(text))
    except RecursionError:
        raise make_nesting_error(text) from None


def bind_view(text: str, catalog: Catalog) -> Query:
    """Bind the query of a view. The catalog does not change."""
    query = bind_query(text, catalog)
    _check_view(query, Origin(text), (0, len(text)))
    return query


def _check_view(query: Query, origin: Origin, span: Span) -> None:
    """A view is the answer of its query, not a stream of the answer's changes."""
    refuse_clock_reader("the view", query)
    if query.emit != "istream" or _EXPLICIT_ISTREAM.match(query.text):
        message = (
            "a view is a relation: write its SELECT alone, and ISTREAM, DSTREAM, RSTREAM or EMIT CHANGES in the "
            "queries that read it"
        )
        raise origin.error("VIEW_EMITS", message, span)


def bind_script(text: str, catalog: Catalog) -> list[Statement]:
    """Bind every statement of a script. A statement can use what the statements before it declare.

    The declarations are added to the catalog if the whole script is correct; after an error the catalog is unchanged.
    """
    origin = Origin(text)
    draft = catalog.copy()
    statements: list[Statement] = []
    try:
        for syntax in parse_script(text):
            if isinstance(syntax, CreateUpdatingTableSyntax):
                statements.extend(_declare_updating_table(syntax, draft, origin))
                continue
            statement = _bind_statement(syntax, draft, origin)
            if isinstance(statement, InsertInto):
                _check_sink_schema(statement, statements, draft.sinks[statement.sink], origin)
            _declare(statement, draft)
            statements.append(statement)
    except RecursionError:
        raise make_nesting_error(text) from None
    for statement in statements:
        _declare(statement, catalog)
    return statements


def _bind_query_syntax(syntax: QuerySyntax, catalog: Catalog, origin: Origin) -> Query:
    body = bind_body(syntax.body, Names(origin, catalog))
    if syntax.emit == "changes" and any(item.name.casefold() == "_op" for item in body.items):
        message = "_op is the column of EMIT CHANGES; give the column of SELECT another name with AS"
        raise origin.error("RESERVED_NAME", message, syntax.span)
    check_nested_values(body, syntax.span, origin)
    emit = syntax.emit
    if emit == "close":
        emit, body = bind_window_close(body, syntax.span, origin)
    query = Query(origin.text[slice(*syntax.span)], emit, body, syntax.span[0])
    check_clock_freshness(query, origin, syntax.span)
    return query


def _bind_statement(syntax: StatementSyntax, catalog: Catalog, origin: Origin) -> Statement:
    match syntax:
        case QuerySyntax():
            return BareQuery(_bind_query_syntax(syntax, catalog, origin))
        case InsertSyntax():
            sink = _find_sink(syntax.sink, catalog, origin).name
            return InsertInto(sink, _bind_query_syntax(syntax.query, catalog, origin), syntax.sink.span)
        case CreateStreamAsSyntax():
            _check_new_name(syntax.name, catalog.relations, origin)
            query = _bind_query_syntax(syntax.query, catalog, origin)
            return CreateStreamAs(syntax.name.text, query, syntax.name.span)
        case CreateViewSyntax():
            _check_new_name(syntax.name, catalog.relations, origin)
            return _bind_view_syntax(syntax, catalog, origin)
        case CreateStreamSyntax():
            _check_new_name(syntax.name, catalog.relations, origin)
            return CreateStream(_bind_stream(syntax, origin), syntax.name.span)
        case CreateTableSyntax():
            _check_new_name(syntax.name, catalog.relations, origin)
            schema = _build_schema(syntax.columns, origin)
            connector = _bind_source_connector(syntax.connector, origin)
            table = Table(syntax.name.text, schema, connector, _list_required(syntax.columns))
            return CreateTable(table, syntax.name.span)
        case CreateSinkSyntax():
            _check_new_name(syntax.name, catalog.sinks, origin)
            connector = Connector(syntax.connector.format, syntax.connector.options)
            return CreateSink(SinkDeclaration(syntax.name.text, connector, syntax.connector.span))


def _declare_updating_table(
    syntax: CreateUpdatingTableSyntax, catalog: Catalog, origin: Origin
) -> tuple[CreateStream, CreateView]:
    """An updating table: the stream of its changes, and the view with its rows."""
    name = syntax.changes.name
    changes_name = Name(name_changes(name.text), name.span)
    for each in (name, changes_name):
        _check_new_name(each, catalog.relations, origin)
    stream = _bind_stream(replace(syntax.changes, name=changes_name), origin)
    try:
        stream = make_changes(stream, [column.text for column in syntax.key], stream.required)
    except QueryError as error:
        raise origin.error(error.condition, error.message, syntax.key[0].span) from None
    created = CreateStream(stream, name.span)
    _declare(created, catalog)
    view = CreateView(name.text, bind_view(write_table_query(stream), catalog), name.span)
    _declare(view, catalog)
    return created, view


def _bind_view_syntax(syntax: CreateViewSyntax, catalog: Catalog, origin: Origin) -> CreateView:
    try:
        query = _bind_query_syntax(syntax.query, catalog, origin)
    except QueryError as error:
        if is_unknown_relation(error, syntax.name.text):
            raise origin.error("VIEW_CYCLE", describe_view_cycle(syntax.name.text), syntax.name.span) from None
        raise
    _check_view(query, origin, syntax.query.span)
    return CreateView(syntax.name.text, query, syntax.name.span)


def is_unknown_relation(error: QueryError, name: str) -> bool:
    """Whether an error says that there is no stream, table or view of this name."""
    relation = str(error.parameters.get("relation"))
    return error.condition == "UNKNOWN_RELATION" and relation.casefold() == name.casefold()


def describe_view_cycle(name: str) -> str:
    """The message about a view that reads itself."""
    return f"the view {name} would read itself; a view reads streams, tables and views that are declared before it"


def _declare(statement: Statement, catalog: Catalog) -> None:
    match statement:
        case CreateStream(stream=stream):
            catalog.relations.add(stream)
        case CreateStreamAs(name=name, query=query):
            catalog.relations.add(Stream(name, query.schema, time="_ts"))
        case CreateView(name=name, query=query):
            catalog.relations.add(View(name, query.body))
        case CreateTable(table=table):
            catalog.relations.add(table)
        case CreateSink(sink):
            catalog.sinks.add(sink)


def _bind_stream(syntax: CreateStreamSyntax, origin: Origin) -> Stream:
    schema = _build_schema(syntax.columns, origin)
    try:
        time = find_time_column(schema, syntax.time.text)
    except QueryError as error:
        raise origin.error(error.condition, error.message, syntax.time.span) from None
    stream = Stream(
        syntax.name.text,
        schema,
        time,
        timestamps=syntax.timestamps,
        connector=_bind_source_connector(syntax.connector, origin),
    )
    lateness, skew, idle, ahead = syntax.lateness, syntax.skew, syntax.idle_after, syntax.ahead
    return replace(
        stream,
        lateness=convert_amount(lateness, stream.time_type, origin, least=0) if lateness else 0,
        skew=convert_amount(skew, stream.time_type, origin, least=0) if skew else 0,
        idle_after=convert_amount(idle, stream.time_type, origin) if idle else None,
        ahead=convert_amount(ahead, stream.time_type, origin, least=0) if ahead else None,
        required=_list_required(syntax.columns),
    )


def _build_schema(columns: tuple[ColumnSyntax, ...], origin: Origin) -> pa.Schema:
    fields: dict[str, pa.Field] = {}
    for column in columns:
        try:
            declared = parse_column_type(column.type.text)
        except UnsupportedError as error:
            raise CqlUnsupportedError(error.condition, error.message, origin.text, column.type.span) from None
        except QueryError as error:
            raise origin.error(error.condition, error.message, column.type.span) from None
        if column.name.text.casefold() in fields:
            message = f"column {column.name.text} is declared twice"
            raise origin.error("DUPLICATE_COLUMN", message, column.name.span)
        fields[column.name.text.casefold()] = pa.field(column.name.text, declared)
    return pa.schema(list(fields.values()))


def _list_required(columns: tuple[ColumnSyntax, ...]) -> tuple[str, ...]:
    return tuple(column.name.text for column in columns if split_not_null(column.type.text)[1])


def _bind_source_connector(syntax: ConnectorSyntax | None, origin: Origin) -> Connector | None:
    if syntax is None:
        return None
    connector = Connector(syntax.format, syntax.options)
    if missing := list_missing_options(connector):
        message = f"FROM {syntax.format} lacks {', '.join(missing)}; write OPTIONS ({missing[0].split()[0]} '...')"
        raise origin.error("OPTION_MISSING", message, syntax.span, format=syntax.format, missing=missing)
    return connector


def _check_sink_schema(statement: InsertInto, before: list[Statement], sink: SinkDeclaration, origin: Origin) -> None:
    """The queries of one sink of files must write the same columns: readers of the folder expect one schema."""
    if sink.connector.format.casefold() not in _FILE_SINKS:
        return
    schema = _describe_columns(statement.query)
    for other in before:
        if isinstance(other, InsertInto) and other.sink == statement.sink and _describe_columns(other.query) != schema:
            message = (
                f"two queries write different columns to {sink.name}: {', '.join(schema)} here, "
                f"{', '.join(_describe_columns(other.query))} before; select the same columns, or declare another sink"
            )
            raise origin.error("SINK_SCHEMAS_DIFFER", message, statement.span, sink=sink.name)


def _describe_columns(query: Query) -> list[str]:
    return [f"{field.name} {format_type(field.type)}" for field in query.schema]


def _find_sink(name: Name, catalog: Catalog, origin: Origin) -> SinkDeclaration:
    if name.text not in catalog.sinks:
        known = list(catalog.sinks)
        listing = f"known are {', '.join(known)}" if known else "none is declared; write CREATE SINK first"
        message = f"unknown sink {name.text}; {listing}{suggest_similar(name.text, known)}"
        raise origin.error("UNKNOWN_SINK", message, name.span, sink=name.text)
    return catalog.sinks[name.text]


def _check_new_name(name: Name, declared: Collection[str], origin: Origin) -> None:
    if name.text in declared:
        message = f"{name.text} is already declared"
        raise origin.error("DUPLICATE_NAME", message, name.span, name=name.text)
