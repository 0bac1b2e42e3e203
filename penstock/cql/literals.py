"""Constants of a query and their casts. The binder casts a constant once."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

import pyarrow as pa

from penstock.expr import DOUBLE, INT, MAX_PRECISION, STRING, Literal, classify_type

_WIDE_CONTEXT = Context(prec=2 * MAX_PRECISION)
_POINT = re.compile(r"-?(\d+\.\d*|\.\d+)")
_BOOLEANS = {"true": True, "false": False}


def parse_number(text: str) -> Literal | None:
    """An integer as int64, digits with a point as a decimal, a number with an exponent as float64.

    A decimal has the digits that are written; with more than 38 it is a float64. None if the number is out of range.
    """
    if text.removeprefix("-").isdecimal():
        value = int(text) if len(text) < 30 else 2**63
        return Literal(value, INT) if -(2**63) <= value < 2**63 else None
    if _POINT.fullmatch(text):
        number = Decimal(text)
        scale = -int(number.as_tuple().exponent)
        precision = max(len(number.as_tuple().digits), scale)
        if precision <= MAX_PRECISION:
            return Literal(number, pa.decimal128(precision, scale))
    try:
        real = float(text)
    except ValueError:
        return None
    return Literal(real, DOUBLE) if abs(real) != float("inf") else None


def parse_timestamp(text: str) -> datetime | None:
    """A timestamp as a naive UTC datetime; a text without an offset is UTC."""
    try:
        value = datetime.fromisoformat(text.strip())
        return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    except (ValueError, OverflowError):
        return None


def parse_date(text: str) -> date | None:
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        return None


def cast_literal(literal: Literal, target: pa.DataType) -> Literal | None:
    """The constant in another type; None if the type cannot hold its value."""
    if literal.type == target or literal.value is None:
        return Literal(literal.value, target)
    try:
        value = _convert_value(literal.value, target)
        if value is None or pa.scalar(value, target).as_py() is None:
            return None
    except (ValueError, OverflowError, InvalidOperation, pa.ArrowInvalid, pa.ArrowTypeError):
        return None
    return Literal(value, target)


def _convert_value(value: object, target: pa.DataType) -> object:
    goal = classify_type(target)
    if isinstance(value, bool) and goal in ("integer", "float", "decimal"):
        value = int(value)
    match goal:
        case "integer":
            return _to_integer(value)
        case "float":
            return float(str(value)) if isinstance(value, (int, float, Decimal, str)) else None
        case "decimal":
            return _to_decimal(value, target.scale)
        case "boolean":
            return _BOOLEANS.get(value.strip().casefold()) if isinstance(value, str) else bool(value)
        case "timestamp":
            if isinstance(value, date) and not isinstance(value, datetime):
                return datetime(value.year, value.month, value.day)
            return parse_timestamp(value) if isinstance(value, str) else value
        case "date":
            if isinstance(value, datetime):
                return value.date()
            return parse_date(value) if isinstance(value, str) else value
        case "string":
            return _to_text(value)
    return value if isinstance(value, timedelta) else None


def _to_integer(value: object) -> int | None:
    """Truncated toward zero, as in SQL."""
    if isinstance(value, str):
        value = Decimal(value.strip())
        if value.is_finite() and value.adjusted() > MAX_PRECISION:
            return None  # int() would write out 1e999999999
    return int(value) if isinstance(value, (int, float, Decimal)) else None


def _to_decimal(value: object, scale: int) -> Decimal | None:
    if not isinstance(value, (int, float, Decimal, str)):
        return None
    return Decimal(str(value).strip()).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _WIDE_CONTEXT)


def _to_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(pa.scalar(value).cast(STRING).as_py()) if isinstance(value, (float, datetime)) else str(value)
