"""Functions that choose between values: COALESCE, NULLIF, IF, GREATEST and their synonyms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from penstock.expr import logic
from penstock.expr.convert import Datum
from penstock.expr.function import Function, KernelMaker, use_branch_type
from penstock.expr.logic import Constants, Kernel, choose_comparison
from penstock.expr.nodes import BOOL, Call, Expr
from penstock.expr.type_rules import Mismatch, Signature, type_compared, type_unified, unify
from penstock.expr.types import classify_type


def _type_if(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """A condition, and two values of a type that they have in common."""
    if classify_type(args[0].type) not in ("boolean", "null"):
        return Mismatch((0,))
    goal = unify(args[1:])
    if isinstance(goal, Mismatch):
        return Mismatch((1, 2))
    return Signature((BOOL, goal, goal), goal)


def _type_nvl2(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    goal = unify(args[1:])
    return Mismatch((1, 2)) if isinstance(goal, Mismatch) else Signature((args[0].type, goal, goal), goal)


def _make_nullif(call: Call, _constants: Constants) -> Kernel:
    equal = choose_comparison("=", [arg.type for arg in call.args])

    def kernel(a: Datum, b: Datum) -> Datum:
        return pc.if_else(pc.fill_null(equal(a, b), False), pa.scalar(None, call.type), a)

    return kernel


def _make_choice(op: str) -> KernelMaker:
    """The argument that comes first in an order; NULLs are left out."""

    def make(call: Call, _constants: Constants) -> Kernel:
        before = choose_comparison(op, [call.type])

        def choose(a: Datum, b: Datum) -> Datum:
            return pc.coalesce(pc.if_else(before(b, a), b, a), a, b)

        return lambda *args: reduce(choose, args)

    return make


FUNCTIONS = (
    Function(
        "coalesce",
        logic.make_coalesce,
        type_rule=type_unified,
        mismatch="COALESCE has arguments",
        arity=(1, None),
        aliases=("ifnull", "nvl"),
        usage="COALESCE(a, b, …)",
        meaning="the first argument that is not NULL",
        duckdb="coalesce({args})",
    ),
    Function(
        "nullif",
        _make_nullif,
        type_rule=type_compared,
        mismatch="NULLIF cannot compare",
        arity=(2, 2),
        usage="NULLIF(a, b)",
        meaning="NULL if the arguments are equal, else the first",
        duckdb="nullif({0}, {1})",
    ),
    Function(
        "if",
        logic.make_case,
        type_rule=_type_if,
        mismatch="IF needs a condition and two values of one type, not",
        arity=(3, 3),
        null_type=use_branch_type,
        aliases=("iff",),
        usage="IF(condition, a, b)",
        meaning="`a` if the condition is true, else `b`, also if it is NULL",
        duckdb="CASE WHEN {0} THEN {1} ELSE {2} END",
    ),
    Function(
        "nvl2",
        lambda _call, _constants: lambda test, a, b: pc.if_else(pc.is_valid(test), a, b),
        type_rule=_type_nvl2,
        mismatch="NVL2 has values",
        arity=(3, 3),
        null_type=None,
        usage="NVL2(x, a, b)",
        meaning="`a` if `x` is not NULL, else `b`",
        duckdb="CASE WHEN {0} IS NOT NULL THEN {1} ELSE {2} END",
    ),
    Function(
        "greatest",
        _make_choice(">"),
        type_rule=type_compared,
        mismatch="GREATEST has arguments",
        arity=(2, None),
        usage="GREATEST(a, b, …)",
        meaning="the largest argument; NULLs are left out",
        duckdb="greatest({args})",
    ),
    Function(
        "least",
        _make_choice("<"),
        type_rule=type_compared,
        mismatch="LEAST has arguments",
        arity=(2, None),
        usage="LEAST(a, b, …)",
        meaning="the smallest argument; NULLs are left out",
        duckdb="least({args})",
    ),
)
