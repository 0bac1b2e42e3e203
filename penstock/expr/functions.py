"""The registry of scalar functions and operators. One entry has all that binder, evaluator and SQL writer need.

A new function is one entry in a module of `library`, its naive meaning in `penstock.testing.row_functions`, and a test.
A function that CQL calls by name has an arity and a type rule. The operators are here: they have their own
syntax, and some have no type rule, because the binder types their parts one by one.
"""

from __future__ import annotations

from penstock.expr import arithmetic, logic
from penstock.expr import sql_formats as formats
from penstock.expr.arithmetic import ArithmeticKernels, make_arithmetic
from penstock.expr.cast import make_cast
from penstock.expr.function import Function, use_boolean, use_branch_type, use_other_type, use_string
from penstock.expr.library import conditional, hashing, json, nested, numbers, text, times
from penstock.expr.nodes import COMPARISONS, Call
from penstock.expr.sql_formats import Format
from penstock.expr.type_rules import type_arithmetic, type_comparison, type_signed, type_strings
from penstock.expr.user_functions import make_user_entry


def _make_infix_arithmetic(symbol: str, kernels: ArithmeticKernels, format_: Format) -> Function:
    return Function(symbol, make_arithmetic(kernels), format_, type_arithmetic, f"cannot compute {symbol} of")


def _make_comparison(symbol: str) -> Function:
    return Function(
        symbol,
        logic.make_comparison,
        formats.infix(symbol, formats.PREDICATE),
        type_comparison,
        "cannot compare",
        null_type=use_other_type,
    )


_OPERATORS = (
    # To the type of the call; a value that cannot be cast is NULL.
    Function("cast", make_cast, formats.format_cast, null_type=None),
    _make_infix_arithmetic("+", arithmetic.ADD, formats.infix("+", formats.SUM)),
    _make_infix_arithmetic("-", arithmetic.SUBTRACT, formats.infix("-", formats.SUM)),
    _make_infix_arithmetic("*", arithmetic.MULTIPLY, formats.infix("*", formats.PRODUCT)),
    _make_infix_arithmetic("/", arithmetic.DIVIDE, formats.format_division),
    _make_infix_arithmetic("%", arithmetic.MODULO, formats.infix("%", formats.PRODUCT)),
    Function("neg", make_arithmetic(arithmetic.NEGATE), formats.format_negation, type_signed, "- needs a number, not"),
    *map(_make_comparison, COMPARISONS),
    Function("and", logic.make_and, formats.connective("AND", formats.AND), null_type=use_boolean),
    Function("or", logic.make_or, formats.connective("OR", formats.OR), null_type=use_boolean),
    Function("not", logic.make_not, formats.format_not, null_type=use_boolean),
    Function("is_null", logic.make_is_null, formats.is_null(), null_type=None, negated_format=formats.is_null("NOT ")),
    # The planner's own: whether a test holds or is unknown.
    Function("is_not_false", logic.make_is_not_false, formats.format_is_not_false, null_type=None),
    # args[0] IN (args[1:])
    Function(
        "in",
        logic.make_in,
        formats.in_list(),
        type_comparison,
        "cannot compare",
        null_type=use_other_type,
        negated_format=formats.in_list("NOT "),
    ),
    # args[0] LIKE args[1], which is a string constant
    Function(
        "like",
        logic.make_like,
        formats.like(),
        type_strings,
        "LIKE needs strings, not",
        null_type=use_string,
        negated_format=formats.like("NOT "),
    ),
    # WHEN args[0] THEN args[1] WHEN args[2] THEN args[3] ... ELSE args[-1]
    nested.FIELD,
    nested.SUBSCRIPT,
    Function("case", logic.make_case, formats.format_case, mismatch="CASE has branches", null_type=use_branch_type),
)

FUNCTION_KINDS: dict[str, tuple[Function, ...]] = {
    "Conditions": conditional.FUNCTIONS,
    "Text": text.FUNCTIONS,
    "Numbers": numbers.FUNCTIONS,
    "Dates and times": times.FUNCTIONS,
    "JSON": json.FUNCTIONS,
    "Arrays, maps and structs": nested.FUNCTIONS,
    "Hashes": hashing.FUNCTIONS,
}
"""The functions that CQL calls by name, by kind."""
FUNCTIONS: dict[str, Function] = {
    entry.name: entry for entries in (_OPERATORS, *FUNCTION_KINDS.values()) for entry in entries
}


def get_function(call: Call) -> Function:
    """The entry of the function that is called."""
    return FUNCTIONS[call.op] if call.user is None else make_user_entry(call.user)


NAMED_FUNCTIONS: dict[str, str] = {
    alias: entry.name
    for entry in FUNCTIONS.values()
    if entry.arity is not None
    for alias in (entry.name, *entry.aliases)
}
"""By every name that CQL knows: the name of the entry."""
