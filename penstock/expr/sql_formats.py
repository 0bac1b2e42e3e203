"""SQL text of operators and functions, in Spark's spelling, with as few parentheses as precedence allows.

A format takes a call and `write`, which writes an operand and puts it in parentheses if its outermost operator has less
than a given precedence.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow.types as pt

from penstock.expr.nodes import Call, Expr, Literal
from penstock.expr.types import format_spark_type

OR, AND, NOT, PREDICATE, SUM, PRODUCT, SIGN, ATOM = range(8)
TextWithPrecedence = tuple[str, int]  # the text and the precedence of its outermost operator
Write = Callable[[Expr, int], str]
Format = Callable[[Call, Write], TextWithPrecedence]


def infix(symbol: str, precedence: int) -> Format:
    """`a + b`. Sums and products group to the left; an operand of a comparison that is a comparison has parentheses."""
    left_precedence = precedence + (precedence == PREDICATE)

    def write_infix(call: Call, write: Write) -> TextWithPrecedence:
        left, right = call.args
        return f"{write(left, left_precedence)} {symbol} {write(right, precedence + 1)}", precedence

    return write_infix


def format_division(call: Call, write: Write) -> TextWithPrecedence:
    """`a / b`; DIV for integers, because Spark's `/` divides them as doubles."""
    return infix("DIV" if pt.is_integer(call.type) else "/", PRODUCT)(call, write)


def connective(word: str, precedence: int) -> Format:
    """`a AND b AND c`."""
    return lambda call, write: (f" {word} ".join(write(arg, precedence) for arg in call.args), precedence)


def format_function(call: Call, write: Write) -> TextWithPrecedence:
    """`name(a, b)`."""
    return f"{call.op}({_write_list(call.args, write)})", ATOM


def function(name: str) -> Format:
    """`name(a, b)`, under the name that Spark gives it."""
    return lambda call, write: (f"{name}({_write_list(call.args, write)})", ATOM)


def _write_list(exprs: tuple[Expr, ...], write: Write) -> str:
    return ", ".join(write(expr, OR) for expr in exprs)


def format_negation(call: Call, write: Write) -> TextWithPrecedence:
    return f"-{write(call.args[0], ATOM)}", SIGN  # never `--`, which starts a comment


def format_not(call: Call, write: Write) -> TextWithPrecedence:
    return f"NOT {write(call.args[0], NOT)}", NOT


def is_null(negation: str = "") -> Format:
    return lambda call, write: (f"{write(call.args[0], PREDICATE + 1)} IS {negation}NULL", PREDICATE)


def format_is_not_false(call: Call, write: Write) -> TextWithPrecedence:
    return f"{write(call.args[0], PREDICATE + 1)} IS NOT FALSE", PREDICATE


def in_list(negation: str = "") -> Format:
    def write_in(call: Call, write: Write) -> TextWithPrecedence:
        return f"{write(call.args[0], PREDICATE + 1)} {negation}IN ({_write_list(call.args[1:], write)})", PREDICATE

    return write_in


def like(negation: str = "") -> Format:
    return infix(f"{negation}LIKE", PREDICATE)


def format_case(call: Call, write: Write) -> TextWithPrecedence:
    *branches, default = call.args
    whens = zip(branches[::2], branches[1::2], strict=True)
    text = "CASE" + "".join(f" WHEN {write(when, OR)} THEN {write(then, OR)}" for when, then in whens)
    otherwise = "" if isinstance(default, Literal) and default.value is None else f" ELSE {write(default, OR)}"
    return f"{text}{otherwise} END", ATOM


def format_cast(call: Call, write: Write) -> TextWithPrecedence:
    return f"CAST({write(call.args[0], OR)} AS {format_spark_type(call.type)})", ATOM
