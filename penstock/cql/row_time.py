"""The time of a row of a SELECT: what FIRST and LAST compare, and the order of lists."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cql.bound import Source, Subquery, WindowedRows
from penstock.cql.catalog import Stream
from penstock.expr import Call, Column, Expr


def find_row_time(sources: Sequence[Source]) -> Expr | None:
    """The latest time of the streams that a row is combined of; None if an item has rows without a time."""
    times: list[Column] = []
    for source in sources:
        stream = source.relation
        if isinstance(stream, Subquery) and isinstance(stream.body, WindowedRows):
            stream = stream.body.source.relation
        if isinstance(stream, Stream):
            times.append(Column(source.alias, stream.time, stream.time_type))
        elif not source.is_table:
            return None
    if len(times) < 2:
        return times[0] if times else None
    if len({time.type for time in times}) > 1:
        return None
    return Call("greatest", tuple(times), times[0].type)
