"""Durations: `5 SECONDS` or a count of ticks, in units of a time column."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal, InvalidOperation

import pyarrow as pa
from sqlglot import exp

from penstock.errors import QueryError

_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_WRITTEN_UNITS = tuple((name + "s", size) for name, size in reversed(_MICROSECONDS.items()) if name != "week")
_CALENDAR_MONTHS = {"month": 1, "quarter": 3, "year": 12}
KNOWN_UNITS = ", ".join(name.upper() + "S" for name in _MICROSECONDS)
_MAX_DURATION = 2**62  # a time plus a duration fits 64 bits


def is_unit(word: str) -> bool:
    """Whether a word names a unit, in the singular or the plural."""
    return word.casefold().removesuffix("s") in _MICROSECONDS


def count_months(node: exp.Expr) -> int | None:
    """The months of an interval of months, quarters or years; None if it is not one."""
    unit = node.args.get("unit") if isinstance(node, exp.Interval) else None
    size = _CALENDAR_MONTHS.get(unit.name.casefold().removesuffix("s")) if isinstance(unit, exp.Var) else None
    amount = node.this.name if size is not None and isinstance(node.this, exp.Literal) else ""
    return int(amount) * size if size is not None and re.fullmatch(r"[+-]?\d{1,6}", amount) else None


def explain_unknown_unit(unit: str) -> str:
    """The message for a unit that is not known."""
    calendar = unit.casefold().removesuffix("s") in _CALENDAR_MONTHS
    length = (
        f"{unit.upper()} has no fixed length: it can be added to a date or timestamp, elsewhere write DAYS, such as 30 "
        "DAYS"
        if calendar
        else f"unknown unit {unit}"
    )
    return f"{length}; known are {KNOWN_UNITS}"


def convert_duration(number: str, unit: str | None, time_type: pa.DataType) -> int:
    """A number and its unit as an integer in the unit of a time column; raises QueryError if that is impossible."""
    try:
        value = Decimal(number)
    except InvalidOperation:
        raise QueryError("INVALID_DURATION", f"{number} is not a number") from None
    if not value.is_finite() or abs(value) > _MAX_DURATION:
        raise QueryError("INVALID_DURATION", f"{number} is out of range")
    if pa.types.is_timestamp(time_type):
        value = _to_microseconds(value, unit)
    elif unit is not None:
        message = f"{number} {unit} needs a timestamp, but time is counted in ticks ({time_type}); write a bare number"
        raise QueryError("DURATION_UNIT", message)
    if value != value.to_integral_value() or abs(value) > _MAX_DURATION:
        finest = "microseconds" if pa.types.is_timestamp(time_type) else "ticks"
        raise QueryError("INVALID_DURATION", f"{number} {unit or 'ticks'} is not a whole number of {finest} in range")
    return int(value)


def _to_microseconds(value: Decimal, unit: str | None) -> Decimal:
    if unit is None:
        message = f"{value} needs a unit because time is a timestamp; write {value} SECONDS or another of {KNOWN_UNITS}"
        raise QueryError("DURATION_UNIT", message)
    if not is_unit(unit):
        raise QueryError("UNKNOWN_UNIT", explain_unknown_unit(unit))
    return value * _MICROSECONDS[unit.casefold().removesuffix("s")]


def parse_duration(value: str | timedelta | int, time_type: pa.DataType) -> int:
    """`"5 seconds"`, a timedelta or a plain integer (already in the column's unit) as a non-negative integer."""
    if isinstance(value, timedelta):
        if not pa.types.is_timestamp(time_type):
            raise QueryError("DURATION_UNIT", f"a timedelta needs a timestamp time column, not {time_type}")
        amount = value // timedelta(microseconds=1)
    elif isinstance(value, int) and not isinstance(value, bool):
        amount = value
    elif isinstance(value, str) and 1 <= len(words := value.split()) <= 2:
        amount = convert_duration(words[0], words[1] if len(words) == 2 else None, time_type)
    else:
        raise QueryError("INVALID_DURATION", f'a duration is "5 seconds", a timedelta or an integer, not {value!r}')
    if not 0 <= amount <= _MAX_DURATION:
        raise QueryError("INVALID_DURATION", f"a duration lies between 0 and {_MAX_DURATION}, not {value!r}")
    return amount


def format_duration(amount: int, time_type: pa.DataType) -> str:
    """A duration in the largest unit that divides it, or in ticks for integer time."""
    if not pa.types.is_timestamp(time_type):
        return str(amount)
    unit, size = next((unit, size) for unit, size in _WRITTEN_UNITS if amount % size == 0)
    return f"{amount // size} {unit if amount != size else unit[:-1]}"
