"""Evaluates expressions one row at a time in plain Python: slow, short and independent of the engine's evaluator.

Law: a NULL argument gives NULL, except in AND, OR, IS NULL, IN, CASE and COALESCE, which follow SQL. An overflow of the
type, a division by zero and a cast of a value that does not fit give NULL. NaN equals NaN and is greater than every
other number.

Values are plain: int, float, bool, str, decimal.Decimal. A timestamp or a duration is an int of microseconds, a date is
an int of days. `to_plain` and `from_plain` convert Arrow columns to and from them.

>>> table = pa.table({"x": [1, None], "y": [2, 3]})
>>> total = compile_expr(Call("+", (Column("a", "x", INT), Column("a", "y", INT)), INT))
>>> [total({"a": dict(zip(table.column_names, row))}) for row in zip(*(to_plain(c) for c in table.columns))]
[3, None]
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import UnsupportedError
from penstock.expr import INT, Aggregate, Call, Column, Expr, Literal
from penstock.testing.row_functions import DAY, EPOCH, ROW_FUNCTIONS, TYPED_ROW_FUNCTIONS, WIDE_CONTEXT

Row = Mapping[str, Any]
Env = Mapping[str, Row]  # alias -> row
Evaluator = Callable[[Env], Any]


def to_plain(array: Any) -> list[Any]:
    """An Arrow array or chunked array as plain values."""
    kind = array.type
    if pt.is_timestamp(kind):
        array = array.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    elif pt.is_duration(kind):
        array = array.cast(pa.duration("us"), safe=False).cast(pa.int64())
    elif pt.is_date(kind):
        array = array.cast(pa.date32()).cast(pa.int32())
    return list(array.to_pylist())


def from_plain(plain: Sequence[Any], kind: pa.DataType) -> Any:
    """Plain values as an Arrow array: the inverse of `to_plain`."""
    if pt.is_timestamp(kind):
        return pa.array(plain, pa.int64()).cast(pa.timestamp("us", kind.tz)).cast(kind)
    if pt.is_duration(kind):
        return pa.array(plain, pa.int64()).cast(pa.duration("us")).cast(kind)
    if pt.is_date(kind):
        return pa.array(plain, pa.int32()).cast(pa.date32()).cast(kind)
    return pa.array(plain, kind)


def to_comparison_key(value: Any) -> Any:
    """The key of a value in comparisons: NaN is one value, greater than all others; NULL has no key."""
    if isinstance(value, (list, dict, tuple)):
        return (0, _freeze(value))
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


def _freeze(value: Any) -> Hashable:
    """An array, a map or a struct as a value that can be a key."""
    if isinstance(value, dict):
        return tuple((name, _freeze(part)) for name, part in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(map(_freeze, value))
    return None if value is None else to_comparison_key(value)


def to_identity(row: Iterable[Any]) -> Hashable:
    """The key by which rows are compared: NULL equals NULL and NaN equals NaN."""
    return tuple(None if value is None else to_comparison_key(value) for value in row)


def compile_expr(expr: Expr) -> Evaluator:
    """The expression as a function of one row per alias."""
    if isinstance(expr, Column):
        alias, name = expr.alias, expr.name
        return lambda env: env[alias][name]
    if isinstance(expr, Literal):
        (constant,) = to_plain(pa.array([expr.value], expr.type))
        return lambda _env: constant
    if isinstance(expr, Aggregate):
        raise ValueError(f"{expr.function} is an aggregate: it has no value for one row")
    args = tuple(compile_expr(arg) for arg in expr.args)
    if expr.user is not None:
        return _compile_user_function(expr, expr.user.function, args)
    special = NULL_AWARE.get(expr.op)
    if special is not None:
        return lambda env: special([arg(env) for arg in args])
    strict = _compile_strict(expr)

    def null_in_null_out(env: Env) -> Any:
        operands = [arg(env) for arg in args]
        return None if any(operand is None for operand in operands) else strict(*operands)

    return null_in_null_out


def _compile_user_function(expr: Call, function: Callable[..., Any], args: Sequence[Evaluator]) -> Evaluator:
    """A user-defined function, called for one row at a time."""
    types = [arg.type for arg in expr.args]

    def call(env: Env) -> Any:
        arrays = [from_plain([arg(env)], type_) for arg, type_ in zip(args, types, strict=True)]
        result = function(*arrays)
        column = result if isinstance(result, pa.Array) else pa.array(result, from_pandas=True)
        (value,) = to_plain(column.cast(expr.type))
        return value

    return call


def _evaluate_and(operands: list[Any]) -> bool | None:
    if any(operand is False for operand in operands):
        return False
    return None if None in operands else True


def _evaluate_or(operands: list[Any]) -> bool | None:
    if any(operand is True for operand in operands):
        return True
    return None if None in operands else False


def _evaluate_in(operands: list[Any]) -> bool | None:
    sought, *listed = operands
    if sought is None:
        return None
    if any(item is not None and to_comparison_key(item) == to_comparison_key(sought) for item in listed):
        return True
    return None if None in listed else False


def _evaluate_case(operands: list[Any]) -> Any:
    for condition, value in zip(operands[:-1:2], operands[1::2], strict=True):
        if condition is True:
            return value
    return operands[-1]


def _evaluate_concat_ws(operands: list[Any]) -> str | None:
    separator, *texts = operands
    return None if separator is None else separator.join(text for text in texts if text is not None)


def _evaluate_extreme(operands: list[Any], choose: Callable[..., Any]) -> Any:
    known = [operand for operand in operands if operand is not None]
    return choose(known, key=to_comparison_key) if known else None


def _evaluate_nullif(operands: list[Any]) -> Any:
    first, second = operands
    equal = None not in operands and to_comparison_key(first) == to_comparison_key(second)
    return None if equal else first


NULL_AWARE: dict[str, Callable[[list[Any]], Any]] = {
    "and": _evaluate_and,
    "or": _evaluate_or,
    "in": _evaluate_in,
    "case": _evaluate_case,
    "is_null": lambda operands: operands[0] is None,
    "coalesce": lambda operands: next((operand for operand in operands if operand is not None), None),
    "if": lambda operands: operands[1] if operands[0] is True else operands[2],
    "nvl2": lambda operands: operands[2] if operands[0] is None else operands[1],
    "nullif": _evaluate_nullif,
    "concat_ws": _evaluate_concat_ws,
    "array": list,
    "named_struct": lambda operands: dict(zip(operands[::2], operands[1::2], strict=True)),
    "greatest": lambda operands: _evaluate_extreme(operands, max),
    "least": lambda operands: _evaluate_extreme(operands, min),
}

COMPARE_FUNCTIONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(to_comparison_key(a) == to_comparison_key(b)),
    "<>": lambda a, b: bool(to_comparison_key(a) != to_comparison_key(b)),
    "<": lambda a, b: bool(to_comparison_key(a) < to_comparison_key(b)),
    "<=": lambda a, b: bool(to_comparison_key(a) <= to_comparison_key(b)),
    ">": lambda a, b: bool(to_comparison_key(a) > to_comparison_key(b)),
    ">=": lambda a, b: bool(to_comparison_key(a) >= to_comparison_key(b)),
}


def _divide(a: Any, b: Any) -> Any:
    if b == 0:
        return None
    if isinstance(a, float) or isinstance(b, float):
        return float(a) / float(b)
    if isinstance(a, Decimal):
        return WIDE_CONTEXT.divide(a, b)
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _modulo(a: Any, b: Any) -> Any:
    if b == 0:
        return None
    if isinstance(a, float) or isinstance(b, float):
        return math.nan if math.isinf(a) else math.fmod(a, b)
    if isinstance(a, Decimal):
        return WIDE_CONTEXT.remainder(a, b)
    remainder = abs(a) % abs(b)
    return -remainder if a < 0 else remainder


ARITHMETIC: dict[str, Callable[..., Any]] = {
    "+": lambda a, b: WIDE_CONTEXT.add(a, b) if isinstance(a, Decimal) else a + b,
    "-": lambda a, b: WIDE_CONTEXT.subtract(a, b) if isinstance(a, Decimal) else a - b,
    "*": lambda a, b: WIDE_CONTEXT.multiply(a, b) if isinstance(a, Decimal) else a * b,
    "/": _divide,
    "%": _modulo,
    "neg": lambda a: WIDE_CONTEXT.minus(a) if isinstance(a, Decimal) else -a,
    "mod": _modulo,
    "abs": abs,
}


def _compile_strict(expr: Call) -> Callable[..., Any]:
    """The operator for operands that are not NULL."""
    if expr.op == "not":
        return lambda a: not a
    if expr.op == "like":
        return _match_like
    if expr.op == "cast":
        source, target = expr.args[0].type, expr.type
        return lambda a: cast_value(a, source, target)
    if expr.op in COMPARE_FUNCTIONS:
        return COMPARE_FUNCTIONS[expr.op]
    operate, kind = _find_operation(expr), expr.type
    # A date next to an interval counts as its midnight.
    in_time = pt.is_timestamp(kind) or pt.is_duration(kind)
    scales = [DAY if in_time and pt.is_date(arg.type) and expr.op in ARITHMETIC else 1 for arg in expr.args]

    def arithmetic(*operands: Any) -> Any:
        scaled = [a * scale if scale != 1 else a for a, scale in zip(operands, scales, strict=True)]
        return fit_to_type(operate(*scaled), kind)

    return arithmetic


def _find_operation(expr: Call) -> Callable[..., Any]:
    if expr.op in ARITHMETIC:
        return ARITHMETIC[expr.op]
    typed = TYPED_ROW_FUNCTIONS.get(expr.op)
    found = ROW_FUNCTIONS.get(expr.op) if typed is None else typed(expr)
    if found is None:
        kinds = ", ".join(str(arg.type) for arg in expr.args)
        raise UnsupportedError("ORACLE_EXPRESSION", f"the oracle does not compute {expr.op} of {kinds}")
    return found


def fit_to_type(value: Any, kind: pa.DataType) -> Any:
    """The value if its type can hold it, else NULL; decimals are rounded half away from zero to their scale."""
    if value is None:
        return None
    if pt.is_decimal(kind):
        try:
            rounded = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, WIDE_CONTEXT)
        except InvalidOperation:
            return None
        return rounded if len(rounded.as_tuple().digits) <= kind.precision else None
    if pt.is_floating(kind):
        return float(value)
    if isinstance(value, int) and not isinstance(value, bool):
        bits = kind.bit_width
        return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None
    return value


def _match_like(text: str, pattern: str) -> bool:
    parts, at = [], 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\" and at + 1 < len(pattern):
            at += 1
            parts.append(re.escape(pattern[at]))
        else:
            parts.append({"%": ".*", "_": "."}.get(char) or re.escape(char))
        at += 1
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def cast_value(value: Any, source: pa.DataType, target: pa.DataType) -> Any:
    """CAST of one value that is not NULL; a value that cannot be cast gives NULL."""
    try:
        return _cast_or_raise(value, source, target)
    except (ValueError, OverflowError, InvalidOperation):
        return None


def _cast_or_raise(value: Any, source: pa.DataType, target: pa.DataType) -> Any:
    if source.equals(target):
        return value
    if pt.is_list(target):
        return [None if part is None else cast_value(part, source.value_type, target.value_type) for part in value]
    if pt.is_string(target) or pt.is_large_string(target):
        return _format_value(value, source)
    if isinstance(value, str):
        return _parse_text(value.strip(), target)
    if pt.is_boolean(target):
        return bool(value)
    if pt.is_integer(target):
        if isinstance(value, Decimal):
            value = value.to_integral_value(ROUND_DOWN)
        return fit_to_type(int(value), target)
    if pt.is_date(target):
        return value // DAY if pt.is_timestamp(source) else int(value)
    if pt.is_timestamp(target) and pt.is_date(source):
        return fit_to_type(value * DAY, INT)
    return fit_to_type(value, target)


def _parse_text(text: str, target: pa.DataType) -> Any:
    if pt.is_boolean(target):
        return {"true": True, "false": False, "t": True, "f": False, "1": True, "0": False}.get(text.lower())
    if pt.is_integer(target):
        return fit_to_type(int(text), target) if re.fullmatch(r"[+-]?\d+", text) else None
    if pt.is_date(target):
        return (datetime.date.fromisoformat(text) - EPOCH.date()).days
    if pt.is_timestamp(target):
        return (datetime.datetime.fromisoformat(text) - EPOCH) // datetime.timedelta(microseconds=1)
    return fit_to_type(Decimal(text) if pt.is_decimal(target) else float(text), target)


def _format_value(value: Any, source: pa.DataType) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if pt.is_date(source):
        return (EPOCH + datetime.timedelta(days=value)).date().isoformat()
    if pt.is_timestamp(source):
        return (EPOCH + datetime.timedelta(microseconds=value)).isoformat(" ")
    return f"{value:f}" if isinstance(value, Decimal) else str(value)
