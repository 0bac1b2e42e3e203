"""Range conditions between the sides of a join without equality, as numbers that a sorted index compares.

Law: if a pair of rows satisfies a range condition, the row's numbers lie in the ranges of the probe. The converse need
not hold: the predicates are tested on every pair that is found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.expr import Column
from penstock.plan import RangeCondition, StoredRange, orient_range
from penstock.state import F64, compute_ranges, to_floats

ColumnReader = Callable[[Column], pa.Array]


@dataclass(frozen=True)
class ProbeRanges:
    """By probe the smallest and largest number of a row, and the smallest second number if rows have one."""

    lows: F64
    highs: F64
    least: F64


def read_numbers(by: StoredRange, read: ColumnReader) -> list[F64]:
    """The numbers by which rows are stored: one, or two if they have the other end of an interval."""
    numbers = [to_floats(read(by.column))]
    if by.second is not None:
        second = to_floats(read(by.second))
        numbers.append(-second if by.mirrored else second)
    return numbers


def compute_probe_ranges(condition: RangeCondition, stored: Collection[str], read: ColumnReader) -> ProbeRanges:
    """The ranges of partners among the rows with the aliases `stored`, for probes whose columns are read by `read`."""
    lows, highs = _compute_bounds(condition, stored, read)
    if condition.second is None:
        return ProbeRanges(lows, highs, lows[:0])
    by, (second_lows, second_highs) = orient_range(condition, stored), _compute_bounds(condition.second, stored, read)
    if by.second is None:
        return ProbeRanges(np.maximum(lows, second_lows), np.minimum(highs, second_highs), lows[:0])
    return ProbeRanges(lows, highs, -second_highs if by.mirrored else second_lows)


def _compute_bounds(condition: RangeCondition, stored: Collection[str], read: ColumnReader) -> tuple[F64, F64]:
    """low <= left - right <= high as bounds on the stored side's number."""
    if condition.left.alias in stored:
        return compute_ranges(to_floats(read(condition.right)), condition.low, condition.high)
    return compute_ranges(to_floats(read(condition.left)), -condition.high, -condition.low)
