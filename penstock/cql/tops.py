"""DISTINCT ON and ORDER BY ... LIMIT: the first rows by row number, over the SELECT without them."""

from __future__ import annotations

from penstock.cql.bound import Select, SelectItem, Source, Subquery
from penstock.cql.errors import Origin
from penstock.cql.over import TOP_ALIAS, RankCall, SortKey, rank_select
from penstock.cql.syntax import TopSyntax
from penstock.cql.windows import CURRENT
from penstock.expr import Column, Expr


def take_top(
    select: Select,
    top: TopSyntax,
    on: tuple[Expr, ...],
    keys: tuple[SortKey, ...],
    items: tuple[SelectItem, ...],
    origin: Origin,
    *,
    by_output: bool,
) -> Select:
    """The first rows of a SELECT, of each group of DISTINCT ON. `by_output`: the order names output columns only."""
    if on and top.limit is not None:
        advice = "write SELECT * FROM (SELECT DISTINCT ON ...) ORDER BY ... LIMIT n"
        raise origin.unsupported_error("DISTINCT ON with LIMIT", top.span, advice)
    limit = 1 if on else top.offset + (top.limit or 0)
    if not by_output:
        return rank_select(select, (RankCall("row_number", on, keys, top.offset, limit),), ())
    shown = {item.expr: Column(TOP_ALIAS, item.name, item.expr.type) for item in items}
    if any(expr not in shown for expr in (*on, *(key.expr for key in keys))):
        message = "with DISTINCT or a window function, ORDER BY names columns of SELECT"
        raise origin.error("ORDER_BY_NOT_SHOWN", message, top.span)
    outer = Select(
        (Source(TOP_ALIAS, Subquery("rows", select), CURRENT),),
        (),
        tuple(SelectItem(item.name, shown[item.expr]) for item in items),
    )
    moved = tuple(SortKey(shown[key.expr], key.descending, key.nulls_first) for key in keys)
    call = RankCall("row_number", tuple(shown[expr] for expr in on), moved, top.offset, limit)
    return rank_select(outer, (call,), ())
