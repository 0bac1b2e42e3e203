"""Predicates that differ in one constant, and the narrowest test that all of them imply.

`a.x < b.y + 5` and `a.x < b.y + 9` bound the same two terms, so they are of one *family*. Predicates of a family with
the same text but for the constant have one *shape*: the one with the widest constant is implied by the others, for
rounded floats too, because rounding keeps the order. Predicates of different shapes (`<` and `<=`, with and without a
constant) are combined by OR; no arithmetic over their constants is needed.

A sum may overflow for one constant and not for another one, and is NULL then. The test of a family therefore also
passes combinations for which it is NULL.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from math import isfinite

import pyarrow as pa

from penstock.expr import BOOL, HIDDEN, Call, Expr, Literal

Family = Expr | tuple[Expr, Expr]
"""What predicates bound: the smaller and the larger term without the constant, or the predicate if it has none."""

_MIRRORED = {"<": "<", "<=": "<=", ">": "<", ">=": "<="}
_Width = int | float | Decimal | timedelta


@dataclass(frozen=True)
class Bound:
    """A predicate as one of a family. A larger width is wider; widths compare if the shapes are equal."""

    predicate: Expr
    family: Family
    shape: Expr
    width: _Width = 0
    may_overflow: bool = False


def find_bound(predicate: Expr) -> Bound:
    """The family of a predicate, which is the predicate alone if no other can be of it."""
    if not (isinstance(predicate, Call) and predicate.op in _MIRRORED):
        return Bound(predicate, predicate, predicate)
    greater = predicate.op in (">", ">=")
    places = (0, 1) if greater else (1, 0)
    for place in places:  # the larger term first
        shift = _find_shift(predicate.args[place])
        if shift is not None:
            base, shape, width, may_overflow = shift
            grown = width if place == places[0] else -width
            bases, shapes = list(predicate.args), list(predicate.args)
            bases[place], shapes[place] = base, shape
            family = bases[places[1]], bases[places[0]]
            return Bound(predicate, family, replace(predicate, args=tuple(shapes)), grown, may_overflow)
    return Bound(predicate, (predicate.args[places[1]], predicate.args[places[0]]), predicate)


def find_families(predicates: Iterable[Expr]) -> frozenset[Family]:
    """The families of some predicates."""
    return frozenset(find_bound(each).family for each in predicates)


def combine_bounds(bounds: Iterable[Bound]) -> Expr:
    """A predicate that each of some bounds of one family implies."""
    widest: dict[Expr, Bound] = {}
    for bound in bounds:
        known = widest.get(bound.shape)
        if known is None or bound.width > known.width:  # type: ignore[operator]
            widest[bound.shape] = bound
    terms = tuple(bound.predicate for bound in widest.values())
    test = terms[0] if len(terms) == 1 else Call("or", terms, BOOL)
    return Call("is_not_false", (test,), BOOL) if any(bound.may_overflow for bound in widest.values()) else test


def _find_shift(side: Expr) -> tuple[Expr, Expr, _Width, bool] | None:
    """(base, shape, width, may overflow) of a constant, or of a term plus or minus a constant."""
    if isinstance(side, Literal):
        width, blank = _read_width(side), Literal(HIDDEN, side.type)
        return None if width is None else (blank, blank, width, False)
    if not (isinstance(side, Call) and side.op in ("+", "-") and is_ordered(side.type)):
        return None
    for place in (1, 0) if side.op == "+" else (1,):
        constant, base = side.args[place], side.args[1 - place]
        if isinstance(constant, Literal) and (width := _read_width(constant)) is not None:
            blank = Literal(HIDDEN, constant.type)
            shape = replace(side, args=(base, blank) if place else (blank, base))
            return base, shape, width if side.op == "+" else -width, not pa.types.is_floating(side.type)
    return None


def _read_width(constant: Literal) -> _Width | None:
    """The value of a constant that sums and comparisons keep in order."""
    value = constant.value
    if not is_ordered(constant.type) or not isinstance(value, _Width):
        return None
    return None if isinstance(value, (float, Decimal)) and not isfinite(value) else value


def is_ordered(type_: pa.DataType) -> bool:
    """Types whose values map to floats in order."""
    is_number = pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    return bool(is_number or pa.types.is_timestamp(type_) or pa.types.is_duration(type_))
