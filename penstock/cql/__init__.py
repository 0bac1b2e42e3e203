"""CQL text → bound queries, with every name and type resolved."""

from penstock.cql.bind import bind_query, bind_script
from penstock.cql.catalog import Catalog
from penstock.cql.durations import parse_duration
from penstock.cql.errors import CqlError, CqlUnsupportedError
from penstock.cql.types import build_schema, find_time_column, to_arrow_type

__all__ = [
    "Catalog",
    "CqlError",
    "CqlUnsupportedError",
    "bind_query",
    "bind_script",
    "build_schema",
    "find_time_column",
    "parse_duration",
    "to_arrow_type",
]
