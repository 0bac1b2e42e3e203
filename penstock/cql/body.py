"""Binds a query: SELECT, the queries of WITH, UNION ALL and EXCEPT."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.cql.bound import QueryBody, SelectItem, SetOperation, Subquery
from penstock.cql.from_binder import check_column_names
from penstock.cql.select import SelectBinder
from penstock.cql.sources import Names, check_time_types
from penstock.cql.syntax import BodySyntax, SelectSyntax, WithSyntax
from penstock.cql.types import format_type
from penstock.cql.window_functions import rewrite_spark_windows
from penstock.expr import Call, find_common_type


def bind_body(syntax: BodySyntax, names: Names) -> QueryBody:
    """Bind a SELECT, or a UNION ALL or EXCEPT of two bodies."""
    if isinstance(syntax, WithSyntax):
        return bind_body(syntax.body, _declare_queries(syntax, names))
    if isinstance(syntax, SelectSyntax):
        return SelectBinder(rewrite_spark_windows(syntax, names.origin), names, bind_body).bind()
    origin, names = names.origin, replace(names, outer=None)
    left, right = bind_body(syntax.left, names), bind_body(syntax.right, names)
    if len(left.items) != len(right.items):
        message = (
            f"{syntax.kind.upper()} needs equally many columns on both sides: {len(left.items)} and {len(right.items)}"
        )
        raise origin.error("COLUMN_COUNT", message, syntax.span)
    types: list[pa.DataType] = []
    for one, two in zip(left.items, right.items, strict=True):
        met = find_common_type(one.expr.type, two.expr.type)
        if met is None:
            sides = f"{one.name} ({format_type(one.expr.type)}) and {two.name} ({format_type(two.expr.type)})"
            raise origin.error("TYPE_MISMATCH", f"{syntax.kind.upper()} cannot pair {sides}", syntax.span)
        types.append(met)
    check_time_types([(left, syntax.span), (right, syntax.span)], origin)
    return SetOperation(syntax.kind, _cast_items(left, types), _cast_items(right, types))


def _declare_queries(syntax: WithSyntax, names: Names) -> Names:
    """The names with the queries of WITH; each can name those before it, and hides a declaration of its name."""
    known = replace(names, queries=names.queries.copy())
    written: set[str] = set()
    for name, columns, written_body in syntax.queries:
        if name.text.casefold() in written:
            raise names.origin.error("DUPLICATE_NAME", f"WITH has two queries {name.text}", name.span, name=name.text)
        written.add(name.text.casefold())
        body = bind_body(written_body, replace(known, outer=None))
        if columns:
            shown = check_column_names(columns, [item.name for item in body.items], name.text, names.origin)
            body = _name_items(body, shown)
        known.queries.add(Subquery(name.text, body))
    return known


def _name_items(body: QueryBody, names: list[str]) -> QueryBody:
    """The body with other names for its columns."""
    if isinstance(body, SetOperation):
        return replace(body, left=_name_items(body.left, names))
    items = (SelectItem(name, item.expr) for name, item in zip(names, body.items, strict=True))
    return replace(body, items=tuple(items))


def _cast_items(body: QueryBody, types: list[pa.DataType]) -> QueryBody:
    """The body with its columns cast to given types."""
    if isinstance(body, SetOperation):
        return replace(body, left=_cast_items(body.left, types), right=_cast_items(body.right, types))
    items = [
        item if item.expr.type == goal else SelectItem(item.name, Call("cast", (item.expr,), goal))
        for item, goal in zip(body.items, types, strict=True)
    ]
    return replace(body, items=tuple(items))
