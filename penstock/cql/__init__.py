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
    OuterJoin,
    Query,
    QueryBody,
    Select,
    SelectItem,
    SeqMode,
    SetOperation,
    Source,
    Subquery,
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
from penstock.cql.script import Script, bind_script_text, read_script
from penstock.cql.types import build_schema, find_time_column, format_type, to_arrow_type, zone_columns
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
    "OuterJoin",
    "Query",
    "QueryBody",
    "Range",
    "Script",
    "Select",
    "SelectItem",
    "SeqMode",
    "SetOperation",
    "Source",
    "SourceFormat",
    "Span",
    "Stream",
    "Subquery",
    "Table",
    "Timestamps",
    "Window",
    "bind_query",
    "bind_script",
    "bind_script_text",
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
    "zone_columns",
]
