"""TUMBLE, HOP and SESSION in DuckDB's SQL, over rows with their validity intervals."""

from __future__ import annotations

from penstock.cql import RowTransform, Stream, WindowedRows
from penstock.errors import UnsupportedError
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
