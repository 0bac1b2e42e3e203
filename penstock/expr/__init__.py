"""Typed expressions: nodes, the registries of functions and aggregates, vectorised evaluation and SQL text."""

from penstock.expr.aggregates import AGGREGATE_SYNONYMS, AGGREGATES, BOOLEAN_AGGREGATES, AggregateFunction
from penstock.expr.cast import try_cast
from penstock.expr.evaluate import compute_mask, evaluate
from penstock.expr.function import Function
from penstock.expr.functions import FUNCTION_KINDS, FUNCTIONS, NAMED_FUNCTIONS
from penstock.expr.nodes import (
    BOOL,
    COMPARISONS,
    DOUBLE,
    HIDDEN,
    INT,
    INTERVAL,
    ROW_NUMBER,
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
from penstock.expr.type_rules import Mismatch, Signature, unify
from penstock.expr.types import MAX_PRECISION, NULL, classify_type, find_common_type, format_spark_type, is_instant

__all__ = [
    "AGGREGATES",
    "AGGREGATE_SYNONYMS",
    "BOOL",
    "BOOLEAN_AGGREGATES",
    "COMPARISONS",
    "DOUBLE",
    "FUNCTIONS",
    "FUNCTION_KINDS",
    "HIDDEN",
    "INT",
    "INTERVAL",
    "MAX_PRECISION",
    "NAMED_FUNCTIONS",
    "NULL",
    "ROW_NUMBER",
    "STRING",
    "TIMESTAMP",
    "Aggregate",
    "AggregateFunction",
    "Call",
    "Column",
    "Expr",
    "Function",
    "Literal",
    "Mismatch",
    "Op",
    "Signature",
    "children",
    "classify_type",
    "compute_mask",
    "evaluate",
    "find_aliases",
    "find_columns",
    "find_common_type",
    "format_spark_type",
    "is_instant",
    "quote_name",
    "rewrite",
    "split_conjuncts",
    "to_sql",
    "try_cast",
    "unify",
    "walk",
]
