"""The aggregates of groups whose rows come and go: counts, sums and averages, and the table of all others.

Law: at every point the result is the aggregate over the rows that the group has then. NULLs are ignored; without other
values the result is NULL (COUNT: 0). Sums are exact and rounded once, for the result, so that they depend on the rows
alone, not on the order in which they came and went: integers and decimals that do not fit their type are NULL, doubles
are rounded to the nearest. AVG is the sum as a double divided by the count.

State: a count; for sums see `exact_sum`, for MIN and MAX `extremes`, for variances `variance`, for percentiles, ARG_MIN
and lists `ordered`. Cost: O(1) a change; MIN, MAX, percentiles and ARG_MIN O(log n); lists O(n). No Python per row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from penstock.expr import Aggregate, divide_decimals, find_sum_type
from penstock.ops.aggregate.exact_sum import F64, ExactSum
from penstock.ops.aggregate.extremes import ExtremeAccumulator
from penstock.ops.aggregate.ordered import ChoiceAccumulator, ListAccumulator, PercentileAccumulator
from penstock.ops.aggregate.variance import VarianceAccumulator
from penstock.ops.protocol import I8
from penstock.ops.row_groups import ChangePoints, GroupCounts, Mask, zero_null_weights
from penstock.state import I64, Maintenance


class Accumulator(Protocol):
    """One aggregate over all groups."""

    def apply(self, at: ChangePoints, weights: I8, columns: Sequence[pa.Array], bound: int) -> pa.Array:
        """Apply changes, in the order of the points (weight 0: no change); returns the result at each point.

        The codes of all groups are below `bound`.
        """


def make_accumulator(aggregate: Aggregate, maintenance: Maintenance) -> Accumulator:
    """The accumulator of a built-in aggregate with an argument."""
    return ACCUMULATORS[aggregate.function](aggregate, maintenance)


class CountAccumulator:
    """COUNT(x)."""

    def __init__(self) -> None:
        self._counts = GroupCounts()

    def apply(self, at: ChangePoints, weights: I8, columns: Sequence[pa.Array], bound: int) -> pa.Array:
        (values,) = columns
        return pa.array(self._counts.apply(at, zero_null_weights(weights, values), bound))


# ── sums ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class SumAccumulator:
    """SUM(x)."""

    def __init__(self, type_: pa.DataType, result: pa.DataType) -> None:
        self._sum = ExactSum(type_)
        self._type = result

    def apply(self, at: ChangePoints, weights: I8, columns: Sequence[pa.Array], bound: int) -> pa.Array:
        (values,) = columns
        weights = zero_null_weights(weights, values)
        read = self._sum.apply_as_doubles if pt.is_floating(self._type) else self._sum.apply
        return finish_sum(read(at, weights, values, bound), self._type)


Sums = tuple[I64 | F64, I64]
"""Exact sums, as limbs or as doubles, and the numbers of values."""


def finish_sum(found: Sums, type_: pa.DataType) -> pa.Array:
    """SUM(x) from exact sums."""
    sums, counts = found
    if pt.is_floating(type_):
        return pa.array(sums, mask=counts == 0)
    return limbs_to_integers(sums.astype(np.int64, copy=False), type_, counts > 0)


def finish_average(found: Sums, total: pa.DataType | None, type_: pa.DataType) -> pa.Array:
    """AVG(x) from exact sums; `total` is the type of SUM(x) of decimals."""
    sums, counts = found
    if total is None:
        return pa.array(sums / np.maximum(counts, 1), mask=counts == 0)
    return divide_decimals(finish_sum(found, total), pa.array(np.maximum(counts, 1)), type_)


def find_total_type(type_: pa.DataType) -> pa.DataType | None:
    """The type of SUM(x) under AVG(x) of decimals; None for other numbers, whose sum is a double."""
    return find_sum_type(type_) if pt.is_decimal(type_) else None


def limbs_to_integers(limbs: I64, type_: pa.DataType, known: Mask) -> pa.Array:
    """Limbs as integers or decimals; NULL where they do not fit."""
    top = limbs[:, -1]
    words = (limbs[:, 1:-1:2] << 32) | limbs[:, 0:-1:2]
    sign = words[:, -1] >> 63
    known = known & (top == sign)
    if pt.is_decimal(type_):
        low, high = words[:, 0].view(np.uint64), words[:, 1]
        known &= _is_below(low, high, 10**type_.precision) & ~_is_below(low, high, 1 - 10**type_.precision)
        raw = np.ascontiguousarray(words)
        validity = pa.py_buffer(np.packbits(known, bitorder="little"))
        return pa.Array.from_buffers(type_, known.size, [validity, pa.py_buffer(raw)])
    return pa.array(np.ascontiguousarray(words[:, 0]), mask=~known).cast(type_)


def _is_below(low: np.ndarray[tuple[int], np.dtype[np.uint64]], high: I64, limit: int) -> Mask:
    """Whether numbers of 128 bits are below a limit."""
    limit_high, limit_low = limit >> 64, np.uint64(limit & (2**64 - 1))
    below: Mask = (high < limit_high) | ((high == limit_high) & (low < limit_low))
    return below


class AverageAccumulator:
    """AVG(x). Of decimals, the sum has the type of SUM(x): it is NULL while it does not fit."""

    def __init__(self, type_: pa.DataType, result: pa.DataType) -> None:
        self._sum = ExactSum(type_)
        self._type = result
        self._total_type = find_total_type(type_)

    def apply(self, at: ChangePoints, weights: I8, columns: Sequence[pa.Array], bound: int) -> pa.Array:
        (values,) = columns
        weights = zero_null_weights(weights, values)
        read = self._sum.apply_as_doubles if self._total_type is None else self._sum.apply
        return finish_average(read(at, weights, values, bound), self._total_type, self._type)


ACCUMULATORS: dict[str, Callable[[Aggregate, Maintenance], Accumulator]] = {
    "count": lambda _aggregate, _maintenance: CountAccumulator(),
    "sum": lambda aggregate, _maintenance: SumAccumulator(aggregate.args[0].type, aggregate.type),
    "avg": lambda aggregate, _maintenance: AverageAccumulator(aggregate.args[0].type, aggregate.type),
    "min": lambda aggregate, maintenance: ExtremeAccumulator(aggregate.type, maintenance, smallest=True),
    "max": lambda aggregate, maintenance: ExtremeAccumulator(aggregate.type, maintenance, smallest=False),
    **dict.fromkeys(
        ("var_samp", "var_pop", "stddev_samp", "stddev_pop"),
        lambda aggregate, _maintenance: VarianceAccumulator(aggregate.function),
    ),
    **dict.fromkeys(("percentile_cont", "percentile_disc"), PercentileAccumulator),
    **dict.fromkeys(("arg_min", "arg_max", "first", "last"), ChoiceAccumulator),
    **dict.fromkeys(("string_agg", "array_agg"), ListAccumulator),
}
"""The accumulators of the aggregates in `expr.aggregates.AGGREGATES`, by name."""
