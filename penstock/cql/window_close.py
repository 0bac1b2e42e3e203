"""EMIT ON WINDOW CLOSE: each row once, when it can no longer be retracted except by the end of its own window.

Law: a row of streams, also of an inner join or a DISTINCT, is final when it enters the answer, so that it is emitted
then, as ISTREAM does. The row of a group that has `window_end` of TUMBLE or HOP among its keys is final at that
instant: it is the row that the group has until then. So is a row whose rank is among the rows of one such window. The
rows of SESSION enter when their session has ended.

Outer joins, IN and EXISTS: two rows are partners if their windows have a common instant. A pair is emitted when it
enters, a row without a partner when it expires, a row of a semi join when its first partner comes. What has no partner
in one outer join can be a row of the next one, but not its optional side: which partners a row has would be known only
when these are final.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.cql import advice
from penstock.cql.bound import (
    WINDOW_END,
    Emit,
    OuterJoin,
    QueryBody,
    RankedRows,
    Select,
    SelectItem,
    SetOperation,
    Source,
    Subquery,
    View,
    WindowedRows,
)
from penstock.cql.errors import Origin, Span
from penstock.expr import HIDDEN, Column

CLOSE = f"{HIDDEN}close"
"""The column with the end of the window of a row: the last item of a query with `emit` "close"."""


def bind_window_close(body: QueryBody, span: Span, origin: Origin) -> tuple[Emit, QueryBody]:
    """How the final rows of a body are emitted, and the body for it."""
    if _is_final_at_birth(body):
        return "istream", body
    if (final := _mark_final(body, span, origin)) is not None:
        return "istream", final
    if isinstance(body, Select) and not body.distinct and body.sequence is None:
        found = _find_group_window(body) if body.group_by is not None else _find_rank_window(body)
        if found is not None:
            end, window = found
            if window.kind == "session":
                return "istream", body
            return "close", replace(body, items=(*body.items, SelectItem(CLOSE, end)))
    raise origin.unsupported_error("EMIT ON WINDOW CLOSE", span, advice.EMIT_ON_CLOSE)


def _is_plain(source: Source) -> bool:
    """Whether the rows of a FROM item end by their window alone: a stream, a table or windowed rows of a stream."""
    return not isinstance(source.relation, Subquery) or isinstance(source.relation.body, WindowedRows)


def _is_final_at_birth(body: QueryBody) -> bool:
    if isinstance(body, SetOperation):
        return body.kind == "union all" and _is_final_at_birth(body.left) and _is_final_at_birth(body.right)
    if not isinstance(body, Select) or body.group_by is not None:
        return False
    return all(_is_plain(source) for source in body.sources)


def _mark_final(body: QueryBody, span: Span, origin: Origin) -> QueryBody | None:
    """The body with outer joins whose rows are written when they are final; None if its rows are not of joins."""
    if isinstance(body, SetOperation):
        left, right = (_mark_final(side, span, origin) for side in (body.left, body.right))
        marked = body.kind == "union all" and left is not None and right is not None
        return SetOperation(body.kind, left, right) if marked and left is not None and right is not None else None
    if not isinstance(body, Select) or body.group_by is not None or body.distinct or body.sequence is not None:
        return body if _is_final_at_birth(body) else None
    sources = [_mark_source(source, span, origin) for source in body.sources]
    found = tuple(source for source in sources if source is not None)
    return replace(body, sources=found) if len(found) == len(sources) else None


def _mark_source(source: Source, span: Span, origin: Origin) -> Source | None:
    query = source.relation
    if not isinstance(query, Subquery):
        return source
    if isinstance(query, View):
        return None
    if isinstance(query.body, WindowedRows):
        return source if query.body.kind != "session" else None
    if not isinstance(query.body, OuterJoin):
        marked = _mark_final(query.body, span, origin) if isinstance(query.body, Select) else None
        return None if marked is None else replace(source, relation=replace(query, body=marked))
    body = query.body
    if body.kind == "mark":
        return None
    left, right = (_mark_source(side, span, origin) for side in (body.left, body.right))
    if left is None or right is None:
        return None
    optional = (left, right) if body.kind == "full" else (right,)
    if any(map(_has_final, optional)):
        raise origin.unsupported_error("EMIT ON WINDOW CLOSE of nested outer joins", span, advice.NESTED_ON_CLOSE)
    return replace(source, relation=replace(query, body=replace(body, left=left, right=right, final=True)))


def _has_final(source: Source) -> bool:
    """Whether rows of a FROM item become final after they enter."""
    if not isinstance(source.relation, Subquery):
        return False
    body = source.relation.body
    return isinstance(body, OuterJoin) or (isinstance(body, Select) and any(map(_has_final, body.sources)))


def _find_group_window(body: Select) -> tuple[Column, WindowedRows] | None:
    """The key of the groups that is the end of a window, if there is one; and the window."""
    keys = [key for key in body.group_by or () if isinstance(key, Column)]
    windows = [(key, window) for key in keys if (window := _find_window(body.sources, key)) is not None]
    return windows[0] if len(windows) == 1 and all(map(_is_joined, body.sources)) else None


def _find_rank_window(body: Select) -> tuple[Column, WindowedRows] | None:
    """The end of the window in which rows are ranked, if it is one; and the window."""
    source, query = body.sources[0], body.sources[0].relation
    if len(body.sources) > 1 or not isinstance(query, Subquery) or isinstance(query, View):
        return None
    if isinstance(query.body, Select):  # SELECT ... FROM (SELECT ..., ROW_NUMBER() OVER ... AS r FROM ...) WHERE r <= n
        found = _find_rank_window(query.body) if _is_ungrouped(query.body) else None
        shown = () if found is None else (item.name for item in query.body.items if item.expr == found[0])
        return next(((Column(source.alias, name, found[0].type), found[1]) for name in shown if found), None)
    ranked = query.body
    if isinstance(ranked, RankedRows):
        for key in ranked.partition:
            window = _find_window((ranked.source,), key)
            if window is not None and window.kind != "session":
                return Column(source.alias, key.name, key.type), window
    return None


def _is_joined(source: Source) -> bool:
    """Whether a FROM item is a stream, a table, windowed rows, or a join of any kind of such items."""
    if _is_plain(source):
        return True
    query = source.relation
    body = query.body if isinstance(query, Subquery) and not isinstance(query, View) else None
    if isinstance(body, OuterJoin):
        return _is_joined(body.left) and _is_joined(body.right)
    return isinstance(body, Select) and _is_ungrouped(body) and all(map(_is_joined, body.sources))


def _is_ungrouped(body: Select) -> bool:
    return body.group_by is None and not body.distinct and body.sequence is None


def _find_window(sources: tuple[Source, ...], column: Column) -> WindowedRows | None:
    """The window whose end a column is, in rows that end no later."""
    source = next((source for source in sources if source.alias == column.alias), None)
    query = None if source is None else source.relation
    if not isinstance(query, Subquery) or isinstance(query, View):
        return None
    body = query.body
    if isinstance(body, WindowedRows):
        return body if column.name == WINDOW_END else None
    shown = next((item.expr for item in body.items if item.name == column.name), None)
    if not isinstance(shown, Column):
        return None
    match body:
        case OuterJoin(kind="full"):
            return None
        case OuterJoin():
            return _find_window((body.left,), shown)
        case Select(group_by=None, distinct=False, sequence=None):
            known = len(body.sources) == 1 or all(map(_is_joined, body.sources))
            return _find_window(body.sources, shown) if known else None
        case Select(distinct=False, sequence=None):
            found = _find_group_window(body)
            return found[1] if found is not None and found[0] == shown and found[1].kind != "session" else None
    return None
