"""The registry of scalar functions and operators. One entry has all that binder, evaluator and SQL writer need.

A new function is one entry here and a test. A function that CQL calls by name has an arity and a type rule. An operator
has its own syntax. Some operators have no type rule, because the binder types their parts one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from penstock.expr import arithmetic, logic
from penstock.expr import sql_formats as formats
from penstock.expr.arithmetic import ArithmeticKernels, make_arithmetic
from penstock.expr.cast import make_cast
from penstock.expr.logic import Constants, Kernel
from penstock.expr.nodes import BOOL, COMPARISONS, STRING, Call
from penstock.expr.sql_formats import Format
from penstock.expr.type_rules import (
    TypeRule,
    refuse_call,
    type_arithmetic,
    type_comparison,
    type_signed,
    type_strings,
    type_unified,
)

KernelMaker = Callable[[Call, Constants], Kernel]
NullType = Callable[[Call, int], pa.DataType]


def _use_result_type(call: Call, _index: int) -> pa.DataType:
    return call.type


def _use_other_type(call: Call, _index: int) -> pa.DataType:
    return next((arg.type for arg in call.args if not pt.is_null(arg.type)), BOOL)


def _use_boolean(_call: Call, _index: int) -> pa.DataType:
    return BOOL


def _use_string(_call: Call, _index: int) -> pa.DataType:
    return STRING


def _use_branch_type(call: Call, index: int) -> pa.DataType:
    is_condition = index % 2 == 0 and index < len(call.args) - 1
    return BOOL if is_condition else call.type


@dataclass(frozen=True)
class Function:
    """A scalar function or operator."""

    name: str
    """The value of `Call.op`."""
    make_kernel: KernelMaker
    """Chooses the kernel for the types of a call and for its constant arguments."""
    format: Format
    """SQL text."""
    type_rule: TypeRule = refuse_call
    mismatch: str = ""
    """The start of the message for arguments that do not fit; the arguments follow."""
    arity: tuple[int, int | None] | None = None
    """The least and the largest number of arguments of a function that CQL calls by name; None for an operator."""
    null_type: NullType | None = _use_result_type
    """The type of an argument that is an untyped NULL; None if the function takes it as it is."""
    negated_format: Format | None = None
    """SQL text under NOT, if it differs from `NOT` before the text."""


def _make_infix_arithmetic(symbol: str, kernels: ArithmeticKernels, format_: Format) -> Function:
    return Function(symbol, make_arithmetic(kernels), format_, type_arithmetic, f"cannot compute {symbol} of")


def _make_comparison(symbol: str) -> Function:
    return Function(
        symbol,
        logic.make_comparison,
        formats.infix(symbol, formats.PREDICATE),
        type_comparison,
        "cannot compare",
        null_type=_use_other_type,
    )


_ENTRIES = (
    Function(
        "abs", make_arithmetic(arithmetic.ABS), formats.function("abs"), type_signed, "ABS needs a number, not", (1, 1)
    ),
    Function(
        "coalesce",
        logic.make_coalesce,
        formats.function("coalesce"),
        type_unified,
        "COALESCE has arguments",
        (1, None),
    ),
    # To the type of the call; a value that cannot be cast is NULL.
    Function("cast", make_cast, formats.format_cast, null_type=None),
    _make_infix_arithmetic("+", arithmetic.ADD, formats.infix("+", formats.SUM)),
    _make_infix_arithmetic("-", arithmetic.SUBTRACT, formats.infix("-", formats.SUM)),
    _make_infix_arithmetic("*", arithmetic.MULTIPLY, formats.infix("*", formats.PRODUCT)),
    _make_infix_arithmetic("/", arithmetic.DIVIDE, formats.format_division),
    _make_infix_arithmetic("%", arithmetic.MODULO, formats.infix("%", formats.PRODUCT)),
    Function("neg", make_arithmetic(arithmetic.NEGATE), formats.format_negation, type_signed, "- needs a number, not"),
    *map(_make_comparison, COMPARISONS),
    Function("and", logic.make_and, formats.connective("AND", formats.AND), null_type=_use_boolean),
    Function("or", logic.make_or, formats.connective("OR", formats.OR), null_type=_use_boolean),
    Function("not", logic.make_not, formats.format_not, null_type=_use_boolean),
    Function("is_null", logic.make_is_null, formats.is_null(), null_type=None, negated_format=formats.is_null("NOT ")),
    # args[0] IN (args[1:])
    Function(
        "in",
        logic.make_in,
        formats.in_list(),
        type_comparison,
        "cannot compare",
        null_type=_use_other_type,
        negated_format=formats.in_list("NOT "),
    ),
    # args[0] LIKE args[1], which is a string constant
    Function(
        "like",
        logic.make_like,
        formats.like(),
        type_strings,
        "LIKE needs strings, not",
        null_type=_use_string,
        negated_format=formats.like("NOT "),
    ),
    # WHEN args[0] THEN args[1] WHEN args[2] THEN args[3] ... ELSE args[-1]
    Function("case", logic.make_case, formats.format_case, mismatch="CASE has branches", null_type=_use_branch_type),
)

FUNCTIONS: dict[str, Function] = {entry.name: entry for entry in _ENTRIES}
NAMED_FUNCTIONS: tuple[str, ...] = (*(entry.name for entry in _ENTRIES if entry.arity is not None), "cast")
"""The names before parentheses in CQL. CAST has a syntax of its own between them."""
