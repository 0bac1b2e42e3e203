"""A subquery as the right side of a join: where its columns are, and what of its conditions names the query around."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.cql.bound import QueryBody, Source, Subquery
from penstock.cql.scope import OUTER
from penstock.cql.windows import CURRENT
from penstock.expr import INT, Aggregate, Call, Column, Expr, Literal, find_columns, rewrite, walk


def has_outer(expr: Expr) -> bool:
    """Whether an expression reads a column of the query around it."""
    return any(column.alias.startswith(OUTER) for column in find_columns(expr))


@dataclass(frozen=True)
class SubquerySide:
    """A subquery as the right side of a join: its source, the conditions, and the values of its columns."""

    right: Source
    on: tuple[Expr, ...]
    values: tuple[Expr, ...]


def as_relation(body: QueryBody, alias: str, shown: int | None = None) -> SubquerySide:
    values = tuple(Column(alias, item.name, item.expr.type) for item in body.items[:shown])
    return SubquerySide(Source(alias, Subquery(alias, body), CURRENT), (), values)


def read_side(source: Source, on: Iterable[Expr], values: Iterable[Expr], names: Mapping[Column, str]) -> SubquerySide:
    """Conditions and values over the columns of a source, which has them by these names."""

    def move(node: Expr) -> Expr:
        if not isinstance(node, Column):
            return node
        if node.alias.startswith(OUTER):
            return strip_outer(node)
        return Column(source.alias, names[node], node.type)

    return SubquerySide(
        source, tuple(rewrite(term, move) for term in on), tuple(rewrite(value, move) for value in values)
    )


def strip_outer(expr: Expr) -> Expr:
    """The expression over the columns of the query around."""

    def strip(node: Expr) -> Expr:
        if isinstance(node, Column) and node.alias.startswith(OUTER):
            return Column(node.alias.removeprefix(OUTER), node.name, node.type)
        return node

    return rewrite(expr, strip)


def match_correlation(term: Expr) -> tuple[Expr, Expr] | None:
    """The inner and the outer side of an equality between both queries; None for another condition."""
    if not isinstance(term, Call) or term.op != "=":
        return None
    for inner, outer in (term.args, term.args[::-1]):
        columns = find_columns(outer)
        if not has_outer(inner) and columns and all(column.alias.startswith(OUTER) for column in columns):
            return inner, outer
    return None


def compute_default(value: Expr) -> Expr | None:
    """The value of an aggregate expression over no row; None for NULL."""
    if not any(isinstance(node, Aggregate) and node.function == "count" for node in walk(value)) and isinstance(
        value, Aggregate
    ):
        return None

    def replace_aggregate(node: Expr) -> Expr:
        if not isinstance(node, Aggregate):
            return node
        return Literal(0, INT) if node.function == "count" else Literal(None, node.type)

    return rewrite(value, replace_aggregate)
