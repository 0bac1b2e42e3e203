"""Exact sums of groups whose values come and go.

Law: a sum depends on the values that the group has now, not on the order in which they came and went. State: digits to
the base 2**32 over the range of exponents seen. Cost: O(1) a change, in proportion to the digits.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from penstock.ops.kernels import limbs_to_double, sum_group_values
from penstock.ops.protocol import I8
from penstock.ops.row_groups import ChangePoints, GroupCounts, grow
from penstock.state import I64

F64 = np.ndarray[tuple[int], np.dtype[np.float64]]

_DIGIT_MASK = np.int64(0xFFFFFFFF)
_FRACTION_MASK = np.int64((1 << 52) - 1)


class IntegerLimbs:
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


class FloatLimbs:
    """Doubles: 53 bits between 2**-1074 and 2**1024. NaN and infinities are counted separately."""

    def __init__(self) -> None:
        self.limbs: I64 = np.zeros((1, 1), np.int64)
        self._lowest = 0  # the first limb counts 2**(32 * lowest)
        self._top = 0  # the limbs end before 2**(32 * top), except for carries

    @property
    def exponent(self) -> int:
        return 32 * self._lowest

    def split_values(self, values: pa.Array) -> tuple[I64, I64]:
        bits = to_doubles(values).view(np.int64)
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


def to_doubles(values: pa.Array) -> F64:
    doubles: F64 = values.fill_null(0.0).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(doubles)


Limbs = IntegerLimbs | FloatLimbs


def make_limbs(type_: pa.DataType) -> Limbs:
    """The limbs for values of a type."""
    return FloatLimbs() if pt.is_floating(type_) else IntegerLimbs(type_)


class ExactSum:
    """Exact sums as limbs, and how many values they have."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._digits = make_limbs(type_)
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

    def apply_as_pairs(self, at: ChangePoints, weights: I8, values: pa.Array, bound: int) -> tuple[F64, F64, I64]:
        """The sums of doubles as unevaluated sums of two doubles, of 106 bits, and the number of values."""
        limbs, counts = self.apply(at, weights, values, bound)
        high = self._round_sums(limbs, at, weights, values, bound)
        return high, _subtract(limbs, high, self._digits.exponent), counts

    def apply_as_doubles(self, at: ChangePoints, weights: I8, values: pa.Array, bound: int) -> tuple[F64, I64]:
        """The sums as doubles and the number of values."""
        limbs, counts = self.apply(at, weights, values, bound)
        return self._round_sums(limbs, at, weights, values, bound), counts

    def _round_sums(self, limbs: I64, at: ChangePoints, weights: I8, values: pa.Array, bound: int) -> F64:
        out = np.empty(len(at))
        limbs_to_double(limbs, self._digits.exponent, out)
        plain = to_doubles(values) if pt.is_floating(self._type) else None
        if plain is not None and (self._special_counts or not np.isfinite(plain).all()):
            self._special_counts = self._special_counts or [GroupCounts(), GroupCounts(), GroupCounts()]
            tests = (np.isnan(plain), plain == np.inf, plain == -np.inf)
            nan, up, down = (
                special.apply(at, np.where(test, weights, np.int8(0)), bound) > 0
                for special, test in zip(self._special_counts, tests, strict=True)
            )
            out = np.where(up, np.inf, np.where(down, -np.inf, out))
            out[nan | (up & down)] = np.nan
        return out


def _subtract(limbs: I64, high: F64, exponent: int) -> F64:
    """What exact sums have more than their nearest doubles."""
    fraction, power = np.frexp(np.where(np.isfinite(high), high, 0.0))
    place = power.astype(np.int64) - 53 - exponent  # of the lowest bit of the double; below 0 nothing is left
    mantissa = np.where(place > 0, np.ldexp(fraction, 53), 0.0).astype(np.int64)
    limb, shift = np.divmod(np.maximum(place, 0), 32)
    size = np.abs(mantissa)
    low, top = (size & _DIGIT_MASK) << shift, (size >> 32) << shift
    top += low >> 32
    rest = np.zeros((limbs.shape[0], limbs.shape[1] + 3), np.int64)
    rest[:, : limbs.shape[1]] = limbs
    rest[:, limbs.shape[1] - 1] &= _DIGIT_MASK
    rest[:, limbs.shape[1] :] = (limbs[:, -1] >> 32)[:, np.newaxis]
    rest[:, limbs.shape[1] : -1] &= _DIGIT_MASK
    rows, sign = np.arange(limbs.shape[0]), np.sign(mantissa)
    for offset, piece in enumerate((low & _DIGIT_MASK, top & _DIGIT_MASK, top >> 32)):
        rest[rows, np.minimum(limb + offset, rest.shape[1] - 1)] -= sign * piece
    for column in range(rest.shape[1] - 1):
        carry = rest[:, column] >> 32
        rest[:, column] -= carry << 32
        rest[:, column + 1] += carry
    out = np.empty(limbs.shape[0])
    limbs_to_double(rest, exponent, out)
    return out
