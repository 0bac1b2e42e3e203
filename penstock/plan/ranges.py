"""Range conditions: an inequality or a band between two sides, as bounds on a difference.

`a.v < b.v`, `ABS(a.v - b.v) < c` and `a.v BETWEEN b.v - 1 AND b.v + 1` all bound `left - right`. A join without
equality looks up partners in that range and then tests the predicates, so the bounds only have to be wide enough.
Two-sided ranges and overlaps (`b.i BETWEEN a.lo AND a.hi`, `a.lo < b.hi AND b.lo < a.hi`) bound two differences.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import combinations
from math import inf

import pyarrow as pa

from penstock.expr import Call, Column, Expr, Literal
from penstock.plan.physical import NodePlan
from penstock.plan.predicate_bounds import is_ordered

_ROUNDING = 2.0**-48
"""More than the relative error of a sum of floats."""


@dataclass(frozen=True)
class RangeCondition:
    """low <= left - right <= high, where `left` is a column of the left side and `right` one of the right side."""

    left: Column
    right: Column
    low: float
    high: float
    second: RangeCondition | None = None
    """Another range, open on one side, of the other end of an interval."""

    @property
    def open_above(self) -> bool:
        return self.high == inf


@dataclass(frozen=True)
class StoredRange:
    """A range condition as one side stores its rows: by `column`, and by the other end of their interval if any."""

    column: Column
    second: Column | None
    mirrored: bool
    """Whether the second number has a largest value, not a smallest."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns by which rows are stored."""
        return (self.column.name,) if self.second is None else (self.column.name, self.second.name)


def orient_range(condition: RangeCondition, aliases: Collection[str]) -> StoredRange:
    """How the side with these aliases stores its rows."""
    is_left = condition.left.alias in aliases
    column, second = (condition.left if is_left else condition.right), condition.second
    if second is None:
        return StoredRange(column, None, mirrored=False)
    other = second.left if is_left else second.right
    if other == column:
        return StoredRange(column, None, mirrored=False)
    return StoredRange(column, other, mirrored=second.open_above != is_left)


def find_range_condition(node: NodePlan) -> RangeCondition | None:
    """The tightest range that the predicates of a node give for a pair of columns; None if there is none.

    Without a range that is bounded on both sides, two ranges that are open on different sides are taken together.
    """
    found: dict[tuple[Column, Column], tuple[float, float]] = {}
    for predicate in node.residuals:
        for x, y, low, high in _list_differences(predicate):
            mirrored = x.alias in node.right.aliases
            pair, bounds = ((y, x), (-high, -low)) if mirrored else ((x, y), (low, high))
            known = found.get(pair, (-inf, inf))
            found[pair] = (max(known[0], bounds[0]), min(known[1], bounds[1]))
    for (left, right), (low, high) in found.items():
        if low > -inf and high < inf:
            return RangeCondition(left, right, low, high)
    conditions = [RangeCondition(*pair, *bounds) for pair, bounds in found.items()]
    for first, second in combinations(conditions, 2):
        if first.open_above != second.open_above:
            return replace(first, second=second)
    return next(iter(conditions), None)


def _list_differences(predicate: Expr) -> Iterator[tuple[Column, Column, float, float]]:
    """(x, y, low, high) with low <= x - y <= high, for a predicate over columns of two aliases that implies it.

    The planner's tests of several bounds (`predicate_bounds`) have the range in which one of the bounds can hold.
    """
    if isinstance(predicate, Call) and predicate.op == "is_not_false":
        yield from _list_differences(predicate.args[0])
        return
    if isinstance(predicate, Call) and predicate.op == "or":
        yield from _unite_differences(predicate.args)
        return
    if not (isinstance(predicate, Call) and predicate.op in ("<", "<=", ">", ">=")):
        return
    smaller, larger = predicate.args if predicate.op in ("<", "<=") else predicate.args[::-1]
    distance = _match_distance(smaller)
    if distance is not None and (limit := _to_number(larger)) is not None:
        x, y, offset, slack = distance
        reach = limit + slack + _ROUNDING * abs(limit)
        yield x, y, -reach - offset, reach - offset
        return
    x_side, y_side = _match_shifted(smaller), _match_shifted(larger)
    if x_side is not None and y_side is not None and x_side.column.alias != y_side.column.alias:
        yield x_side.column, y_side.column, -inf, y_side.shift - x_side.shift + x_side.slack + y_side.slack


def _unite_differences(predicates: tuple[Expr, ...]) -> Iterator[tuple[Column, Column, float, float]]:
    """As `_list_differences`, for predicates of which one holds, if all bound the same two columns."""
    found = [next(_list_differences(each), None) for each in predicates]
    x, y, low, high = found[0] or (None, None, inf, -inf)
    for each in found:
        if each is None or {x, y} != {each[0], each[1]}:
            return
        bounds = each[2:] if each[0] == x else (-each[3], -each[2])
        low, high = min(low, bounds[0]), max(high, bounds[1])
    if x is not None and y is not None and (low > -inf or high < inf):
        yield x, y, low, high


def _match_distance(expr: Expr) -> tuple[Column, Column, float, float] | None:
    """(x, y, c, slack) for ABS(x - y + c)."""
    if not (isinstance(expr, Call) and expr.op == "abs" and isinstance(expr.args[0], Call) and expr.args[0].op == "-"):
        return None
    difference = expr.args[0]
    x, y = (_match_shifted(side) for side in difference.args)
    rounding = _measure_rounding(difference)
    if x is None or y is None or rounding is None or x.column.alias == y.column.alias:
        return None
    return x.column, y.column, x.shift - y.shift, x.slack + y.slack + rounding


@dataclass(frozen=True)
class _Shifted:
    """A term that is column + shift, or up to `slack` away from it; what floats round off the column is not counted."""

    column: Column
    shift: float = 0.0
    slack: float = 0.0

    def move(self, by: float, rounding: float) -> _Shifted:
        return _Shifted(self.column, self.shift + by, self.slack + rounding + _ROUNDING * abs(by))


def _match_shifted(expr: Expr) -> _Shifted | None:
    """An ordered column, cast to other types of numbers and with constants added and subtracted."""
    if isinstance(expr, Column):
        return _Shifted(expr) if is_ordered(expr.type) else None
    if not isinstance(expr, Call):
        return None
    rounding = _measure_rounding(expr)
    if rounding is None:
        return None
    if expr.op == "cast":
        x = _match_shifted(expr.args[0])
        return None if x is None else x.move(0.0, rounding)
    if expr.op in ("+", "-"):
        x, shift = _match_shifted(expr.args[0]), _to_number(expr.args[1])
        if x is not None and shift is not None:
            return x.move(shift if expr.op == "+" else -shift, rounding)
        if expr.op == "+" and (x := _match_shifted(expr.args[1])) and (shift := _to_number(expr.args[0])) is not None:
            return x.move(shift, rounding)
    return None


def _measure_rounding(call: Call) -> float | None:
    """How far a cast, a sum or a difference can be from its exact value; None if no constant bounds it.

    The relative error of a float64 is not counted.
    """
    if not is_ordered(call.type):
        return None
    found = [_measure_cast(arg.type, call.type) for arg in call.args]
    return None if None in found else sum(each for each in found if each is not None)


def _measure_cast(given: pa.DataType, goal: pa.DataType) -> float | None:
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(goal):
        return 0.0 if given.tz == goal.tz else None  # the clock of a zone and that of UTC differ
    if pa.types.is_integer(goal):
        return 0.0 if pa.types.is_integer(given) else 1.0
    if pa.types.is_decimal(goal):
        exact = pa.types.is_integer(given) or (pa.types.is_decimal(given) and given.scale <= goal.scale)
        return 0.0 if exact else 10.0**-goal.scale
    return None if goal == pa.float32() and given != goal else 0.0


def _to_number(expr: Expr) -> float | None:
    """A constant as a number; durations in microseconds."""
    if isinstance(expr, Call) and expr.op == "cast":
        return _to_number(expr.args[0])
    if not isinstance(expr, Literal) or expr.value is None or not is_ordered(expr.type):
        return None
    if isinstance(expr.value, timedelta):
        return float(expr.value / timedelta(microseconds=1))
    try:
        return float(expr.value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
