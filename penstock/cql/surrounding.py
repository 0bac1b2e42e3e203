"""The rows of the query around a subquery, as one more FROM item of the subquery.

A NOT EXISTS or NOT IN inside a subquery can name columns of the query two levels above. The rows of that query are
joined to the subquery then, where the conditions that correlate both hold, so that the inner condition compares columns
of one level. The subquery is correlated by the columns of these rows: two rows are the same if these are, NULL or not.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.cql.bound import Source
from penstock.cql.from_binder import FromBlock, collapse
from penstock.cql.null_safe import build_null_safe_equality
from penstock.cql.scope import OUTER, ScopeItem, make_scope_item
from penstock.expr import HIDDEN, Call, Column, Expr, find_columns, rewrite

_ITEM = f"{HIDDEN}surrounding"


def list_outer_columns(exprs: Iterable[Expr], source: Source) -> list[Column]:
    """The columns of the rows around that some expressions of the subquery read."""
    found = (column for expr in exprs for column in find_columns(expr) if column.alias == OUTER + source.alias)
    return list(dict.fromkeys(found))


def join_surrounding_rows(block: FromBlock, source: Source, near: Iterable[Expr], columns: list[Column]) -> FromBlock:
    """The block with the rows of `source` that satisfy the conditions `near` with its own."""
    item = make_scope_item(source)
    shown = {column.name: item.columns[column.name] for column in columns}
    both = block.join(FromBlock((source,), (), (ScopeItem(_ITEM, source.relation.name, shown),), ()))
    conditions = tuple(read_surrounding(both, expr) for expr in near)
    kept = tuple(expr for expr in conditions if not any(each.alias.startswith(OUTER) for each in find_columns(expr)))
    return collapse(FromBlock(both.sources, (*both.conditions, *kept), both.items, both.merged))


def read_surrounding(block: FromBlock, expr: Expr) -> Expr:
    """The expression with the columns of the query around as those of the joined rows."""
    columns = _find_columns(block)

    def move(node: Expr) -> Expr:
        return columns.get(node.name, node) if isinstance(node, Column) and _is_next_level(node) else node

    return rewrite(expr, move)


def link_surrounding_rows(block: FromBlock, columns: Iterable[Column]) -> tuple[Expr, ...]:
    """The conditions by which the joined rows are those of the query around."""
    known, found = _find_columns(block), list[Expr]()
    for column in columns:
        same = build_null_safe_equality(known[column.name], column)
        found += same.args if isinstance(same, Call) and same.op == "and" else (same,)
    return tuple(found)


def _find_columns(block: FromBlock) -> dict[str, Column]:
    return next((dict(item.columns) for item in block.items if item.alias == _ITEM), {})


def _is_next_level(column: Column) -> bool:
    """Whether a column is one of the query around, not of one further above."""
    return column.alias.startswith(OUTER) and not column.alias.removeprefix(OUTER).startswith(OUTER)
