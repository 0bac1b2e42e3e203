"""TUMBLE, HOP and SESSION by brute force: windows are computed row by row, sessions partition by partition."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from penstock.cql import RowTransform, Stream, WindowedRows
from penstock.errors import UnsupportedError
from penstock.testing.interval_operators import ValidRow, to_identity

_Row = dict[str, Any]


def transform_rows(body: RowTransform, rows: list[ValidRow]) -> list[ValidRow]:
    """The answer of a body over the rows of its source, which are dictionaries with their intervals."""
    match body:
        case WindowedRows(kind="session"):
            return list(_compute_sessions(body, rows))
        case WindowedRows():
            return list(_compute_windows(body, rows))
    raise UnsupportedError("ORACLE_TRANSFORM", f"the oracle does not compute {type(body).__name__}")


def _get_time(body: WindowedRows, row: ValidRow) -> int:
    stream = body.source.relation
    assert isinstance(stream, Stream)
    return int(row.values[0][stream.time])


def _show(body: RowTransform, row: _Row, *added: Any) -> tuple[Any, ...]:
    """The values of the items: the columns of the source, then those that the body adds."""
    own = len(body.items) - len(added)
    return (*(row[item.name] for item in body.items[:own]), *added)


def _compute_windows(body: WindowedRows, rows: list[ValidRow]) -> Iterator[ValidRow]:
    for row in rows:
        time = _get_time(body, row)
        start = time // body.slide * body.slide
        while start + body.size > time:
            end = start + body.size
            yield ValidRow(_show(body, row.values[0], start, end), time, end)
            start -= body.slide


def _compute_sessions(body: WindowedRows, rows: list[ValidRow]) -> Iterator[ValidRow]:
    partitions: dict[Hashable, list[ValidRow]] = {}
    for row in sorted(rows, key=lambda row: _get_time(body, row)):
        key = to_identity(row.values[0][column.name] for column in body.partition)
        partitions.setdefault(key, []).append(row)
    for members in partitions.values():
        session: list[ValidRow] = []
        for row in members:
            if session and _get_time(body, row) - _get_time(body, session[-1]) >= body.size:
                yield from _close_session(body, session)
                session = []
            session.append(row)
        yield from _close_session(body, session)


def _close_session(body: WindowedRows, session: list[ValidRow]) -> Iterator[ValidRow]:
    start, end = _get_time(body, session[0]), _get_time(body, session[-1]) + body.size
    for row in session:
        yield ValidRow(_show(body, row.values[0], start, end), end, end + 1)
