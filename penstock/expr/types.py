"""The families of Arrow types that expressions use, and the type that two types have in common. Pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import UnsupportedError
from penstock.expr.nodes import DOUBLE, INT

NULL = pa.null()  # the type of a NULL literal until its context gives it another
MAX_PRECISION = 38  # digits of a decimal
MIN_ADJUSTED_SCALE = 6  # digits after the point of a quotient, and what is left of them in a result that is too wide

TypeKind = Literal[
    "null",
    "boolean",
    "integer",
    "float",
    "decimal",
    "string",
    "date",
    "timestamp",
    "interval",
    "array",
    "map",
    "struct",
]

SPARK_TYPE_NAMES: dict[pa.DataType, str] = {
    pa.null(): "void",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
}


_TYPE_TESTS: dict[TypeKind, Callable[[pa.DataType], bool]] = {
    "integer": pt.is_integer,
    "float": pt.is_floating,
    "decimal": pt.is_decimal,
    "boolean": pt.is_boolean,
    "string": lambda given: bool(pt.is_string(given) or pt.is_large_string(given)),
    "date": pt.is_date32,
    "timestamp": pt.is_timestamp,
    "interval": pt.is_duration,
    "array": pt.is_list,
    "map": pt.is_map,
    "struct": pt.is_struct,
}


def classify_type(given: pa.DataType) -> TypeKind:
    """The family of a type; "null" for NULL and for types that expressions do not have."""
    return next((name for name, matches in _TYPE_TESTS.items() if matches(given)), "null")


def is_nested(given: pa.DataType) -> bool:
    """Whether a value has parts: an array, a map or a struct. These are read by their parts, and not compared."""
    return classify_type(given) in ("array", "map", "struct")


def is_numeric(given: pa.DataType) -> bool:
    return classify_type(given) in ("integer", "float", "decimal")


def is_instant(given: pa.DataType) -> bool:
    """Whether a value is a point in time; a date counts as its midnight."""
    return classify_type(given) in ("date", "timestamp")


def as_decimal(given: pa.DataType) -> pa.DataType:
    """The decimal that Spark gives an integer type, which holds all its values; a decimal is itself."""
    if pt.is_decimal(given):
        return given
    return pa.decimal128({8: 3, 16: 5, 32: 10, 64: 20}[given.bit_width], 0)


def find_common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type in which values of both types can be compared or be in one column; None if there is none."""
    if left == right:
        return left
    kinds = {classify_type(left), classify_type(right)}
    if "null" in kinds:
        return right if classify_type(left) == "null" else left
    if kinds == {"array"}:
        element = find_common_type(left.value_type, right.value_type)
        return None if element is None else pa.list_(element)
    if kinds == {"integer"}:
        return left if left.bit_width >= right.bit_width else right
    if kinds <= {"integer", "decimal"}:
        return _find_common_decimal(as_decimal(left), as_decimal(right))
    if kinds <= {"integer", "decimal", "float"}:
        return DOUBLE
    if kinds == {"date", "timestamp"}:
        return left if classify_type(left) == "timestamp" else right
    if kinds == {"timestamp"}:
        return left if left.tz else right
    return None


def _find_common_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Beyond 38 digits the digits before the point are kept, and those after it are rounded."""
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return pa.decimal128(min(whole + scale, MAX_PRECISION), min(scale, MAX_PRECISION - whole))


def _adjust_decimal(precision: int, scale: int) -> pa.DataType:
    """The decimal of a result, by Spark's rule for results of more than 38 digits.

    The digits before the point are kept as far as six digits after it, or all of fewer, remain.
    """
    if precision <= MAX_PRECISION:
        return pa.decimal128(precision, scale)
    whole = precision - scale
    return pa.decimal128(MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, MIN_ADJUSTED_SCALE)))


def find_sum_type(given: pa.DataType) -> pa.DataType:
    """The type of SUM over decimals: ten digits more."""
    return pa.decimal128(min(given.precision + 10, MAX_PRECISION), given.scale)


def find_average_type(given: pa.DataType) -> pa.DataType:
    """The type of AVG over decimals: four digits more after the point."""
    return pa.decimal128(min(given.precision + 4, MAX_PRECISION), min(given.scale + 4, MAX_PRECISION))


def find_arithmetic_type(op: str, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type of `left op right` over numbers, by the rules of Spark; None if one is not a number."""
    if not (is_numeric(left) and is_numeric(right)):
        return None
    kinds = {classify_type(left), classify_type(right)}
    if "float" in kinds:
        return DOUBLE
    if kinds == {"integer"}:
        return INT
    one, two = as_decimal(left), as_decimal(right)
    (p1, s1), (p2, s2) = (one.precision, one.scale), (two.precision, two.scale)
    match op:
        case "*":
            return _adjust_decimal(p1 + p2 + 1, s1 + s2)
        case "/":
            scale = max(MIN_ADJUSTED_SCALE, s1 + p2 + 1)
            return _adjust_decimal(p1 - s1 + s2 + scale, scale)
        case "%":
            scale = max(s1, s2)
            return _adjust_decimal(min(p1 - s1, p2 - s2) + scale, scale)
    scale = max(s1, s2)
    return _adjust_decimal(max(p1 - s1, p2 - s2) + 1 + scale, scale)


def format_spark_type(kind: pa.DataType) -> str:
    """The name Spark gives a type."""
    if pt.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pt.is_timestamp(kind):
        return "timestamp"
    if pt.is_duration(kind):
        return "interval day to second"
    match classify_type(kind):
        case "array":
            return f"array<{format_spark_type(kind.value_type)}>"
        case "map":
            return f"map<{format_spark_type(kind.key_type)},{format_spark_type(kind.item_type)}>"
        case "struct":
            return f"struct<{','.join(f'{field.name}:{format_spark_type(field.type)}' for field in kind)}>"
    if kind not in SPARK_TYPE_NAMES:
        raise UnsupportedError("TYPE_NAME", f"Spark SQL has no name for the type {kind}", type=str(kind))
    return SPARK_TYPE_NAMES[kind]
