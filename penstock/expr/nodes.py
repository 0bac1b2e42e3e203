"""Typed scalar expressions as frozen values.

The binder makes expressions from SQL text: every column is resolved to (alias, name), every node has an Arrow type, and
implicit casts are explicit. Expressions compare and hash by structure, so that the planner can use them as keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

BOOL = pa.bool_()
INT = pa.int64()
DOUBLE = pa.float64()
STRING = pa.string()
TIMESTAMP = pa.timestamp("us")
INTERVAL = pa.duration("us")

HIDDEN = "\ue000"
"""The first character of columns that the planner adds: a code point for private use, which names do not have."""
ROW_NUMBER = f"{HIDDEN}row"
"""The name of the column with the number of a stream's or table's row: it tells equal rows apart."""

Op = str
"""The name of an entry in `functions.FUNCTIONS`, or of a user-defined function."""

COMPARISONS: tuple[Op, ...] = ("=", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one FROM item; alias and name are spelled as declared."""

    alias: str
    name: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; `value` is a plain Python value (None for NULL), as `pa.scalar(value, type)` takes it."""

    value: object
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A user-defined scalar function: called with Arrow arrays, returns one of the same length."""

    name: str
    function: Callable[..., Any]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function over typed arguments."""

    op: Op
    args: tuple[Expr, ...]
    type: pa.DataType
    user: UserFunction | None = None
    """The function, if it is user-defined; `op` is its name then."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A built-in or user-defined aggregate. `args` is empty for COUNT(*)."""

    function: str
    args: tuple[Expr, ...]
    distinct: bool
    type: pa.DataType
    parameters: tuple[Any, ...] = ()
    """The fraction of a percentile; the separator of a list; then how its values, or each of its terms, are sorted."""


Expr = Column | Literal | Call | Aggregate


def children(expr: Expr) -> tuple[Expr, ...]:
    return expr.args if isinstance(expr, (Call, Aggregate)) else ()


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and everything below it, parents first."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def find_columns(expr: Expr) -> tuple[Column, ...]:
    """The distinct columns an expression reads, in order of appearance."""
    return tuple(dict.fromkeys(node for node in walk(expr) if isinstance(node, Column)))


def calls_user_function(expr: Expr) -> bool:
    """Whether an expression calls a user-defined function."""
    return any(isinstance(node, Call) and node.user is not None for node in walk(expr))


def find_aliases(expr: Expr) -> frozenset[str]:
    """The FROM items an expression reads."""
    return frozenset(column.alias for column in find_columns(expr))


def split_conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """The top-level AND terms."""
    if isinstance(expr, Call) and expr.op == "and":
        return tuple(term for arg in expr.args for term in split_conjuncts(arg))
    return (expr,)


def rewrite(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with `change` applied to every node, children first."""
    if isinstance(expr, (Call, Aggregate)):
        expr = replace(expr, args=tuple(rewrite(arg, change) for arg in expr.args))
    return change(expr)
