"""CQL text → bound queries, with every name and type resolved."""

from penstock.cql.bind import bind_query, bind_script
from penstock.cql.bound import (
    BareQuery,
    CreateStreamAs,
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
from penstock.cql.declarations import Duration, describe_stream
from penstock.cql.durations import format_duration, parse_duration
from penstock.cql.errors import CqlError, CqlUnsupportedError, suggest_similar
from penstock.cql.script import Script, bind_script_text, read_script
from penstock.cql.types import build_schema, find_time_column, format_type, to_arrow_type, zone_columns
from penstock.cql.windows import UNBOUNDED, Range, Window

__all__ = [
    "UNBOUNDED",
    "BareQuery",
    "Catalog",
    "Connector",
    "CqlError",
    "CqlUnsupportedError",
    "CreateStreamAs",
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
    "find_time_column",
    "format_duration",
    "format_type",
    "parse_duration",
    "read_script",
    "suggest_similar",
    "to_arrow_type",
    "zone_columns",
]
