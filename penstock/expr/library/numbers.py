"""Functions of numbers. What overflows, or has no value, is NULL for that row, or NaN where Spark has NaN."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.expr import arithmetic
from penstock.expr.arithmetic import make_arithmetic
from penstock.expr.cast import try_cast
from penstock.expr.convert import Datum
from penstock.expr.function import Function
from penstock.expr.logic import Constants, Kernel
from penstock.expr.nodes import DOUBLE, INT, Call, Expr, Literal
from penstock.expr.parameters import take
from penstock.expr.rowwise import make_plain
from penstock.expr.type_rules import Mismatch, Signature, type_arithmetic, type_signed
from penstock.expr.types import MAX_PRECISION, NULL, classify_type, is_numeric

_DOUBLE = take("double", result=DOUBLE)


def _type_whole(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """FLOOR and CEIL: a BIGINT of integers and floats, a decimal without a fraction of a decimal."""
    given = args[0].type
    if given == NULL:
        return Signature((INT,), INT)
    if not is_numeric(given):
        return Mismatch((0,))
    if classify_type(given) == "decimal":
        digits = min(given.precision - given.scale + 1, MAX_PRECISION)
        return Signature((given,), pa.decimal128(digits, 0))
    return Signature((INT if classify_type(given) == "integer" else DOUBLE,), INT)


def _make_whole(kernel: Kernel) -> Callable[[Call, Constants], Kernel]:
    def make(call: Call, _constants: Constants) -> Kernel:
        given = call.args[0].type
        if classify_type(given) == "integer":
            return lambda values: values
        if classify_type(given) == "float":
            return lambda values: try_cast(kernel(values), call.type)
        # One digit more, because 9.9 becomes 10.
        wide = pa.decimal256(given.precision + 1, given.scale)
        return lambda values: try_cast(kernel(pc.cast(values, wide)), call.type)

    return make


def _type_round(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """The type of the number; a decimal has as many digits after the point as it is rounded to."""
    given = args[0].type
    digits = args[1].value if len(args) > 1 and isinstance(args[1], Literal) else 0
    if given != NULL and not is_numeric(given):
        return Mismatch((0,))
    if not isinstance(digits, int) or (len(args) > 1 and not isinstance(args[1], Literal)):
        return Mismatch((1,))
    rest = (INT,) * (len(args) - 1)
    match classify_type(given):
        case "float":
            return Signature((DOUBLE, *rest), DOUBLE)
        case "decimal":
            scale = min(max(digits, 0), given.scale)
            return Signature((given, *rest), pa.decimal128(min(given.precision - given.scale + scale + 1, 38), scale))
    return Signature((INT, *rest), INT)


def _make_round(call: Call, constants: Constants) -> Kernel:
    known = constants[1] if len(constants) > 1 else None
    digits = 0 if known is None else known.as_py()
    given = call.args[0].type
    if classify_type(given) == "float":
        return lambda values, *_digits: _round_doubles(values, digits)
    if classify_type(given) == "integer":
        if digits >= 0:
            return lambda values, *_digits: values
        wide = pa.decimal128(21, 0)
        return lambda values, *_digits: try_cast(_round(try_cast(values, wide), max(digits, -20)), call.type)
    return lambda values, *_digits: try_cast(values, call.type) if digits >= 0 else _round_left(values, digits, call)


def _round(values: Datum, digits: int) -> Datum:
    return pc.round(values, ndigits=digits, round_mode="half_towards_infinity")


def _round_left(values: Datum, digits: int, call: Call) -> Datum:
    given = call.args[0].type
    if -digits >= given.precision - given.scale:
        digits = -(given.precision - given.scale)
    return try_cast(_round(pc.cast(values, pa.decimal256(given.precision + 1, given.scale)), digits), call.type)


def _round_doubles(values: Datum, digits: int) -> Datum:
    return values if digits > 300 else _round(values, max(digits, -308))


def _positive(kernel: Kernel) -> Kernel:
    """A logarithm, NULL for numbers that have none."""

    def compute(values: Datum) -> Datum:
        return kernel(pc.if_else(pc.less_equal(values, 0.0), pa.scalar(None, DOUBLE), values))

    return compute


def _log(base: Datum, values: Datum | None = None) -> Datum:
    """LOG(x) is the natural logarithm, LOG(base, x) one to a base, as in Spark."""
    if values is None:
        return _positive(pc.ln)(base)
    divisor = _positive(pc.ln)(base)
    return pc.divide(_positive(pc.ln)(values), pc.if_else(pc.equal(divisor, 0.0), pa.scalar(None, DOUBLE), divisor))


def _make_double_function(name: str, kernel: Kernel, meaning: str, *, duckdb: str | None = None) -> Function:
    return Function(
        name,
        make_plain(kernel),
        type_rule=_DOUBLE,
        mismatch=f"{name.upper()} needs a number, not",
        arity=(1, 1),
        usage=f"{name.upper()}(x)",
        meaning=meaning,
        duckdb=duckdb,
    )


FUNCTIONS = (
    Function(
        "abs",
        make_arithmetic(arithmetic.ABS),
        type_rule=type_signed,
        mismatch="ABS needs a number, not",
        arity=(1, 1),
        usage="ABS(x)",
        meaning="the value without its sign",
    ),
    Function(
        "sign",
        make_plain(pc.sign),
        type_rule=type_signed,
        mismatch="SIGN needs a number, not",
        arity=(1, 1),
        aliases=("signum",),
        usage="SIGN(x)",
        meaning="-1, 0 or 1, in the type of the number",
    ),
    Function(
        "mod",
        make_arithmetic(arithmetic.MODULO),
        type_rule=type_arithmetic,
        mismatch="cannot compute MOD of",
        arity=(2, 2),
        usage="MOD(a, b), a % b",
        meaning="the remainder, with the sign of `a`; NULL if `b` is 0",
    ),
    Function(
        "round",
        _make_round,
        type_rule=_type_round,
        mismatch="ROUND needs a number and a constant number of digits, not",
        arity=(1, 2),
        usage="ROUND(x, digits)",
        meaning="rounded half away from zero, by default to a whole number; in the type of the number",
    ),
    Function(
        "floor",
        _make_whole(pc.floor),
        type_rule=_type_whole,
        mismatch="FLOOR needs a number, not",
        arity=(1, 1),
        usage="FLOOR(x)",
        meaning="the largest whole number that is not larger, as a BIGINT; of a decimal as a decimal",
        duckdb="TRY_CAST(floor({0}) AS BIGINT)",
    ),
    Function(
        "ceil",
        _make_whole(pc.ceil),
        type_rule=_type_whole,
        mismatch="CEIL needs a number, not",
        arity=(1, 1),
        aliases=("ceiling",),
        usage="CEIL(x)",
        meaning="the smallest whole number that is not smaller, as a BIGINT; of a decimal as a decimal",
        duckdb="TRY_CAST(ceil({0}) AS BIGINT)",
    ),
    _make_double_function("sqrt", pc.sqrt, "the square root; NaN of negative numbers"),
    Function(
        "power",
        make_plain(pc.power),
        type_rule=_DOUBLE,
        mismatch="POWER needs numbers, not",
        arity=(2, 2),
        aliases=("pow",),
        usage="POWER(x, y)",
        meaning="`x` to the power of `y`",
        duckdb="pow({0}, {1})",
    ),
    _make_double_function("exp", pc.exp, "e to the power of `x`", duckdb="exp({0})"),
    _make_double_function("ln", _positive(pc.ln), "the natural logarithm; NULL if there is none"),
    _make_double_function("log10", _positive(pc.log10), "the logarithm to the base 10; NULL if there is none"),
    _make_double_function("log2", _positive(pc.log2), "the logarithm to the base 2; NULL if there is none"),
    Function(
        "log",
        make_plain(_log),
        type_rule=_DOUBLE,
        mismatch="LOG needs numbers, not",
        arity=(1, 2),
        usage="LOG(x), LOG(base, x)",
        meaning="the natural logarithm, or one to a base, as in Spark; NULL if there is none",
    ),
    _make_double_function("sin", pc.sin, "the sine of an angle in radians"),
    _make_double_function("cos", pc.cos, "the cosine"),
    _make_double_function("tan", pc.tan, "the tangent"),
    _make_double_function("asin", pc.asin, "the inverse of SIN; NaN outside of -1 to 1"),
    _make_double_function("acos", pc.acos, "the inverse of COS; NaN outside of -1 to 1"),
    _make_double_function("atan", pc.atan, "the inverse of TAN"),
    Function(
        "atan2",
        make_plain(pc.atan2),
        type_rule=_DOUBLE,
        mismatch="ATAN2 needs numbers, not",
        arity=(2, 2),
        usage="ATAN2(y, x)",
        meaning="the angle of the point (x, y), in radians",
    ),
    _make_double_function("degrees", lambda x: pc.multiply(x, 180.0 / math.pi), "radians as degrees"),
    _make_double_function("radians", lambda x: pc.multiply(x, math.pi / 180.0), "degrees as radians"),
)
