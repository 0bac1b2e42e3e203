"""Conversions between numbers and between times, whole columns at once, with NULL where a value does not fit.

A conversion first tries one checked Arrow kernel. If the kernel raises, the rows that do not fit are found and set to
NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.expr.nodes import INT

Datum = Any  # pa.Array | pa.Scalar

UNITS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
SECONDS_PER_DAY = 86_400  # seconds
INTEGER_DECIMAL = pa.decimal128(20, 0)  # holds every 64-bit integer, signed or not
MAX_DECIMAL_DIGITS = 76  # digits of a decimal256
EXACT_CONTEXT = Context(prec=2 * MAX_DECIMAL_DIGITS)


def null_unless(values: pa.Array, where: pa.Array) -> pa.Array:
    """The values where the mask is true, NULL elsewhere."""
    return pc.if_else(where, values, pa.scalar(None, values.type))


def int_range(kind: pa.DataType) -> tuple[int, int]:
    bits = kind.bit_width
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if pt.is_signed_integer(kind) else (0, (1 << bits) - 1)


def round_to_decimal(value: Decimal | None, kind: pa.DataType) -> Decimal | None:
    """The value rounded half away from zero to the scale of the type; None if it has too many digits or is NaN."""
    if value is None or not value.is_finite():
        return None
    try:
        rounded = value.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, EXACT_CONTEXT)
    except InvalidOperation:
        return None
    return rounded if rounded == 0 or rounded.adjusted() + kind.scale < kind.precision else None


def map_distinct(values: pa.Array, convert: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    """Call `convert`, a Python function, once for each distinct value; None becomes NULL."""
    encoded = values.dictionary_encode()
    converted = [convert(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(converted, kind).take(encoded.indices)


# Numbers


def int_to_int(values: pa.Array, kind: pa.DataType) -> pa.Array:
    with suppress(pa.ArrowInvalid):
        return pc.cast(values, kind)
    (low, high), (least, most) = int_range(values.type), int_range(kind)
    return pc.cast(null_unless(values, _is_between(values, max(low, least), min(high, most))), kind)


def _is_between(values: pa.Array, low: object, high: object) -> pa.Array:
    kind = values.type
    return pc.and_(pc.greater_equal(values, pa.scalar(low, kind)), pc.less_equal(values, pa.scalar(high, kind)))


def int_to_float(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return pc.cast(values, kind, safe=False)  # a checked cast raises for integers beyond 2**53; they are rounded


def int_to_decimal(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return decimal_to_decimal(pc.cast(values, INTEGER_DECIMAL), kind)


def bool_to_decimal(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return int_to_decimal(pc.cast(values, pa.int8()), kind)


def float_to_int(values: pa.Array, kind: pa.DataType) -> pa.Array:
    whole = pc.trunc(values)
    with suppress(pa.ArrowInvalid):
        return pc.cast(whole, kind)
    low, high = int_range(kind)
    # Both limits are powers of two (or 0), hence exact as floats; NaN is in no range.
    inside = pc.and_(pc.greater_equal(whole, float(low)), pc.less(whole, float(high + 1)))
    return pc.cast(null_unless(whole, inside), kind)


def float_to_decimal(values: pa.Array, kind: pa.DataType) -> pa.Array:
    digits = kind.precision - kind.scale  # before the point
    spare = 18  # with so many more digits any float differs from the tie next to it
    if kind.precision + spare + 1 >= MAX_DECIMAL_DIGITS:
        return map_distinct(values, lambda value: round_to_decimal(Decimal(value), kind), kind)
    inside = pc.less_equal(pc.abs(values), float(10**digits))
    wide = pa.decimal256(kind.precision + spare + 1, kind.scale + spare)
    return decimal_to_decimal(pc.cast(null_unless(values, inside), wide), kind)


def decimal_to_float(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Through text, because Arrow's own cast does not always give the nearest float."""
    return pc.cast(pc.cast(values, pa.string()), kind)


def decimal_to_int(values: pa.Array, kind: pa.DataType) -> pa.Array:
    source = values.type
    if source.precision == source.scale:  # all values are below 1, where trunc raises
        return null_unless(pa.repeat(pa.scalar(0, kind), len(values)), values.is_valid())
    whole = pc.trunc(values) if source.scale else values
    with suppress(pa.ArrowInvalid):
        return pc.cast(whole, kind)
    low, high = (pa.scalar(Decimal(limit), pa.decimal256(20, 0)) for limit in int_range(kind))
    wide = pc.cast(whole, pa.decimal256(MAX_DECIMAL_DIGITS, source.scale))
    return pc.cast(null_unless(whole, pc.and_(pc.greater_equal(wide, low), pc.less_equal(wide, high))), kind)


def decimal_to_decimal(values: pa.Array, kind: pa.DataType) -> pa.Array:
    source = values.type
    if source.precision - source.scale <= kind.precision - kind.scale:  # else Arrow may wrap around silently
        with suppress(pa.ArrowInvalid):
            return pc.cast(values, kind)
    with suppress(pa.ArrowInvalid):
        rounded = _round_decimal(values, kind.scale) if kind.scale < values.type.scale else values
        digits = kind.precision - kind.scale
        limit = pa.scalar(Decimal(10) ** digits, pa.decimal256(digits + 1, 0))
        return pc.cast(null_unless(rounded, pc.less(pc.abs(rounded), limit)), kind)
    return map_distinct(values, lambda value: round_to_decimal(value, kind), kind)


def _round_decimal(values: pa.Array, scale: int) -> pa.Array:
    """The values rounded half away from zero, in a type wide enough for 9.99 to become 10.0."""
    source = values.type
    wide = pa.decimal128 if source.precision < 38 else pa.decimal256
    values = pc.cast(values, wide(source.precision + 1, source.scale))
    rounded = pc.round(values, ndigits=scale, round_mode="half_towards_infinity")
    if wide is pa.decimal256:
        # Arrow (at least version 26) divides some decimal256 by a power of ten with a quotient that is one too small,
        # for example the truncation of 9...9.97938 with 37 nines. Therefore the result is checked.
        half = pa.scalar(Decimal(5).scaleb(-scale - 1), pa.decimal256(scale + 2, scale + 1))
        error = pc.subtract(pc.abs(rounded), pc.abs(values))  # positive away from zero
        right = pc.and_(pc.less_equal(error, half), pc.greater(error, pc.negate(half)))
        if not pc.all(right, min_count=0).as_py():
            raise pa.ArrowInvalid("decimal256 rounded wrongly")
    return rounded


def decimal_to_bool(values: pa.Array, _kind: pa.DataType) -> pa.Array:
    return pc.not_equal(values, pa.scalar(Decimal(0), values.type))


# Time


def to_ticks(value: Datum, unit: str) -> Datum:
    """A timestamp, duration or date as an int64 count of `unit` since the epoch; an integer is a count already."""
    kind = value.type
    if pt.is_integer(kind):
        return pc.cast(value, INT)
    if isinstance(value, pa.Scalar):
        return to_ticks(pa.repeat(value, 1), unit)[0]
    if pt.is_date32(kind):
        return _multiply(value.view(pa.int32()).cast(INT), SECONDS_PER_DAY * UNITS_PER_SECOND[unit])
    return _rescale(value.view(INT), UNITS_PER_SECOND[kind.unit], UNITS_PER_SECOND[unit])


def _multiply(ints: pa.Array, factor: int) -> pa.Array:
    with suppress(pa.ArrowInvalid):
        return pc.multiply_checked(ints, factor)
    low, high = int_range(INT)
    return pc.multiply(null_unless(ints, _is_between(ints, -(-low // factor), high // factor)), factor)


def _rescale(ints: pa.Array, source: int, target: int) -> pa.Array:
    """Counts of 1/source seconds as counts of 1/target seconds, floored."""
    if source == target:
        return ints
    if source < target:
        return _multiply(ints, target // source)
    return floor_divide(ints, source // target)


def floor_divide(ints: pa.Array, divisor: int) -> pa.Array:
    quotient = pa.array(as_numpy(ints) // divisor)
    return null_unless(quotient, ints.is_valid()) if ints.null_count else quotient


def as_numpy(values: pa.Array) -> np.ndarray[Any, Any]:
    """The data buffer of a primitive array as numpy, without a copy; slots of NULLs hold arbitrary values."""
    dtype = np.dtype(values.type.to_pandas_dtype())
    buffer = values.buffers()[1]
    if buffer is None:
        return np.zeros(len(values), dtype)
    return np.frombuffer(buffer, dtype, len(values), values.offset * dtype.itemsize)


def timestamp_to_timestamp(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.type.tz is not None and kind.tz is None:
        values = pc.local_timestamp(values)
    elif values.type.tz is None and kind.tz is not None:
        values = pc.assume_timezone(values, kind.tz, ambiguous="earliest", nonexistent="earliest")
    return to_ticks(values, kind.unit).view(kind)


def duration_to_duration(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return to_ticks(values, kind.unit).view(kind)


def date_to_timestamp(values: pa.Array, kind: pa.DataType) -> pa.Array:
    midnight = to_ticks(values, kind.unit).view(pa.timestamp(kind.unit))
    return timestamp_to_timestamp(midnight, kind)


def timestamp_to_date(values: pa.Array, kind: pa.DataType) -> pa.Array:
    local = pc.local_timestamp(values) if values.type.tz is not None else values
    days = floor_divide(local.view(INT), SECONDS_PER_DAY * UNITS_PER_SECOND[values.type.unit])
    return int_to_int(days, pa.int32()).view(kind)
