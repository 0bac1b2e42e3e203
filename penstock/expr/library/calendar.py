"""Arithmetic of the calendar over columns. Instants with a zone are computed on the wall clock of that zone."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.expr.cast import try_cast
from penstock.expr.convert import Datum, floor_divide, null_unless, timestamp_to_timestamp, to_ticks
from penstock.expr.nodes import DOUBLE, INT, TIMESTAMP

_DAY = 86_400_000_000  # microseconds
_FIXED_UNITS = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
    "day": _DAY, "week": 7 * _DAY,
}  # fmt: skip
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
TRUNCATED_UNITS = (*_FIXED_UNITS, *_MONTHS)

PARTS = {
    "year": pc.year,
    "quarter": pc.quarter,
    "month": pc.month,
    "week": pc.iso_week,
    "day": pc.day,
    "doy": pc.day_of_year,
    "dayofweek": lambda values: pc.day_of_week(values, count_from_zero=False, week_start=7),
    "isodow": lambda values: pc.day_of_week(values, count_from_zero=False, week_start=1),
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
    "millisecond": lambda values: pc.add(pc.multiply(pc.second(values), 1000), pc.millisecond(values)),
    "epoch": lambda values: pc.divide(pc.cast(to_ticks(values, "us"), DOUBLE, safe=False), 1e6),
}
"""What DATE_PART and EXTRACT know, and how it is computed."""


def extract_part(part: str, values: Datum) -> Datum:
    return PARTS[part](values)


def floor_to_unit(unit: str, values: Datum) -> Datum:
    """The start of the unit, for instants whose result fits."""
    if unit == "microsecond":
        return values
    return pc.floor_temporal(values, unit=unit, week_starts_monday=True)


def to_count(values: Datum, unit: str) -> Datum:
    """Whole units since 1970, rounded down."""
    ticks = to_ticks(values, "us")
    return floor_divide(ticks, _FIXED_UNITS[unit]) if isinstance(ticks, pa.Array) else _count_scalar(ticks, unit)


def _count_scalar(ticks: pa.Scalar, unit: str) -> pa.Scalar:
    return floor_divide(pa.repeat(ticks, 1), _FIXED_UNITS[unit])[0]


def to_instants(values: Datum, per_second: int) -> Datum:
    """Counts of a unit since 1970 as timestamps; NULL where they do not fit.

    Fractions of a microsecond are cut off, as in Spark.
    """
    factor = 1_000_000 // per_second
    if pt.is_floating(values.type):
        micros = try_cast(pc.multiply(values, float(factor)), INT)
    elif pt.is_decimal(values.type):
        wide = try_cast(values, pa.decimal256(values.type.precision, values.type.scale))
        micros = try_cast(pc.multiply(wide, pa.scalar(Decimal(factor), pa.decimal256(7, 0))), INT)
    else:
        limit = ((1 << 63) - 1) // factor
        inside = pc.and_(pc.less_equal(values, limit), pc.greater_equal(values, -limit))
        micros = pc.multiply(null_unless(values, inside), factor)
    return micros.view(TIMESTAMP) if isinstance(micros, pa.Array) else pa.repeat(micros, 1).view(TIMESTAMP)[0]


def add_days(values: Datum, days: Datum) -> pa.Array:
    """The date or timestamp some days later on its calendar; NULL where it does not fit."""
    return _move(values, days, lambda local, count: local + count.astype("timedelta64[D]"))


def add_months(values: Datum, months: Datum) -> pa.Array:
    """The same day of another month, or its last day."""

    def move(local: Any, count: Any) -> Any:
        first = local.astype("datetime64[M]")
        day = local.astype("datetime64[D]")
        target = first + count.astype("timedelta64[M]")
        length = (target + np.timedelta64(1, "M")).astype("datetime64[D]") - target.astype("datetime64[D]")
        moved = target.astype("datetime64[D]") + np.minimum(day - first.astype("datetime64[D]"), length - 1)
        return moved.astype(local.dtype) + (local - day.astype(local.dtype))

    return _move(values, months, move)


def _move(values: Datum, amounts: Datum, move: Any) -> pa.Array:
    length = max(len(each) for each in (values, amounts) if isinstance(each, pa.Array))
    values, amounts = (each if isinstance(each, pa.Array) else pa.repeat(each, length) for each in (values, amounts))
    kind = values.type
    if pt.is_date32(kind):
        local: Any = values.view(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False).astype("datetime64[D]")
        per_unit, low, high = 1, -(2**31), 2**31 - 1
    else:
        wall = timestamp_to_timestamp(values, TIMESTAMP)
        local = wall.view(INT).fill_null(0).to_numpy(zero_copy_only=False).astype("datetime64[us]")
        per_unit, low, high = _DAY, -(2**63) + 1, 2**63 - 1
    counts = amounts.fill_null(0).to_numpy(zero_copy_only=False)
    # An estimate in floats decides what fits: a month has at most 31 days.
    estimate = local.astype(np.int64).astype(np.float64) + counts.astype(np.float64) * 31 * per_unit
    fits = (estimate > low) & (estimate < high)
    moved = move(local, np.where(fits, counts, 0)).astype(np.int64)
    known = pa.array(fits)
    for each in (values, amounts):
        known = pc.and_(known, each.is_valid())
    if pt.is_date32(kind):
        return null_unless(pa.array(moved.astype(np.int32)).view(kind), known)
    return timestamp_to_timestamp(null_unless(pa.array(moved).view(TIMESTAMP), known), kind)


def count_between(unit: str, start: Datum, end: Datum) -> Datum:
    """Whole units from one instant to another; a part of a unit does not count."""
    length = max(len(each) for each in (start, end) if isinstance(each, pa.Array))
    start, end = (each if isinstance(each, pa.Array) else pa.repeat(each, length) for each in (start, end))
    if unit in _FIXED_UNITS:
        return pc.divide(pc.subtract(to_ticks(end, "us"), to_ticks(start, "us")), _FIXED_UNITS[unit])
    first, last = (timestamp_to_timestamp(each, TIMESTAMP) for each in (start, end))
    months = pc.subtract(_count_months(last), _count_months(first))
    # The month in which the end lies counts if the start's day and time in it are not after the end.
    reached = add_months(first, months)
    behind = pc.and_(pc.greater(months, 0), pc.greater(reached, last))
    ahead = pc.and_(pc.less(months, 0), pc.less(reached, last))
    months = pc.subtract(months, pc.cast(behind, INT))
    months = pc.add(months, pc.cast(ahead, INT))
    return pc.divide(months, _MONTHS[unit])


def _count_months(values: pa.Array) -> pa.Array:
    return pc.add(pc.multiply(pc.year(values), 12), pc.month(values))
