"""The rows of groups in temporal order, and columns of totals over them, for windows of any length.

Law: the aggregate of a group over the rows after `left` and up to `last` follows from what is stored at these two rows:
a count or an exact sum is the difference of two running totals, MIN and MAX follow from O(log n) stored minima. Nothing
depends on which windows there are, or on the order in which they are read. Rows that have left all windows are dropped;
the totals of later rows then start from the last row of the group that was dropped.

State: for each row its time, group and links, and what the columns store. Cost: O(1) a row, O(1) a range; MIN and MAX
O(log n) a range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from penstock.ops.aggregate.exact_sum import F64, make_limbs, to_doubles
from penstock.ops.aggregate.extremes import WordEncoder
from penstock.ops.aggregate.slice_kernels import (
    NEUTRAL,
    append_counts,
    append_limbs,
    append_minima,
    find_range_minima,
    link_rows,
    mark_last_rows,
    subtract_counts,
    subtract_limbs,
)
from penstock.ops.kernels import limbs_to_double
from penstock.ops.row_groups import RowGroups, grow
from penstock.state import I32, I64, NONE, Maintenance, allocate


@dataclass(frozen=True)
class Ranges:
    """Ranges of groups: the last row before each, and its last row."""

    left: I32
    last: I32

    def __len__(self) -> int:
        return self.last.size

    def slice(self, start: int, stop: int) -> Ranges:
        return Ranges(self.left[start:stop], self.last[start:stop])


@dataclass(frozen=True)
class DroppedRows:
    """The first rows of a history, which are dropped.

    `origins`: for every other row the last dropped row of its group, NONE without one.
    """

    count: int
    origins: I32


class HistoryColumn(Protocol):
    """What is stored for each row of a history."""

    def append(self, history: GroupHistory, first: int, values: pa.Array) -> None:
        """Store the values of the rows from `first` on."""

    def drop(self, dropped: DroppedRows, size: int) -> None:
        """Drop the first rows of a history of `size` rows."""


def grow_rows(array: I32, size: int) -> I32:
    """The array, extended with NONE to at least `size` entries."""
    if size <= array.size:
        return array
    capacity = 1 << (size - 1).bit_length()
    return np.concatenate([array, np.full(capacity - array.size, NONE, np.int32)])


def move_rows(rows: I32, count: int) -> I32:
    """Rows after the first `count` were dropped; those become NONE."""
    moved: I32 = np.maximum(rows - np.int32(count), np.int32(NONE))
    return moved


class GroupHistory:
    """The rows, linked by group."""

    def __init__(self) -> None:
        self.size = 0
        self.times: I64 = np.zeros(1, np.int64)
        self.ordinals: I64 = np.zeros(1, np.int64)
        self.depths: I64 = np.zeros(1, np.int64)
        self.codes, self.previous, self.jumps = (np.full(1, NONE, np.int32) for _ in range(3))
        self._tails: I32 = np.full(1, NONE, np.int32)

    def append(self, times: I64, codes: I32, bound: int) -> int:
        """Append rows in temporal order; returns the first of them. Codes are below `bound`."""
        first, self.size = self.size, self.size + times.size
        self.times, self.ordinals, self.depths = (
            grow(each, self.size) for each in (self.times, self.ordinals, self.depths)
        )
        self.codes, self.previous, self.jumps = (
            grow_rows(each, self.size) for each in (self.codes, self.previous, self.jumps)
        )
        self._tails = grow_rows(self._tails, bound)
        self.times[first : self.size], self.codes[first : self.size] = times, codes
        link_rows(
            first, self.size, self.codes, self._tails, self.previous, self.ordinals, self.jumps, self.depths
        )  # fmt: skip
        return first

    def count_rows(self, ranges: Ranges) -> I64:
        """COUNT(*)."""
        out = allocate(len(ranges), np.int64)
        subtract_counts(ranges.left, ranges.last, self.ordinals, out)
        return out

    def drop(self, count: int) -> DroppedRows:
        """Drop the first rows."""
        lasts: I32 = np.full(self._tails.size, NONE, np.int32)
        mark_last_rows(0, count, self.codes, lasts)
        dropped = DroppedRows(count, lasts[self.codes[count : self.size]])
        known = dropped.origins >= 0
        base = np.where(known, self.ordinals[np.where(known, dropped.origins, 0)], 0)
        kept = slice(count, self.size)
        self.size -= count
        self.times[: self.size], self.codes[: self.size] = self.times[kept].copy(), self.codes[kept].copy()
        for numbers in (self.ordinals, self.depths):
            numbers[: self.size] = numbers[kept] - base
        for rows in (self.previous, self.jumps):
            rows[: self.size] = move_rows(rows[kept], count)
        self._tails = move_rows(self._tails, count)
        return dropped


class CountTotals:
    """Running counts of values that are not NULL, or of rows with another property."""

    def __init__(self) -> None:
        self._totals: I64 = np.zeros(1, np.int64)

    def append(self, history: GroupHistory, first: int, values: pa.Array) -> None:
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        self.append_weights(history, first, valid.astype(np.int64))

    def append_weights(self, history: GroupHistory, first: int, weights: I64) -> None:
        self._totals = grow(self._totals, history.size)
        append_counts(first, history.size, weights, history.previous, self._totals)

    def read(self, ranges: Ranges) -> I64:
        out = allocate(len(ranges), np.int64)
        subtract_counts(ranges.left, ranges.last, self._totals, out)
        return out

    def drop(self, dropped: DroppedRows, size: int) -> None:
        _drop_totals(self._totals, dropped, size)


def _drop_totals(totals: I64, dropped: DroppedRows, size: int) -> None:
    known = np.flatnonzero(dropped.origins >= 0)
    kept = totals[dropped.count : size].copy()
    kept[known] -= totals[dropped.origins[known]]
    totals[: kept.shape[0]] = kept


class SumTotals:
    """Running exact sums, with the number of values."""

    def __init__(self, type_: pa.DataType) -> None:
        self._limbs = make_limbs(type_)
        self._is_floating = pt.is_floating(type_)
        self._counts = CountTotals()
        self._special_counts: list[CountTotals] = []  # of NaN, inf and -inf, once there was one

    def append(self, history: GroupHistory, first: int, values: pa.Array) -> None:
        valid = values.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        self._counts.append_weights(history, first, valid)
        pieces, starts = self._limbs.split_values(values)
        limbs = self._limbs.limbs = grow(self._limbs.limbs, history.size)
        pieces = np.ascontiguousarray(pieces[:, : limbs.shape[1]])
        append_limbs(first, history.size, valid, pieces, starts, history.previous, limbs)
        if self._is_floating:
            self._append_specials(history, first, to_doubles(values))

    def _append_specials(self, history: GroupHistory, first: int, values: F64) -> None:
        if not self._special_counts:
            if np.isfinite(values).all():
                return
            self._special_counts = [CountTotals(), CountTotals(), CountTotals()]
        tests = (np.isnan(values), values == np.inf, values == -np.inf)
        for totals, test in zip(self._special_counts, tests, strict=True):
            totals.append_weights(history, first, test.astype(np.int64))

    def read(self, ranges: Ranges) -> tuple[I64, I64]:
        """The sums as limbs, and the number of values."""
        limbs = self._limbs.limbs
        out = allocate(len(ranges) * limbs.shape[1], np.int64).reshape(len(ranges), limbs.shape[1])
        subtract_limbs(ranges.left, ranges.last, limbs, out)
        return out, self._counts.read(ranges)

    def read_as_doubles(self, ranges: Ranges) -> tuple[F64, I64]:
        """The sums as doubles, and the number of values."""
        limbs, counts = self.read(ranges)
        out = allocate(len(ranges), np.float64)
        limbs_to_double(limbs, self._limbs.exponent, out)
        if self._special_counts:
            nan, up, down = (totals.read(ranges) > 0 for totals in self._special_counts)
            out = np.where(up, np.inf, np.where(down, -np.inf, out))
            out[nan | (up & down)] = np.nan
        return out, counts

    def drop(self, dropped: DroppedRows, size: int) -> None:
        _drop_totals(self._limbs.limbs, dropped, size)
        for totals in (self._counts, *self._special_counts):
            totals.drop(dropped, size)


class RangeMinima:
    """MIN and MAX of ranges, of values of one word."""

    def __init__(self, type_: pa.DataType, *, smallest: bool) -> None:
        self._encoder = WordEncoder(type_)
        self._flip_mask = np.int64(0 if smallest else -1)
        self._words: I64 = np.zeros(1, np.int64)
        self._minima: I64 = np.zeros(1, np.int64)
        self._counts = CountTotals()

    def append(self, history: GroupHistory, first: int, values: pa.Array) -> None:
        self._counts.append(history, first, values)
        self._words, self._minima = grow(self._words, history.size), grow(self._minima, history.size)
        words = self._encoder.encode(values).words ^ self._flip_mask
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        self._words[first : history.size] = np.where(valid, words, NEUTRAL)
        append_minima(first, history.size, self._words, history.previous, history.jumps, self._minima)

    def read(self, history: GroupHistory, ranges: Ranges) -> pa.Array:
        out = allocate(len(ranges), np.int64)
        find_range_minima(
            ranges.left, ranges.last, history.ordinals, history.previous, history.jumps, history.depths,
            self._words, self._minima, out,
        )  # fmt: skip
        return self._encoder.decode(out ^ self._flip_mask, self._counts.read(ranges) > 0)

    def drop(self, dropped: DroppedRows, size: int) -> None:
        self._counts.drop(dropped, size)
        for numbers in (self._words, self._minima):
            numbers[: size - dropped.count] = numbers[dropped.count : size].copy()


class ValueLinks:
    """For COUNT(DISTINCT): the rows with the same value before and after a row in its group.

    A row that is after itself has NULL.
    """

    def __init__(self, type_: pa.DataType, maintenance: Maintenance) -> None:
        self.before: I32 = np.full(1, NONE, np.int32)
        self.after: I32 = np.full(1, NONE, np.int32)
        self._values = RowGroups([pa.int32(), type_], maintenance)
        self._history = GroupHistory()

    def append(self, history: GroupHistory, first: int, values: pa.Array) -> None:
        new = slice(first, history.size)
        codes = self._values.encode([pa.array(history.codes[new]), values], len(values))
        self._history.append(history.times[new], codes, self._values.bound)
        self.before, self.after = (grow_rows(each, history.size) for each in (self.before, self.after))
        rows = np.arange(first, history.size, dtype=np.int32)
        before = self._history.previous[new]
        null = values.is_null().to_numpy(zero_copy_only=False)
        linked = (before >= 0) & ~null
        self.before[new], self.after[new] = before, np.where(null, rows, NONE)
        self.after[before[linked]] = rows[linked]

    def drop(self, dropped: DroppedRows, size: int) -> None:
        self._history.drop(dropped.count)
        for rows in (self.before, self.after):
            rows[: size - dropped.count] = move_rows(rows[dropped.count : size], dropped.count)
        self._values.recycle(np.bincount(self._history.codes[: self._history.size], minlength=self._values.bound))
