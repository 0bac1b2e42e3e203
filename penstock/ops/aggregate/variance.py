"""VAR_SAMP, VAR_POP, STDDEV_SAMP and STDDEV_POP of groups whose rows come and go.

Law: with n values, their sum s and the sum q of their squares, the variance is (n q - s s) / (n (n - 1)), or / (n n) of
the population. Both sums are exact, and the difference is computed with 106 bits, so nothing is lost if the values are
large and close to each other, and rows that left leave no trace. A sample of one value has no variance: NULL. With NaN,
an infinity, or a square that overflows the result is NaN.
State: three exact sums a group (see `exact_sum`). Cost: O(1) a change. No Python per row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.expr import DOUBLE
from penstock.ops.aggregate.exact_sum import F64, ExactSum, to_doubles
from penstock.ops.protocol import I8
from penstock.ops.row_groups import ChangePoints

_SPLIT = 2.0**27 + 1
Pair = tuple[F64, F64]
"""An unevaluated sum of two doubles: the nearest double of a value, and the rest."""


class VarianceAccumulator:
    """A variance or a standard deviation."""

    def __init__(self, function: str) -> None:
        self._is_sample = function.endswith("_samp")
        self._is_root = function.startswith("stddev")
        self._sum, self._squares, self._errors = ExactSum(DOUBLE), ExactSum(DOUBLE), ExactSum(DOUBLE)

    def apply(self, at: ChangePoints, weights: I8, columns: Sequence[pa.Array], bound: int) -> pa.Array:
        (values,) = columns
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            square, error = multiply(to_doubles(values), to_doubles(values))
            high, low, counts = self._sum.apply_as_pairs(at, weights, values, bound)
            squares = [
                each.apply_as_pairs(at, weights, pa.array(part), bound)[:2]
                for each, part in ((self._squares, square), (self._errors, error))
            ]
            count = counts.astype(np.float64)
            scaled = _scale(_add(*squares), count)
            spread = np.maximum(_round(_add(scaled, _negate(_square((high, low))))), 0.0)
            divisor = count * (count - 1) if self._is_sample else count * count
            variance = spread / divisor
            result = np.sqrt(variance) if self._is_root else variance
        return pa.array(result, mask=counts < (2 if self._is_sample else 1))


def multiply(a: F64, b: F64) -> Pair:
    """The exact product."""
    product = a * b
    a_high = _SPLIT * a - (_SPLIT * a - a)
    b_high = _SPLIT * b - (_SPLIT * b - b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _add_exactly(a: F64, b: F64) -> Pair:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _add(a: Pair, b: Pair) -> Pair:
    high, high_rest = _add_exactly(a[0], b[0])
    low, low_rest = _add_exactly(a[1], b[1])
    high, rest = _add_exactly(high, high_rest + low)
    return _add_exactly(high, rest + low_rest)


def _square(a: Pair) -> Pair:
    high, rest = multiply(a[0], a[0])
    return _add_exactly(high, rest + 2 * a[0] * a[1])


def _scale(a: Pair, factor: F64) -> Pair:
    high, rest = multiply(a[0], factor)
    return _add_exactly(high, rest + a[1] * factor)


def _negate(a: Pair) -> Pair:
    return -a[0], -a[1]


def _round(a: Pair) -> F64:
    return a[0] + a[1]
