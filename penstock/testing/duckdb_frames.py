"""Functions with OVER in DuckDB's SQL: its own window functions over all rows."""

from __future__ import annotations

import re

from penstock.cql import FramedRows, FrameFunction, FrameWindow
from penstock.expr import Aggregate, Column
from penstock.testing.duckdb_sql import format_aggregate, quote

_CALL = re.compile(r'\b([a-z_]+\((?:DISTINCT )?(?:"[^"]*"|\*)\))')
_TIME = '" born"'


def format_frames(body: FramedRows, rows: str, never: int) -> str:
    """Every row once, from the instant on at which its frames are complete; that is before `never` by one, or less.

    The windows are ordered by the time at which the rows below enter.
    """
    ties = [_TIME]
    ties += ["rowid"] if body.by_arrival else [f"{quote(n)} NULLS FIRST" for n in body.source.relation.schema.names]
    own = [item.name for item in body.items if isinstance(item.expr, Column) and item.expr.alias]
    columns, windows, ends = [f"{quote(name)} AS c{place}" for place, name in enumerate(own)], [], [_TIME]
    places = {item.name: place for place, item in enumerate(body.items)}
    for number, window in enumerate(body.windows):
        windows.append(f"w{number} AS ({_format_window(window, ties)})")
        ends.append(_format_end(window, ties, never - 1))
        for function in window.functions:
            columns.append(f"{_format_function(function, f'w{number}', ', '.join(ties))} AS c{places[function.name]}")
    return f"""
        SELECT {", ".join(columns)}, greatest({", ".join(ends)}) AS {_TIME}, CAST({never} AS BIGINT) AS " dies"
        FROM {rows} WINDOW {", ".join(windows)}"""


def _format_window(window: FrameWindow, ties: list[str]) -> str:
    frame, by = window.frame, ", ".join(quote(column.name) for column in window.partition)
    order = ", ".join(ties if frame.unit == "rows" else ties[:1])
    start = "UNBOUNDED PRECEDING" if frame.start is None else _format_bound(frame.start)
    partition = f"PARTITION BY {by} " if by else ""
    return f"{partition}ORDER BY {order} {frame.unit.upper()} BETWEEN {start} AND {_format_bound(frame.end)}"


def _format_bound(distance: int) -> str:
    if distance == 0:
        return "CURRENT ROW"
    return f"{abs(distance)} {'PRECEDING' if distance > 0 else 'FOLLOWING'}"


def _format_end(window: FrameWindow, ties: list[str], after_end: int) -> str:
    """The instant at which a frame is complete."""
    ahead = window.frame.ahead
    if window.frame.unit == "range" or not ahead:
        return f"{_TIME} + {ahead}"
    by = ", ".join(quote(column.name) for column in window.partition)
    partition = f"PARTITION BY {by} " if by else ""
    return f"coalesce(lead({_TIME}, {ahead}) OVER ({partition}ORDER BY {', '.join(ties)}), {after_end})"


def _format_function(function: FrameFunction, window: str, order: str) -> str:
    if isinstance(function.value, Aggregate):
        arguments = [quote(arg.name) for arg in function.value.args if isinstance(arg, Column)]
        called = format_aggregate(function.value, arguments)
        return _CALL.sub(rf"\1 OVER {window}", called)
    assert isinstance(function.value, Column)
    values = f"list({quote(function.value.name)} ORDER BY {order}) OVER {window}"
    value = f"({values})[{-1 if function.kind == 'last' else function.place}]"
    if function.default is None:
        return value
    return f"CASE WHEN count(*) OVER {window} = 0 THEN {quote(function.default.name)} ELSE {value} END"
