"""CQL text → bound queries, with every name and type resolved."""

from penstock.cql.bind import bind_query, bind_script
from penstock.cql.bound import (
    BareQuery,
    CreateSink,
    CreateStream,
    CreateStreamAs,
    CreateTable,
    Emit,
    InsertInto,
    Query,
    QueryBody,
    Select,
    SeqMode,
    SetOperation,
    Source,
)
from penstock.cql.catalog import Catalog, Connector, NameMap, Stream, Table, Timestamps
from penstock.cql.connectors import SOURCE_FORMATS, SourceFormat, find_rate, find_source_format
from penstock.cql.declarations import Duration, describe_stream
from penstock.cql.durations import format_duration, parse_duration
from penstock.cql.errors import (
    CqlError,
    CqlUnsupportedError,
    Span,
    find_line_and_column,
    format_excerpt,
    suggest_similar,
)
from penstock.cql.script import Script, read_script
from penstock.cql.types import build_schema, find_time_column, format_type, to_arrow_type
from penstock.cql.windows import UNBOUNDED, Range, Window

__all__ = [
    "SOURCE_FORMATS",
    "UNBOUNDED",
    "BareQuery",
    "Catalog",
    "Connector",
    "CqlError",
    "CqlUnsupportedError",
    "CreateSink",
    "CreateStream",
    "CreateStreamAs",
    "CreateTable",
    "Duration",
    "Emit",
    "InsertInto",
    "NameMap",
    "Query",
    "QueryBody",
    "Range",
    "Script",
    "Select",
    "SeqMode",
    "SetOperation",
    "Source",
    "SourceFormat",
    "Span",
    "Stream",
    "Table",
    "Timestamps",
    "Window",
    "bind_query",
    "bind_script",
    "build_schema",
    "describe_stream",
    "find_line_and_column",
    "find_rate",
    "find_source_format",
    "find_time_column",
    "format_duration",
    "format_excerpt",
    "format_type",
    "parse_duration",
    "read_script",
    "suggest_similar",
    "to_arrow_type",
]
