"""Typed expressions: nodes, the registries of functions and aggregates, vectorised evaluation and SQL text."""

from penstock.expr.evaluate import compute_mask, evaluate
from penstock.expr.nodes import (
    BOOL,
    COMPARISONS,
    DOUBLE,
    INT,
    INTERVAL,
    STRING,
    TIMESTAMP,
    Aggregate,
    Call,
    Column,
    Expr,
    Literal,
    Op,
    children,
    find_aliases,
    find_columns,
    rewrite,
    split_conjuncts,
    walk,
)
from penstock.expr.sql import quote_name, to_sql
from penstock.expr.types import format_spark_type

__all__ = [
    "BOOL",
    "COMPARISONS",
    "DOUBLE",
    "INT",
    "INTERVAL",
    "STRING",
    "TIMESTAMP",
    "Aggregate",
    "Call",
    "Column",
    "Expr",
    "Literal",
    "Op",
    "children",
    "compute_mask",
    "evaluate",
    "find_aliases",
    "find_columns",
    "format_spark_type",
    "quote_name",
    "rewrite",
    "split_conjuncts",
    "to_sql",
    "walk",
]
