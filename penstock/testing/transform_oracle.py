"""TUMBLE, HOP, SESSION and ranks by brute force: windows row by row, sessions and ranks partition by partition."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from penstock.cql import FramedRows, RankedRows, RowTransform, Stream, WindowedRows
from penstock.errors import UnsupportedError
from penstock.testing.frame_oracle import compute_frames
from penstock.testing.interval_operators import ValidRow, evaluate_over_time
from penstock.testing.row_evaluator import to_comparison_key, to_identity

_Row = dict[str, Any]


def transform_rows(body: RowTransform, rows: list[ValidRow], classes: Mapping[str, type]) -> list[ValidRow]:
    """The answer of a body over the rows of its source, which are dictionaries with their intervals."""
    match body:
        case FramedRows():
            return list(compute_frames(body, rows, classes))
        case WindowedRows(kind="session"):
            return list(_compute_sessions(body, rows))
        case WindowedRows():
            return list(_compute_windows(body, rows))
        case RankedRows():
            return evaluate_over_time(rows, lambda valid: _rank_rows(body, [row.values[0] for row in valid]))
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


def _rank_rows(body: RankedRows, rows: list[_Row]) -> dict[Hashable, tuple[Any, ...]]:
    """The ranked rows of one instant; a row is named by its values, its rank and how many equal rows are before it."""
    partitions: dict[Hashable, list[_Row]] = {}
    for row in rows:
        partitions.setdefault(to_identity(row[column.name] for column in body.partition), []).append(row)
    found: dict[Hashable, tuple[Any, ...]] = {}
    for members in partitions.values():
        ordered = sorted(members, key=lambda row: _list_sort_keys(body, row))
        tops = [_list_sort_keys(body, row)[: len(body.order)] for row in ordered]
        for place, row in enumerate(ordered):
            rank = {"row_number": place + 1, "rank": tops.index(tops[place]) + 1}.get(body.function)
            if rank is None:
                rank = len({repr(top) for top in tops[: place + 1]})
            if rank <= body.offset or (body.limit is not None and rank > body.limit):
                continue
            values = _show(body, row) if body.rank is None else _show(body, row, rank)
            copy = 0
            while (to_identity(values), copy) in found:
                copy += 1
            found[to_identity(values), copy] = values
    return found


def _list_sort_keys(body: RankedRows, row: _Row) -> list[_SortValue]:
    """The values that order a row: the terms, then all columns."""
    keys = [_SortValue(row[term.column.name], term.descending, term.nulls_first) for term in body.order]
    return keys + [_SortValue(row[name], False, True) for name in body.source.relation.schema.names]


@functools.total_ordering
class _SortValue:
    """A value in the order of a sort term."""

    def __init__(self, value: Any, descending: bool, nulls_first: bool) -> None:
        self.value = None if value is None else to_comparison_key(value)
        self.descending, self.nulls_first = descending, nulls_first

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SortValue) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return repr(self.value)

    def __lt__(self, other: _SortValue) -> bool:
        if self.value is None or other.value is None:
            return self.value != other.value and (self.value is None) == self.nulls_first
        return bool(other.value < self.value if self.descending else self.value < other.value)
