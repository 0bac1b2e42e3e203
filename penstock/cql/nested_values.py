"""Arrays, maps and structs in queries: their parts are read anywhere, and whole values only pass through.

They have no order and are no keys, so that equality, GROUP BY, DISTINCT, UNION, PARTITION BY, ORDER BY and aggregates
besides COUNT are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.cql import advice
from penstock.cql.bound import (
    FramedRows,
    OuterJoin,
    QueryBody,
    RankedRows,
    Select,
    SetOperation,
    Subquery,
    WindowedRows,
)
from penstock.cql.errors import Origin, Span
from penstock.expr import Aggregate, Call, Column, Expr, classify_type, is_nested, walk

_PASSING = frozenset({"case", "coalesce", "if", "nvl2", "is_null", "cast", "field", "subscript"}) | {
    "element_at", "cardinality", "array_contains", "map_keys", "map_values", "array", "named_struct"
}  # fmt: skip
"""The functions that take whole values."""


def check_nested_values(body: QueryBody, span: Span, origin: Origin) -> None:
    """Raise an error if a query compares or orders arrays, maps or structs."""
    for construct, exprs in _list_uses(body):
        for expr in exprs:
            if is_nested(expr.type):
                kind = classify_type(expr.type)
                what = f"{construct} of {'an' if kind == 'array' else 'a'} {kind}"
                raise origin.unsupported_error(what, span, advice.NESTED)


def _list_uses(body: QueryBody) -> Iterator[tuple[str, Iterable[Expr]]]:
    """The expressions of a query and of its subqueries that are compared, with the construct that does it."""
    items = [item.expr for item in body.items]
    match body:
        case SetOperation():
            if body.kind != "union all":
                yield body.kind.upper(), items
            yield from _list_uses(body.left)
            yield from _list_uses(body.right)
            return
        case Select():
            if body.distinct:
                yield "DISTINCT", items
            yield "GROUP BY", body.group_by or ()
            exprs = [*items, *body.where, *([] if body.having is None else [body.having])]
            sources = body.sources
        case OuterJoin():
            exprs, sources = [*items, *body.on], (body.left, body.right)
        case RankedRows():  # all columns order rows that are equal in ORDER BY
            yield "ORDER BY", items
            exprs, sources = [], body.sources
        case FramedRows():
            for window in body.windows:
                yield "PARTITION BY", window.partition
            if not body.by_arrival:  # all columns order the rows of one time
                yield "OVER of rows without an order of arrival", items
            exprs = [function.value for window in body.windows for function in window.functions]
            sources = body.sources
        case WindowedRows():
            yield "PARTITION BY", body.partition
            exprs, sources = [], body.sources
        case _:
            exprs, sources = [], ()
    for node in (node for expr in exprs for node in walk(expr)):
        if isinstance(node, Aggregate) and (node.function != "count" or node.distinct):
            yield f"{'DISTINCT ' if node.distinct else ''}{node.function.upper()}", node.args
        if isinstance(node, Call) and node.user is None and node.op not in _PASSING:
            yield node.op.upper(), node.args
    for source in sources:
        if isinstance(source.relation, Subquery):
            yield from _list_uses(source.relation.body)
        elif source.window.partition:
            schema = source.relation.schema
            names = source.window.partition
            yield "PARTITION BY", [Column(source.alias, name, schema.field(name).type) for name in names]
