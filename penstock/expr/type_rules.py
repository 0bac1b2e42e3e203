"""Type rules: the types in which a function takes its arguments, and the type of its result.

A rule takes the name of the function and its arguments as written. The binder casts the arguments to the types of the
signature. A rule sees expressions and not only types, because a constant fits more types than a column does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import InternalError
from penstock.expr.nodes import BOOL, DOUBLE, INT, INTERVAL, STRING, TIMESTAMP, Expr, Literal
from penstock.expr.types import (
    NULL,
    as_decimal,
    classify_type,
    find_arithmetic_type,
    find_average_type,
    find_common_type,
    find_sum_type,
    is_instant,
    is_nested,
    is_numeric,
)


@dataclass(frozen=True)
class Signature:
    """The types of the arguments, in their order, and of the result."""

    arguments: tuple[pa.DataType, ...]
    result: pa.DataType


@dataclass(frozen=True)
class Mismatch:
    """The positions of the arguments whose types do not fit."""

    positions: tuple[int, ...]


TypeRule = Callable[[str, Sequence[Expr]], Signature | Mismatch]


def refuse_call(name: str, _args: Sequence[Expr]) -> Signature | Mismatch:
    """The rule of a construct that the binder types part by part."""
    raise InternalError("NO_TYPE_RULE", f"{name} has no type rule", function=name)


def unify(args: Sequence[Expr]) -> pa.DataType | Mismatch:
    """The type that all arguments have in common; a string if all of them are NULL."""
    goal = _narrow_type(args[0], args[1].type) if len(args) > 1 else args[0].type
    for position, arg in enumerate(args[1:], 1):
        common = _find_common_type(goal, arg, args[0])
        if common is None:
            return Mismatch((0, position))
        goal = common
    return STRING if goal == NULL else goal


def type_comparison(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """A predicate over arguments of one type, which has an order."""
    goal = _unify_comparable(args)
    return goal if isinstance(goal, Mismatch) else Signature((goal,) * len(args), BOOL)


def type_compared(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """A function that compares its arguments, and whose result has the type that they have in common."""
    goal = _unify_comparable(args)
    return goal if isinstance(goal, Mismatch) else Signature((goal,) * len(args), goal)


def _unify_comparable(args: Sequence[Expr]) -> pa.DataType | Mismatch:
    wrong = tuple(place for place, arg in enumerate(args) if is_nested(arg.type))
    return Mismatch(wrong) if wrong else unify(args)


def type_unified(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """A function whose result has the type that its arguments have in common."""
    goal = unify(args)
    return goal if isinstance(goal, Mismatch) else Signature((goal,) * len(args), goal)


def type_signed(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """A function of one number or interval, computed in the widest type of its family."""
    (arg,) = args
    if arg.type == NULL:
        return Signature((INT,), INT)
    if not is_numeric(arg.type) and classify_type(arg.type) != "interval":
        return Mismatch((0,))
    goal = _widen_number(arg.type)
    return Signature((goal,), goal)


def type_strings(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """A predicate over strings."""
    if any(arg.type != STRING for arg in args):
        return Mismatch(tuple(range(len(args))))
    return Signature((STRING,) * len(args), BOOL)


def type_arithmetic(name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """An operator over two numbers, or over instants and intervals."""
    left, right = args
    timed = _type_instants(name, left.type, right.type)
    if timed is not None:
        return timed
    left_type, right_type = _narrow_type(left, right.type), _narrow_type(right, left.type)
    goal = find_arithmetic_type(name, left_type, right_type)
    if goal is None:
        return Mismatch((0, 1))
    if classify_type(goal) == "decimal":
        return Signature((as_decimal(left_type), as_decimal(right_type)), goal)
    return Signature((goal, goal), goal)


def _type_instants(name: str, left: pa.DataType, right: pa.DataType) -> Signature | None:
    """Instants and intervals; a date counts as its midnight. None if they have no sum or difference."""
    left, right = (TIMESTAMP if classify_type(type_) == "date" else type_ for type_ in (left, right))
    match classify_type(left), name, classify_type(right):
        case ("timestamp", "-", "timestamp"):
            goal = find_common_type(left, right)
            return Signature((goal, goal), INTERVAL)
        case ("timestamp", "+" | "-", "interval") | ("interval", "+" | "-", "interval"):
            return Signature((left, right), left)
    return None


def type_count(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    return Signature(tuple(arg.type for arg in args), INT)


def type_extreme(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """MIN and MAX: the type of the argument."""
    (arg,) = args
    return Signature((arg.type,), arg.type)


def type_sum(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """The widest type of the argument's family; a decimal with ten digits more."""
    (arg,) = args
    if not is_numeric(arg.type):
        return Mismatch((0,))
    goal = _widen_number(arg.type)
    return Signature((goal,), find_sum_type(goal) if classify_type(goal) == "decimal" else goal)


def type_average(name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """A double; of decimals a decimal with four digits more."""
    total = type_sum(name, args)
    if isinstance(total, Mismatch):
        return total
    (goal,) = total.arguments
    return Signature((goal,), find_average_type(goal) if classify_type(goal) == "decimal" else DOUBLE)


def type_deviation(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """Variances and percentiles: computed in doubles."""
    (arg,) = args
    return Signature((DOUBLE,), DOUBLE) if is_numeric(arg.type) else Mismatch((0,))


def type_choice(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """The first argument, of the row that the others choose."""
    return Signature(tuple(arg.type for arg in args), args[0].type)


def type_text_list(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """Texts, and the terms that order them."""
    if args[0].type != STRING:
        return Mismatch((0,))
    return Signature(tuple(arg.type for arg in args), STRING)


def type_array(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """An array of the first argument, which can be sorted, and the terms that order it."""
    if pa.types.is_nested(args[0].type):
        return Mismatch((0,))
    return Signature(tuple(arg.type for arg in args), pa.list_(args[0].type))


def _widen_number(type_: pa.DataType) -> pa.DataType:
    return {"integer": INT, "float": DOUBLE}.get(classify_type(type_), type_)


def _narrow_type(expr: Expr, other: pa.DataType) -> pa.DataType:
    """The type of an operand; an integer constant that meets a decimal is no wider than its digits."""
    if (
        isinstance(expr, Literal)
        and isinstance(expr.value, int)
        and classify_type(expr.type) == "integer"
        and classify_type(other) == "decimal"
    ):
        return pa.decimal128(len(str(expr.value).lstrip("-")), 0)
    return expr.type


def _find_common_type(goal: pa.DataType, expr: Expr, first: Expr) -> pa.DataType | None:
    """`find_common_type`, but a string constant next to a time is read as that time."""
    if is_instant(goal) and _is_string_constant(expr, expr.type):
        return goal
    if is_instant(expr.type) and _is_string_constant(first, goal):
        return expr.type
    return find_common_type(goal, _narrow_type(expr, goal))


def _is_string_constant(expr: Expr, type_: pa.DataType) -> bool:
    return isinstance(expr, Literal) and classify_type(type_) == "string"
