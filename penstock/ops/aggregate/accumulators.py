"""COUNT, SUM, AVG, MIN and MAX of groups whose rows come and go.

Law: at every point the result is the aggregate over the rows that the group has then. NULLs are ignored; without other
values the result is NULL (COUNT: 0). Sums are exact and rounded once, for the result, so that they depend on the rows
alone, not on the order in which they came and went: integers and decimals that do not fit their type are NULL, doubles
are rounded to the nearest. AVG is the sum as a double divided by the count.

State: a count; for sums digits to the base 2**32 over the range of exponents seen; for MIN and MAX see `extremes`.
Cost: O(1) a change; MIN and MAX O(log n) amortised. No Python per row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.expr import DOUBLE, Aggregate, try_cast
from penstock.ops.aggregate.extremes import ExtremeAccumulator
from penstock.ops.kernels import limbs_to_double, sum_group_values
from penstock.ops.protocol import I8
from penstock.ops.row_groups import ChangePoints, GroupCounts, Mask, grow, zero_null_weights
from penstock.state import I64, Maintenance

F64 = np.ndarray[tuple[int], np.dtype[np.float64]]


class Accumulator(Protocol):
    """One aggregate over all groups."""

    def apply(self, at: ChangePoints, weights: I8, values: pa.Array, bound: int) -> pa.Array:
        """Apply changes, in the order of the points (weight 0: no change); returns the result at each point.

        The codes of all groups are below `bound`.
        """


def make_accumulator(aggregate: Aggregate, maintenance: Maintenance) -> Accumulator:
    """The accumulator of a built-in aggregate with an argument."""
    return ACCUMULATORS[aggregate.function](aggregate, maintenance)


class CountAccumulator:
    """COUNT(x)."""

    def __init__(self) -> None:
        self._counts = GroupCounts()

    def apply(self, at: ChangePoints, weights: I8, values: pa.Array, bound: int) -> pa.Array:
        return pa.array(self._counts.apply(at, zero_null_weights(weights, values), bound))


# ── sums ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_DIGIT_MASK = np.int64(0xFFFFFFFF)
_FRACTION_MASK = np.int64((1 << 52) - 1)


class _IntegerLimbs:
    """Integers and decimals, as pieces of 32 bits of two's complement."""

    exponent = 0

    def __init__(self, type_: pa.DataType) -> None:
        self._word_count = 2 if pt.is_decimal(type_) else 1
        self.limbs: I64 = np.zeros((1, 2 * self._word_count + 1), np.int64)

    def split_values(self, values: pa.Array) -> tuple[I64, I64]:
        buffer = values.buffers()[1]
        words = np.frombuffer(buffer, np.int64, len(values) * self._word_count, values.offset * 8 * self._word_count)
        words = words.reshape(len(values), self._word_count)
        pieces = np.empty((len(values), 2 * self._word_count), np.int64)
        pieces[:, 0::2] = words & _DIGIT_MASK
        pieces[:, 1::2] = words >> 32
        pieces[:, 1:-1:2] &= _DIGIT_MASK  # only the highest piece has a sign
        return pieces, np.zeros(len(values), np.int64)


class _FloatLimbs:
    """Doubles: 53 bits between 2**-1074 and 2**1024. NaN and infinities are counted separately."""

    def __init__(self) -> None:
        self.limbs: I64 = np.zeros((1, 1), np.int64)
        self._lowest = 0  # the first limb counts 2**(32 * lowest)
        self._top = 0  # the limbs end before 2**(32 * top), except for carries

    @property
    def exponent(self) -> int:
        return 32 * self._lowest

    def split_values(self, values: pa.Array) -> tuple[I64, I64]:
        bits = _to_doubles(values).view(np.int64)
        field = (bits >> 52) & 0x7FF
        mantissa = np.where(field > 0, (bits & _FRACTION_MASK) | (np.int64(1) << 52), bits & _FRACTION_MASK)
        mantissa = np.where(field == 0x7FF, 0, mantissa)
        limb, shift = np.divmod(np.maximum(field, 1) - 1075, 32)
        limb = np.where(mantissa == 0, self._lowest, limb)
        low, high = (mantissa & _DIGIT_MASK) << shift, (mantissa >> 32) << shift
        high += low >> 32
        pieces = np.stack([low & _DIGIT_MASK, high & _DIGIT_MASK, high >> 32], axis=1)
        pieces *= np.where(bits < 0, -1, 1)[:, np.newaxis]
        used = limb[mantissa != 0]
        if used.size:
            self._extend_range(int(used.min()), int(used.max()) + 3)
        return pieces, np.where(mantissa == 0, 0, limb - self._lowest)

    def _extend_range(self, lowest: int, top: int) -> None:
        if self._top == self._lowest:
            self._lowest = self._top = lowest
        below, above = max(self._lowest - lowest, 0), max(top - self._top, 0)
        if below or above:
            carries = self.limbs[:, -1]
            limbs = np.zeros((self.limbs.shape[0], self.limbs.shape[1] + below + above), np.int64)
            limbs[:, below : below + self.limbs.shape[1]] = self.limbs
            if above:  # the sign moves up
                limbs[:, below + self.limbs.shape[1] - 1] = carries & _DIGIT_MASK
                limbs[:, below + self.limbs.shape[1] :] = (carries >> 32)[:, np.newaxis]
                limbs[:, below + self.limbs.shape[1] : -1] &= _DIGIT_MASK
            self.limbs = limbs
            self._lowest, self._top = self._lowest - below, self._top + above


def _to_doubles(values: pa.Array) -> F64:
    doubles: F64 = values.fill_null(0.0).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(doubles)


class _ExactSum:
    """Exact sums as limbs, and how many values they have."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._digits: _IntegerLimbs | _FloatLimbs = _FloatLimbs() if pt.is_floating(type_) else _IntegerLimbs(type_)
        self._counts = GroupCounts()
        self._special_counts: list[GroupCounts] = []  # of NaN, inf and -inf, once there was one

    def apply(self, at: ChangePoints, weights: I8, values: pa.Array, bound: int) -> tuple[I64, I64]:
        """The limbs and the number of values at every point."""
        pieces, starts = self._digits.split_values(values)
        digits = self._digits
        digits.limbs = grow(digits.limbs, bound)
        if digits.limbs.shape[1] < pieces.shape[1]:  # nothing but zeros so far
            pieces = pieces[:, : digits.limbs.shape[1]]
        out = np.empty((len(at), digits.limbs.shape[1]), np.int64)
        sum_group_values(at.ends, at.codes, weights, np.ascontiguousarray(pieces), starts, digits.limbs, out)
        return out, self._counts.apply(at, weights, bound)

    def apply_as_doubles(self, at: ChangePoints, weights: I8, values: pa.Array, bound: int) -> tuple[F64, I64]:
        """The sums as doubles and the number of values."""
        limbs, counts = self.apply(at, weights, values, bound)
        out = np.empty(len(at))
        limbs_to_double(limbs, self._digits.exponent, out)
        plain = _to_doubles(values) if pt.is_floating(self._type) else None
        if plain is not None and (self._special_counts or not np.isfinite(plain).all()):
            self._special_counts = self._special_counts or [GroupCounts(), GroupCounts(), GroupCounts()]
            tests = (np.isnan(plain), plain == np.inf, plain == -np.inf)
            nan, up, down = (
                special.apply(at, np.where(test, weights, np.int8(0)), bound) > 0
                for special, test in zip(self._special_counts, tests, strict=True)
            )
            out = np.where(up, np.inf, np.where(down, -np.inf, out))
            out[nan | (up & down)] = np.nan
        return out, counts


class SumAccumulator:
    """SUM(x)."""

    def __init__(self, type_: pa.DataType, result: pa.DataType) -> None:
        self._sum = _ExactSum(type_)
        self._type = result

    def apply(self, at: ChangePoints, weights: I8, values: pa.Array, bound: int) -> pa.Array:
        weights = zero_null_weights(weights, values)
        if pt.is_floating(self._type):
            doubles, counts = self._sum.apply_as_doubles(at, weights, values, bound)
            return pa.array(doubles, mask=counts == 0)
        limbs, counts = self._sum.apply(at, weights, values, bound)
        return limbs_to_integers(limbs, self._type, counts > 0)


def limbs_to_integers(limbs: I64, type_: pa.DataType, known: Mask) -> pa.Array:
    """Limbs as integers or decimals; NULL where they do not fit."""
    top = limbs[:, -1]
    words = (limbs[:, 1:-1:2] << 32) | limbs[:, 0:-1:2]
    sign = words[:, -1] >> 63
    known = known & (top == sign)
    if pt.is_decimal(type_):
        low, high = words[:, 0].view(np.uint64), words[:, 1]
        known &= _is_below(low, high, 10**type_.precision) & ~_is_below(low, high, 1 - 10**type_.precision)
        raw = np.ascontiguousarray(words)
        validity = pa.py_buffer(np.packbits(known, bitorder="little"))
        return pa.Array.from_buffers(type_, known.size, [validity, pa.py_buffer(raw)])
    return pa.array(np.ascontiguousarray(words[:, 0]), mask=~known).cast(type_)


def _is_below(low: np.ndarray[tuple[int], np.dtype[np.uint64]], high: I64, limit: int) -> Mask:
    """Whether numbers of 128 bits are below a limit."""
    limit_high, limit_low = limit >> 64, np.uint64(limit & (2**64 - 1))
    below: Mask = (high < limit_high) | ((high == limit_high) & (low < limit_low))
    return below


class AverageAccumulator:
    """AVG(x)."""

    def __init__(self, type_: pa.DataType) -> None:
        self._sum = _ExactSum(type_)
        self._total_type = pa.decimal128(38, type_.scale) if pt.is_decimal(type_) else None

    def apply(self, at: ChangePoints, weights: I8, values: pa.Array, bound: int) -> pa.Array:
        weights = zero_null_weights(weights, values)
        if self._total_type is None:
            doubles, counts = self._sum.apply_as_doubles(at, weights, values, bound)
            return pa.array(doubles / np.maximum(counts, 1), mask=counts == 0)
        limbs, counts = self._sum.apply(at, weights, values, bound)
        total = try_cast(limbs_to_integers(limbs, self._total_type, counts > 0), DOUBLE)
        return pc.divide(total, pa.array(np.maximum(counts, 1).astype(np.float64)))


ACCUMULATORS: dict[str, Callable[[Aggregate, Maintenance], Accumulator]] = {
    "count": lambda _aggregate, _maintenance: CountAccumulator(),
    "sum": lambda aggregate, _maintenance: SumAccumulator(aggregate.args[0].type, aggregate.type),
    "avg": lambda aggregate, _maintenance: AverageAccumulator(aggregate.args[0].type),
    "min": lambda aggregate, maintenance: ExtremeAccumulator(aggregate.type, maintenance, smallest=True),
    "max": lambda aggregate, maintenance: ExtremeAccumulator(aggregate.type, maintenance, smallest=False),
}
"""The accumulators of the aggregates in `expr.aggregates.AGGREGATES`, by name."""
