"""Queries with functions over frames on cells: the key that divides them, and the base rows that a cell keeps.

Law: the result of a row depends on rows of its own partitions. If all windows of a query have a key in common that is a
term of its stream, rows that agree in it are in one cell. A rebuilt cell reads its base rows again, so it keeps those
that a later frame can reach: frames over frames add up. A session keeps all rows, because its start is not known.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.cql import (
    UNBOUNDED,
    FramedRows,
    OuterJoin,
    Query,
    QueryBody,
    Range,
    RowTransform,
    Select,
    SetOperation,
    Source,
    Stream,
    Subquery,
    View,
    Window,
    WindowedRows,
)
from penstock.expr import Column, Expr, find_aliases


def list_frames(body: QueryBody) -> list[FramedRows]:
    """The frames of a query that only filters and projects their rows, outer ones first; none if it does more."""
    frames: list[FramedRows] = []
    while (below := _find_below(body)) is not None:
        if isinstance(body, FramedRows):
            frames.append(body)
        body = below
    plain = isinstance(body, Select) and _is_plain(body) and sum(not source.is_table for source in body.sources) == 1
    return frames if plain else []


def find_frame_key(body: QueryBody) -> tuple[Source, Expr] | None:
    """The stream of a query with frames, and a term of it that is in the PARTITION BY of all windows."""
    found: tuple[Source, Expr] | None = None
    frames = list_frames(body)
    if not frames:
        return None
    terms = [
        [_resolve(frame.source, column) for column in window.partition] for frame in frames for window in frame.windows
    ]
    for term in terms[0]:
        if term is not None and all(term in others for others in terms):
            found = term
            break
    return found


def _resolve(source: Source, column: Column) -> tuple[Source, Expr] | None:
    """A column of the rows below a frame as a term of the stream at the bottom; None if it is computed on the way."""
    relation = source.relation
    if not isinstance(relation, Subquery):
        return None
    body = relation.body
    expr = next(item.expr for item in body.items if item.name == column.name)
    below = {each.alias: each for each in (body.sources if not isinstance(body, (SetOperation, OuterJoin)) else ())}
    aliases = find_aliases(expr)
    owner = below.get(next(iter(aliases))) if len(aliases) == 1 else None
    if owner is None:
        return None
    if isinstance(owner.relation, Stream):
        return owner, expr
    return _resolve(owner, expr) if isinstance(expr, Column) else None


def _find_below(body: QueryBody) -> QueryBody | None:
    """The body of the one subquery that a plain SELECT or a frame reads; None if there is none."""
    if isinstance(body, Select) and (not _is_plain(body) or len(body.sources) != 1):
        return None
    if not isinstance(body, (Select, FramedRows)):
        return None
    relation = body.sources[0].relation
    return relation.body if isinstance(relation, Subquery) and not isinstance(relation, View) else None


def _is_plain(select: Select) -> bool:
    return not select.distinct and select.group_by is None and select.sequence is None


def find_kept_windows(query: Query) -> dict[int, Window]:
    """For streams below frames and sessions, by the identity of the FROM item, a window of the rows that are kept."""
    plain = bool(list_frames(query.body)) and query.emit != "rstream"  # which reports all rows again
    return dict(_list_kept(query.body, 0 if plain else None, framed=False))


def _list_kept(body: QueryBody, need: int | None, *, framed: bool) -> Iterator[tuple[int, Window]]:
    """`need`: how far back the bodies above read, None for all rows; `framed`: whether one of them is a frame."""
    match body:
        case SetOperation():
            yield from _list_kept(body.left, None, framed=framed)
            yield from _list_kept(body.right, None, framed=framed)
            return
        case OuterJoin():
            sources: tuple[Source, ...] = (body.left, body.right)
        case FramedRows():
            sources, framed = body.sources, True
            for window in body.windows:
                if window.frame.unit == "rows" or window.frame.start is None:
                    need = None
            spans = [max(window.frame.start or 0, 0) for window in body.windows]
            need = None if need is None else need + max(spans) + body.ahead
        case WindowedRows(kind="session"):
            sources, framed, need = body.sources, True, None
        case Select() | RowTransform():
            sources = body.sources
    for source in sources:
        if isinstance(source.relation, Subquery) and not isinstance(source.relation, View):
            yield from _list_kept(source.relation.body, need, framed=framed)
        elif isinstance(source.relation, Stream) and framed:
            yield id(source), UNBOUNDED if need is None else Range(need + 1)
