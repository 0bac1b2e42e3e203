"""TUMBLE, HOP, SESSION and ranks in DuckDB's SQL, over rows with their validity intervals."""

from __future__ import annotations

from penstock.cql import FramedRows, RankedRows, RowTransform, Stream, WindowedRows
from penstock.errors import UnsupportedError
from penstock.testing.duckdb_frames import format_frames
from penstock.testing.duckdb_sql import quote

MAX_TIME = 2**62
MIN_TIME = -MAX_TIME
BORN, DIES = '" born"', '" dies"'  # no column of a stream has this name


def format_transform(body: RowTransform, rows: str) -> str:
    """The answer of a body as a query over the table with the rows of its source."""
    match body:
        case WindowedRows(kind="session"):
            return _format_sessions(body, rows)
        case WindowedRows():
            return _format_windows(body, rows)
        case FramedRows():
            return format_frames(body, rows, MAX_TIME)
        case RankedRows():
            return _format_ranks(body, rows)
    raise UnsupportedError("ORACLE_TRANSFORM", f"the oracle on DuckDB does not compute {type(body).__name__}")


def _list_columns(body: RowTransform, added: int) -> str:
    own = body.items[: len(body.items) - added]
    return ", ".join(f"{quote(item.name)} AS c{place}" for place, item in enumerate(own))


def _get_time(body: WindowedRows) -> str:
    stream = body.source.relation
    assert isinstance(stream, Stream)
    return f"CAST({quote(stream.time)} AS BIGINT)"


def _format_windows(body: WindowedRows, rows: str) -> str:
    """Every row in the windows that start at most `size` before it."""
    size, slide, width = body.size, body.slide, len(body.items)
    last = f"({{t}} - (({{t}} % {slide}) + {slide}) % {slide})".format(t=_get_time(body))
    return f"""
        SELECT {_list_columns(body, 2)}, start AS c{width - 2}, start + {size} AS c{width - 1},
            {_get_time(body)} AS {BORN}, start + {size} AS {DIES}
        FROM (
            SELECT *, unnest(generate_series({last} - {-(-size // slide) - 1} * {slide}, {last}, {slide})) AS start
            FROM {rows}
        ) WHERE start + {size} > {_get_time(body)}"""


def _format_sessions(body: WindowedRows, rows: str) -> str:
    """The rows of a partition, numbered by session: one begins where the row before is at least the gap away."""
    by = "".join(f"{quote(column.name)}, " for column in body.partition)
    partition = f"PARTITION BY {by[:-2]}" if by else ""
    width = len(body.items)
    return f"""
        WITH marked AS (
            SELECT *, {_get_time(body)} AS t, CASE WHEN {_get_time(body)} - lag({_get_time(body)}) OVER w < {body.size}
                THEN 0 ELSE 1 END AS fresh
            FROM {rows} WINDOW w AS ({partition} ORDER BY {_get_time(body)})
        ), numbered AS (
            SELECT *, sum(fresh) OVER ({partition} ORDER BY t) AS session FROM marked
        ), bounded AS (
            SELECT *, min(t) OVER s AS start, max(t) OVER s + {body.size} AS until
            FROM numbered WINDOW s AS (PARTITION BY {by}session)
        )
        SELECT {_list_columns(body, 2)}, start AS c{width - 2}, until AS c{width - 1},
            until AS {BORN}, until + 1 AS {DIES} FROM bounded"""


def _format_ranks(body: RankedRows, rows: str) -> str:
    """The ranks of all instants of change; equal rows of consecutive instants are one row."""
    terms = [
        f"r.{quote(term.column.name)} {'DESC' if term.descending else 'ASC'} "
        f"NULLS {'FIRST' if term.nulls_first else 'LAST'}"
        for term in body.order
    ]
    ties = [f"r.{quote(name)} ASC NULLS FIRST" for name in body.source.relation.schema.names]
    partition = ", ".join(["s.instant", *(f"r.{quote(column.name)}" for column in body.partition)])
    order = ", ".join([*terms, *(ties if body.function == "row_number" else [])])
    shown = [quote(item.name) for item in body.items if item.name != body.rank]
    names = [f"c{place}" for place in range(len(body.items))]
    columns = ", ".join(
        f"{column} AS {name}" for column, name in zip([*shown, *(["rn"] if body.rank else [])], names, strict=True)
    )
    listed = ", ".join(names)
    limit = "" if body.limit is None else f" AND rn <= {body.limit}"
    return f"""
        WITH instants AS (
            SELECT {BORN} AS instant FROM {rows} UNION SELECT {DIES} FROM {rows} WHERE {DIES} < {MAX_TIME}
        ), spans AS (
            SELECT instant, coalesce(lead(instant) OVER (ORDER BY instant), {MAX_TIME}) AS until FROM instants
        ), ranked AS (
            SELECT r.*, s.instant, s.until, {body.function}() OVER (PARTITION BY {partition} ORDER BY {order}) AS rn
            FROM spans AS s JOIN {rows} AS r ON r.{BORN} <= s.instant AND s.instant < r.{DIES}
        ), shown AS (
            SELECT {columns}, instant, until FROM ranked WHERE rn > {body.offset}{limit}
        ), copies AS (
            SELECT *, row_number() OVER (PARTITION BY instant, {listed}) AS copy FROM shown
        ), marked AS (
            SELECT *, CASE WHEN lag(until) OVER w IS NOT DISTINCT FROM instant THEN 0 ELSE 1 END AS fresh
            FROM copies WINDOW w AS (PARTITION BY {listed}, copy ORDER BY instant)
        ), runs AS (
            SELECT *, sum(fresh) OVER (PARTITION BY {listed}, copy ORDER BY instant) AS run FROM marked
        )
        SELECT {listed}, min(instant) AS {BORN}, max(until) AS {DIES} FROM runs GROUP BY {listed}, copy, run"""
