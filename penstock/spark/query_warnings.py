"""Warnings about queries that are added to a pipeline, emitted in the driver. Cells do not warn."""

from __future__ import annotations

from collections.abc import Mapping
from warnings import warn

from penstock.cql import Query
from penstock.errors import PenstockWarning
from penstock.plan import WarningContext, list_query_warnings
from penstock.spark.static_tables import StaticTable

_CALLER = 4
"""The frame that calls a method of Pipeline or Run, seen from `warn`: through the method and `name_arguments`."""


def warn_of_query(name: str, query: Query, tables: Mapping[str, StaticTable], caller: int = _CALLER) -> None:
    """Emit the warnings about the text of a query. Called last: a filter may turn a warning into an exception.

    `caller`: the frame that the warnings are about, seen from `warn`.
    """
    rows = {table: data.read().num_rows for table, data in tables.items()}
    for warning in list_query_warnings(query, WarningContext(rows)):
        warn(f"{name}: {warning.format(query.text, query.offset)}", PenstockWarning, stacklevel=caller)
