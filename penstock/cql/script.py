"""A CQL script: its declarations, and its queries by name.

A query has the name of the sink that it writes to or of the stream that it derives; a bare SELECT is `query`. If a name
is taken, a number is added.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from penstock.cql.bind import bind_script
from penstock.cql.bound import (
    BareQuery,
    CreateSink,
    CreateStream,
    CreateStreamAs,
    CreateTable,
    CreateView,
    InsertInto,
    Query,
    Source,
    Statement,
)
from penstock.cql.catalog import Catalog, Connector, SinkDeclaration, Stream, Table
from penstock.cql.errors import CqlError, CqlUnsupportedError
from penstock.cql.types import format_type
from penstock.errors import PenstockError, QueryError, UnsupportedError

SummaryLine = tuple[str, str, str]


@dataclass(frozen=True)
class Script:
    """The statements of a script, bound."""

    statements: tuple[Statement, ...]
    text: str

    @property
    def streams(self) -> tuple[Stream, ...]:
        return tuple(statement.stream for statement in self.statements if isinstance(statement, CreateStream))

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(statement.table for statement in self.statements if isinstance(statement, CreateTable))

    @property
    def sinks(self) -> tuple[SinkDeclaration, ...]:
        return tuple(statement.sink for statement in self.statements if isinstance(statement, CreateSink))

    @property
    def derived_streams(self) -> tuple[str, ...]:
        """The streams that queries derive."""
        return tuple(statement.name for statement in self.statements if isinstance(statement, CreateStreamAs))

    @property
    def views(self) -> tuple[str, ...]:
        return tuple(statement.name for statement in self.statements if isinstance(statement, CreateView))

    @property
    def queries(self) -> dict[str, Query]:
        named: dict[str, Query] = {}
        declared = dict.fromkeys(self.views)
        for statement in self.statements:
            match statement:
                case CreateView(name=name, query=query):
                    named[name] = query
                case InsertInto(sink=name, query=query) | CreateStreamAs(name=name, query=query):
                    named[_make_free_name(name, (*declared, *named))] = query
                case BareQuery(query=query):
                    named[_make_free_name("query", (*declared, *named))] = query
        return named

    def require_runnable(self) -> None:
        """Raise an error if the script cannot run on Spark: it has no query, or a relation without FROM."""
        if not any(isinstance(statement, InsertInto | BareQuery) for statement in self.statements):
            raise QueryError("NO_QUERY", "the script has no query to run; it only declares")
        for statement in self.statements:
            match statement:
                case CreateStream(stream=relation, span=span) | CreateTable(table=relation, span=span):
                    if relation.connector is None:
                        message = (
                            f"{relation.name} has no FROM: say where it is read, such as FROM parquet OPTIONS (path "
                            f"'data/{relation.name}'), or declare it in Python with pipe.stream(...)"
                        )
                        raise CqlError("NO_SOURCE", message, self.text, span)

    def locate_error(self, sink: SinkDeclaration, error: PenstockError) -> CqlError:
        """An error about a sink, with its position in the script."""
        kind = CqlUnsupportedError if isinstance(error, UnsupportedError) else CqlError
        return kind(error.condition, error.message, self.text, sink.span)

    def summarize(self) -> Iterator[SummaryLine]:
        """Kind, name and description of every statement."""
        for stream in self.streams:
            yield (
                "stream",
                stream.name,
                f"{_format_columns(stream)}; time {stream.time}{_format_connector('from', stream.connector)}",
            )
        for table in self.tables:
            yield "table", table.name, f"{_format_columns(table)}{_format_connector('from', table.connector)}"
        for sink in self.sinks:
            yield "sink", sink.name, _format_connector("to", sink.connector).removeprefix("; ")
        for name, query in self.queries.items():
            names = ", ".join(query.schema.names[:-1])
            sources = ", ".join(_format_source(source) for source in query.body.inputs)
            if name in self.views:
                yield "view", name, f"{names} from {sources}"
                continue
            yield "query", name, f"{query.emit.upper()} of {names} from {sources}"


def read_script(path: Path) -> Script:
    """Read and bind a script; every error is a QueryError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise QueryError("SCRIPT_NOT_UTF8", f"{path.name} is not UTF-8 text: {error.reason}", path=str(path)) from error
    except OSError as error:
        message = f"the script {path} cannot be read: {error.strerror or error}"
        raise QueryError("SCRIPT_UNREADABLE", message, path=str(path)) from error
    return bind_script_text(text, path.name)


def bind_script_text(text: str, name: str) -> Script:
    """Bind the text of a script; `name` is what errors call it."""
    script = Script(tuple(bind_script(text, Catalog())), text)
    if not script.statements:
        raise QueryError("EMPTY_SCRIPT", f"{name} has no statement", path=name)
    return script


def _make_free_name(name: str, taken: Collection[str]) -> str:
    return next(free for number in count(1) if (free := name if number == 1 else f"{name}_{number}") not in taken)


def _format_columns(relation: Stream | Table) -> str:
    return ", ".join(f"{field.name} {format_type(field.type)}" for field in relation.schema)


def _format_connector(preposition: str, connector: Connector | None) -> str:
    return f"; {preposition} {connector.format}" if connector else ""


def _format_source(source: Source) -> str:
    name = source.relation.name
    return name if source.alias.casefold() == name.casefold() else f"{name} AS {source.alias}"
