"""The room that reads CQL: text in, bound queries with every name and type resolved out."""

from penstock.cql.bind import bind_query, bind_script
from penstock.cql.catalog import Catalog
from penstock.cql.durations import duration
from penstock.cql.errors import CqlError, CqlUnsupportedError
from penstock.cql.types import arrow_type, stream_schema, time_column

__all__ = [
    "Catalog",
    "CqlError",
    "CqlUnsupportedError",
    "arrow_type",
    "bind_query",
    "bind_script",
    "duration",
    "stream_schema",
    "time_column",
]
