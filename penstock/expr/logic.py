"""Kernels of SQL's three-valued logic: comparisons, AND, OR, NOT, IN, LIKE, CASE and COALESCE.

Numbers compare as in Spark and DuckDB: NaN equals NaN and is greater than every other number, -0.0 equals 0.0.
IEEE kernels agree with this order if one side is a constant other than NaN, so such filters cost nothing extra.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.errors import UnsupportedError
from penstock.expr.convert import Datum
from penstock.expr.nodes import BOOL, Call, Op

Kernel = Callable[..., Datum]
Constants = Sequence[pa.Scalar | None]  # the value of each argument, None if it reads a column


def choose_comparison(op: Op, types: Sequence[pa.DataType]) -> Kernel:
    kernels = COMPARISON_KERNELS[op]
    return kernels.floats if any(map(pt.is_floating, types)) else kernels.plain


def _equal(a: Datum, b: Datum) -> Datum:
    same = pc.equal(a, b)
    if _is_non_nan_constant(a) or _is_non_nan_constant(b):
        return same
    nan = pc.and_(pc.is_nan(a), pc.is_nan(b))
    return same if isinstance(nan, pa.BooleanArray) and not nan.true_count else pc.or_(same, nan)


def _is_non_nan_constant(value: Datum) -> bool:
    """A constant other than NaN: IEEE comparisons with it are right about NaN, or right when inverted."""
    return isinstance(value, pa.Scalar) and not _is_nan(value.as_py())


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _less_equal(a: Datum, b: Datum) -> Datum:
    if _is_non_nan_constant(a):
        return pc.invert(pc.less(b, a))
    below = pc.less_equal(a, b)
    if _is_non_nan_constant(b):
        return below
    nan = pc.is_nan(b)
    return pc.or_(below, nan) if isinstance(nan, pa.Scalar) or nan.true_count else below


def _less(a: Datum, b: Datum) -> Datum:
    return pc.less(a, b) if _is_non_nan_constant(b) else pc.invert(_less_equal(b, a))


@dataclass(frozen=True)
class ComparisonKernels:
    """The kernels of one comparison."""

    plain: Kernel
    floats: Kernel
    constant: Callable[[Any, Any], Any]
    """A numpy array compared with a number other than NaN. NaN in the array is greater than every number."""


COMPARISON_KERNELS: dict[Op, ComparisonKernels] = {
    "=": ComparisonKernels(pc.equal, _equal, np.equal),
    "<>": ComparisonKernels(pc.not_equal, lambda a, b: pc.invert(_equal(a, b)), np.not_equal),
    "<": ComparisonKernels(pc.less, _less, np.less),
    "<=": ComparisonKernels(pc.less_equal, _less_equal, np.less_equal),
    ">": ComparisonKernels(pc.greater, lambda a, b: _less(b, a), lambda values, bound: ~(values <= bound)),
    ">=": ComparisonKernels(pc.greater_equal, lambda a, b: _less_equal(b, a), lambda values, bound: ~(values < bound)),
}


def make_comparison(call: Call, _constants: Constants) -> Kernel:
    return choose_comparison(call.op, [arg.type for arg in call.args])


def make_and(_call: Call, _constants: Constants) -> Kernel:
    return lambda *args: reduce(pc.and_kleene, args)


def make_or(_call: Call, _constants: Constants) -> Kernel:
    return lambda *args: reduce(pc.or_kleene, args)


def make_not(_call: Call, _constants: Constants) -> Kernel:
    return pc.invert  # type: ignore[no-any-return]


def make_is_null(_call: Call, _constants: Constants) -> Kernel:
    return pc.is_null  # type: ignore[no-any-return]


def make_is_not_false(_call: Call, _constants: Constants) -> Kernel:
    return lambda test: pc.fill_null(test, True)


def make_like(call: Call, constants: Constants) -> Kernel:
    pattern = constants[1]
    if pattern is None:
        raise UnsupportedError("LIKE_PATTERN", "the pattern of LIKE must be a constant", pattern=str(call.args[1]))
    if not pattern.is_valid:
        return lambda *_args: pa.scalar(None, BOOL)
    text = pattern.as_py()
    if "\\" not in text:
        return lambda value, _pattern: pc.match_like(value, text)
    regex = to_like_regex(text)  # match_like does not handle escapes correctly
    return lambda value, _pattern: pc.match_substring_regex(value, regex)


def to_like_regex(pattern: str) -> str:
    """LIKE as a regular expression; a backslash at the end is a plain backslash."""
    wild = {"%": ".*", "_": "."}
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    return "(?s)^" + "".join(wild.get(part) or re.escape(part[-1]) for part in parts) + "$"


def make_in(call: Call, constants: Constants) -> Kernel:
    """IN: a hash lookup in the constants, and one comparison for each other item."""
    sought = call.args[0].type
    equal = choose_comparison("=", [sought])
    hashed = [item for item in constants[1:] if item is not None and constants[0] is None and _is_hashable(item)]
    listed = pa.array([item for item in hashed if item.is_valid], sought)
    others = [index for index, item in enumerate(constants) if index and not any(item is each for each in hashed)]
    verdicts: list[Kernel] = [lambda *args, at=index: equal(args[0], args[at]) for index in others]
    if len(listed):
        verdicts.append(lambda *args: _is_in(args[0], listed))
    if len(listed) < len(hashed):
        verdicts.append(lambda *_args: pa.scalar(None, BOOL))
    return lambda *args: reduce(pc.or_kleene, [verdict(*args) for verdict in verdicts])


def _is_hashable(item: pa.Scalar) -> bool:
    """Whether equal values have equal bits, which the floats 0.0 and NaN do not."""
    return not (pt.is_floating(item.type) and (_is_nan(item.as_py()) or item.as_py() == 0))


def _is_in(value: Datum, listed: pa.Array) -> Datum:
    found = pc.is_in(value, value_set=listed)
    return pc.if_else(value.is_valid(), found, pa.scalar(None, BOOL)) if value.null_count else found


def make_case(_call: Call, _constants: Constants) -> Kernel:
    def kernel(*args: Datum) -> Datum:
        result = args[-1]
        for condition, value in zip(args[-3::-2], args[-2::-2], strict=True):
            result = pc.if_else(pc.fill_null(condition, False), value, result)
        return result

    return kernel


def make_coalesce(_call: Call, _constants: Constants) -> Kernel:
    return pc.coalesce  # type: ignore[no-any-return]
