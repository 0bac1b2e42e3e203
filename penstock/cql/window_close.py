"""EMIT ON WINDOW CLOSE: each row once, when it can no longer be retracted except by the end of its own window.

Law: a row of streams, also of an inner join, is final when it enters the answer, so that it is emitted then, as ISTREAM
does. The row of a group that has `window_end` of TUMBLE or HOP among its keys is final at that instant: it is the row
that the group has until then. The rows of SESSION enter when their session has ended.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.cql import advice
from penstock.cql.bound import (
    WINDOW_END,
    Emit,
    QueryBody,
    Select,
    SelectItem,
    SetOperation,
    Source,
    Subquery,
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
    if isinstance(body, Select) and body.group_by is not None and not body.distinct and body.sequence is None:
        ends = [key for key in body.group_by if isinstance(key, Column) and _find_window(body, key) is not None]
        if len(ends) == 1 and all(map(_is_plain, body.sources)):
            window = _find_window(body, ends[0])
            if window is not None and window.kind == "session":
                return "istream", body
            return "close", replace(body, items=(*body.items, SelectItem(CLOSE, ends[0])))
    raise origin.unsupported_error("EMIT ON WINDOW CLOSE", span, advice.EMIT_ON_CLOSE)


def _is_plain(source: Source) -> bool:
    """Whether the rows of a FROM item end by their window alone: a stream, a table or windowed rows of a stream."""
    return not isinstance(source.relation, Subquery) or isinstance(source.relation.body, WindowedRows)


def _is_final_at_birth(body: QueryBody) -> bool:
    if isinstance(body, SetOperation):
        return body.kind == "union all" and _is_final_at_birth(body.left) and _is_final_at_birth(body.right)
    if not isinstance(body, Select) or body.group_by is not None or body.distinct:
        return False
    return all(_is_plain(source) for source in body.sources)


def _find_window(body: Select, key: Column) -> WindowedRows | None:
    """The window whose end a key is."""
    source = next((source for source in body.sources if source.alias == key.alias), None)
    query = None if source is None else source.relation
    if key.name != WINDOW_END or not isinstance(query, Subquery) or not isinstance(query.body, WindowedRows):
        return None
    return query.body
