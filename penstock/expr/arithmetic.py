"""Arithmetic kernels: overflow and division by zero are NULL for that row, never an error.

The fast path is one checked Arrow kernel. If it raises, because a row overflows or divides by zero, the batch is
computed again: integers exactly, as decimals, and cast back. A batch without such rows costs nothing extra. Timestamps
and durations are computed as integers: counts of the unit of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.errors import UnsupportedError
from penstock.expr.cast import try_cast
from penstock.expr.convert import (
    EXACT_CONTEXT,
    INTEGER_DECIMAL,
    MAX_DECIMAL_DIGITS,
    Datum,
    as_numpy,
    int_range,
    null_unless,
    round_to_decimal,
    to_ticks,
)
from penstock.expr.nodes import Call

Kernel = Callable[..., Datum]


@dataclass(frozen=True)
class ArithmeticKernels:
    """The kernels of one operator, by the family of its result."""

    integers: Kernel
    floats: Kernel
    decimals: Callable[[int], Kernel]
    """For the scale of the result. The kernel raises `ArrowInvalid` if it cannot be exact."""
    exact: Callable[..., Decimal]
    """One row of decimals, for rows beyond the widest type of Arrow."""
    divides: bool = False
    """Whether a second argument of zero gives NULL."""


def make_arithmetic(kernels: ArithmeticKernels) -> Callable[[Call, object], Kernel]:
    """Chooses the kernel of an operator by the type of its result."""

    def make(call: Call, _constants: object) -> Kernel:
        kind, types = call.type, [arg.type for arg in call.args]
        if pt.is_integer(kind):
            return _convert_arguments(kernels.integers, types, kind)
        if pt.is_floating(kind):
            return _convert_arguments(kernels.floats, types, kind)
        if pt.is_decimal(kind):
            return _make_decimal_kernel(kernels, kind)
        if (pt.is_timestamp(kind) or pt.is_duration(kind)) and not any(map(_is_fractional, types)):
            return lambda *args: kernels.integers(*(to_ticks(arg, kind.unit) for arg in args)).view(kind)
        signature = ", ".join(map(str, types))
        raise UnsupportedError("ARITHMETIC", f"no {call.op} of ({signature}) as {kind}", op=call.op, types=signature)

    return make


def _is_fractional(kind: pa.DataType) -> bool:
    return bool(pt.is_floating(kind) or pt.is_decimal(kind))


def _convert_arguments(kernel: Kernel, types: list[pa.DataType], kind: pa.DataType) -> Kernel:
    if all(arg == kind for arg in types):
        return kernel
    return lambda *args: kernel(*(try_cast(arg, kind) for arg in args))


def _null_where(divisor: Datum, refused: Datum) -> Datum:
    """The divisor, with NULL where the division is not allowed."""
    return pc.if_else(refused, pa.scalar(None, divisor.type), divisor)


# Integers


def _make_integer_kernel(checked: Kernel, unchecked: Kernel) -> Kernel:
    """The checked kernel; if it raises, the unchecked one over decimals that are wide enough."""

    def kernel(*args: Datum) -> Datum:
        try:
            return checked(*args)
        except pa.ArrowInvalid:
            wide = pa.decimal256(INTEGER_DECIMAL.precision, 0)
            return try_cast(unchecked(*(pc.cast(arg, wide) for arg in args)), args[0].type)

    return kernel


def _divide_integers(a: Datum, b: Datum) -> Datum:
    try:
        return pc.divide_checked(a, b)
    except pa.ArrowInvalid:
        kind = b.type
        refused = pc.equal(b, pa.scalar(0, kind))
        if pt.is_signed_integer(kind):
            least = pc.equal(a, pa.scalar(int_range(kind)[0], kind))
            refused = pc.or_(refused, pc.and_(least, pc.equal(b, pa.scalar(-1, kind))))
        return pc.divide(a, _null_where(b, refused))


def _compute_modulo(a: Datum, b: Datum) -> Datum:
    """The remainder with the sign of the dividend, for integers and floats."""
    valid = [arg.is_valid() for arg in (a, b) if isinstance(arg, pa.Array) and arg.null_count]
    if isinstance(b, pa.Array):
        if not (divisor := as_numpy(b)).all():
            valid.append(pc.not_equal(b, pa.scalar(0, b.type)))
    elif not b.is_valid or b.as_py() == 0:
        return pa.scalar(None, b.type)
    else:
        divisor = as_numpy(pa.repeat(b, 1))[0]
    if isinstance(a, pa.Scalar) and not a.is_valid:
        return a
    dividend = as_numpy(a) if isinstance(a, pa.Array) else as_numpy(pa.repeat(a, 1))[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        remainder = pa.array(np.fmod(dividend, divisor))
    for where in valid:
        remainder = null_unless(remainder, where)
    return remainder


# Floats


def _divide_floats(a: Datum, b: Datum) -> Datum:
    try:
        return pc.divide_checked(a, b)
    except pa.ArrowInvalid:
        return pc.divide(a, _null_where(b, pc.equal(b, pa.scalar(0.0, b.type))))


# Decimals


def _make_decimal_kernel(kernels: ArithmeticKernels, kind: pa.DataType) -> Kernel:
    """Arrow's kernels widen the type to be exact; beyond their widest type the digits in use are counted instead."""
    compute = kernels.decimals(kind.scale)

    def kernel(*args: Datum) -> Datum:
        args = tuple(arg if pt.is_decimal(arg.type) else try_cast(arg, INTEGER_DECIMAL) for arg in args)
        for prepare in (tuple, _shrink_precision):
            try:
                return try_cast(compute(*prepare(args)), kind)
            except pa.ArrowInvalid:
                continue
        return _compute_by_row(kernels, args, kind)

    return kernel


def _shrink_precision(args: tuple[Datum, ...]) -> list[Datum]:
    """The arguments as decimals with only as many digits as their values have."""
    return [pc.cast(arg, pa.decimal256(_count_digits(arg), arg.type.scale)) for arg in args]


def _count_digits(arg: Datum) -> int:
    extremes = pc.min_max(arg).as_py().values() if isinstance(arg, pa.Array) else [arg.as_py()]
    scale: int = arg.type.scale
    used: list[int] = [value.adjusted() + 1 + scale for value in extremes if value]
    return max([1, scale, *used])


def _make_decimal_divide(scale: int) -> Kernel:
    def divide(a: Datum, b: Datum) -> Datum:
        # Arrow truncates the quotient at a scale that it derives from the types. Rounding needs one digit more than
        # the result has.
        missing = scale - (a.type.scale + b.type.precision - b.type.scale)
        if missing > 0:
            a = pc.cast(a, pa.decimal256(min(a.type.precision + missing, MAX_DECIMAL_DIGITS), a.type.scale + missing))
        return pc.divide(a, _null_where(b, pc.equal(b, pa.scalar(Decimal(0), b.type))))

    return divide


def _compute_decimal_modulo(a: Datum, b: Datum) -> Datum:
    quotient = pc.trunc(_make_decimal_divide(0)(a, b))
    whole = quotient.type.precision - quotient.type.scale
    remainder = pc.subtract(a, pc.multiply(pc.cast(quotient, pa.decimal256(max(whole, 1), 0)), b))
    # trunc of a decimal256 can be wrong (see convert). The remainder must be less than the divisor and have the sign
    # of the dividend.
    side = pc.equal(pc.sign(remainder), pc.sign(a))
    right = pc.and_(pc.less(pc.abs(remainder), pc.abs(b)), pc.or_(side, pc.equal(pc.sign(remainder), 0)))
    if not pc.all(right, min_count=0).as_py():
        raise pa.ArrowInvalid("decimal256 truncated wrongly")
    return remainder


def _compute_by_row(kernels: ArithmeticKernels, args: tuple[Datum, ...], kind: pa.DataType) -> pa.Array:
    length = max(len(arg) for arg in args if isinstance(arg, pa.Array))
    columns = [arg.to_pylist() if isinstance(arg, pa.Array) else [arg.as_py()] * length for arg in args]

    def one(row: tuple[Any, ...]) -> Decimal | None:
        if None in row or (kernels.divides and not row[1]):
            return None
        return round_to_decimal(kernels.exact(*row), kind)

    return pa.array([one(row) for row in zip(*columns, strict=True)], kind)


def divide_decimals(dividend: pa.Array, divisor: pa.Array, kind: pa.DataType) -> pa.Array:
    """Decimals divided by integers or decimals, rounded half away from zero."""
    return _make_decimal_kernel(DIVIDE, kind)(dividend, divisor)


# Operators


def _combine(checked: Kernel, unchecked: Kernel, exact: Callable[..., Decimal]) -> ArithmeticKernels:
    """An operator for which Arrow has a checked and an unchecked kernel."""
    return ArithmeticKernels(_make_integer_kernel(checked, unchecked), unchecked, lambda _scale: unchecked, exact)


ADD = _combine(pc.add_checked, pc.add, EXACT_CONTEXT.add)
SUBTRACT = _combine(pc.subtract_checked, pc.subtract, EXACT_CONTEXT.subtract)
MULTIPLY = _combine(pc.multiply_checked, pc.multiply, EXACT_CONTEXT.multiply)
NEGATE = _combine(pc.negate_checked, pc.negate, EXACT_CONTEXT.minus)
ABS = _combine(pc.abs_checked, pc.abs, EXACT_CONTEXT.abs)
DIVIDE = ArithmeticKernels(_divide_integers, _divide_floats, _make_decimal_divide, EXACT_CONTEXT.divide, divides=True)
MODULO = ArithmeticKernels(
    _compute_modulo, _compute_modulo, lambda _scale: _compute_decimal_modulo, EXACT_CONTEXT.remainder, divides=True
)
