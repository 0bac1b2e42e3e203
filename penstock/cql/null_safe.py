"""Null-safe equality, `a <=> b` and `a IS NOT DISTINCT FROM b`, in terms of plain equality.

Law: it is true if both sides are NULL or equal, and false otherwise, never NULL. It is written as two equalities, of
which both have no NULL: joins use them as keys like any other.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal

from penstock.expr import BOOL, Call, Expr, Literal, classify_type

_STAND_INS: dict[str, object] = {
    "boolean": False,
    "integer": 0,
    "float": 0.0,
    "decimal": Decimal(0),
    "string": "",
    "date": date(1970, 1, 1),
    "timestamp": datetime(1970, 1, 1),
    "interval": timedelta(0),
}


def build_null_safe_equality(left: Expr, right: Expr) -> Expr:
    """The equality of two expressions of one type."""
    nulls = [Call("is_null", (side,), BOOL) for side in (left, right)]
    for side, other in ((left, nulls[1]), (right, nulls[0])):
        if isinstance(side, Literal) and side.value is None:
            return other
    stand_in = Literal(_STAND_INS[classify_type(left.type)], left.type)
    values = [Call("coalesce", (side, stand_in), side.type) for side in (left, right)]
    return Call("and", (Call("=", tuple(nulls), BOOL), Call("=", tuple(values), BOOL)), BOOL)
