"""Rough figures for warnings: rates of streams, rows of windows and bytes of rows. Pure functions.

A stream without a declared rate is assumed to have `ASSUMED_RATE` rows per second. The answer of a query in FROM is
assumed to change with every row of its streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

import pyarrow as pa

from penstock.cql import OuterJoin, QueryBody, RowTransform, Select, SetOperation, Source, Subquery, Table, find_rate
from penstock.expr import Expr, find_columns

ASSUMED_RATE = 1000.0
HOUR = 3600
_MICROSECONDS = 1e6
_ROW_BYTES = 48
"""Times, key codes and index entries of a row in a window, besides its columns."""
_TEXT_BYTES = 24
_GROUPS = 100
"""The assumed number of groups of GROUP BY, and of partitions of a window with PARTITION BY."""


@dataclass(frozen=True)
class WarningContext:
    """What is known besides the query: the rows of tables, by name."""

    table_rows: Mapping[str, int] = field(default_factory=dict)


def get_rate(source: Source) -> float:
    """Rows per second: as declared, else assumed; of a query in FROM, those of its streams."""
    if isinstance(source.relation, Subquery):
        return sum(get_rate(base) for base in source.base_sources if not base.is_table)
    declared = find_rate(source.relation.connector)
    return ASSUMED_RATE if declared is None else declared


def estimate_results(sources: tuple[Source, ...], context: WarningContext) -> float:
    """Results per second without any condition: each arriving row pairs with all rows of the other windows."""
    rows = [estimate_rows(source, context) for source in sources]
    return sum(
        get_rate(source) * prod(rows[:place] + rows[place + 1 :])
        for place, source in enumerate(sources)
        if not source.is_table
    )


def estimate_rows(source: Source, context: WarningContext) -> float:
    """Rows in a window; of one that never ends, its average over the first hour."""
    window, relation = source.window, source.relation
    if isinstance(relation, Subquery):
        return _estimate_answer(relation.body, context)
    if isinstance(relation, Table):
        return float(context.table_rows.get(relation.name) or 1)
    if window.row_count is not None:
        return float(window.row_count * (_GROUPS if window.partition else 1))
    if window.lifetime is None:
        return get_rate(source) * HOUR / 2
    if pa.types.is_timestamp(relation.time_type):
        return get_rate(source) * window.lifetime / _MICROSECONDS
    return float(window.lifetime)


def _estimate_answer(body: QueryBody, context: WarningContext) -> float:
    """Rows in the answer of a query in FROM; conditions are assumed to leave as many as the largest input has."""
    match body:
        case SetOperation(kind="union all" | "union"):
            return _estimate_answer(body.left, context) + _estimate_answer(body.right, context)
        case SetOperation():
            return _estimate_answer(body.left, context)
        case OuterJoin(kind="semi" | "anti" | "mark"):
            return estimate_rows(body.left, context)
        case OuterJoin():
            return max(estimate_rows(body.left, context), estimate_rows(body.right, context))
        case RowTransform():
            return estimate_rows(body.source, context)
        case Select():
            if body.group_by is not None:
                return float(_GROUPS if body.group_by else 1)
            return max(estimate_rows(source, context) for source in body.sources)


def has_one_row(source: Source) -> bool:
    """Whether a FROM item is an aggregate without GROUP BY: a value rather than a relation."""
    body = source.relation.body if isinstance(source.relation, Subquery) else None
    return isinstance(body, Select) and body.group_by == ()


def estimate_row_bytes(source: Source, shown: Iterable[Expr]) -> int:
    """The bytes of a row in a window: its entry, and the columns that expressions of the query read."""
    columns = {column for expr in shown for column in find_columns(expr) if column.alias == source.alias}
    return _ROW_BYTES + sum(_estimate_value_bytes(column.type) for column in columns)


def _estimate_value_bytes(kind: pa.DataType) -> int:
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:  # text
        return _TEXT_BYTES
