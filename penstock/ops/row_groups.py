"""Groups of rows and how their state changes: what DISTINCT, EXCEPT and GROUP BY have in common.

Law: rows are in one group exactly if their keys are the same, where NULL is NULL and NaN is NaN. A *point* is a group
at an instant at which it changed; each group has one more point before its first change. The difference between a point
and the one before it is what leaves and enters the answer, once an instant, however often the group changed in it.
State: a code for each key in use, and the number of each group's row in the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.ops.kernels import count_group_rows
from penstock.ops.protocol import I8, Changes
from penstock.plan import Key
from penstock.state import I32, I64, NONE, SHIPPED, KeySpace, Maintenance

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


def grow(array: np.ndarray[tuple[int, ...], np.dtype[np.int64]], size: int) -> I64:
    """The array, extended with zeros to at least `size` groups."""
    if size <= array.shape[0]:
        return array
    capacity = 1 << (size - 1).bit_length()
    return np.concatenate([array, np.zeros((capacity - array.shape[0], *array.shape[1:]), array.dtype)])


def zero_null_weights(weights: I8, values: pa.Array) -> I8:
    """The weights, 0 where the value is NULL."""
    if not values.null_count:
        return weights
    valid: Mask = values.is_valid().to_numpy(zero_copy_only=False)
    return np.where(valid, weights, np.int8(0))


class RowGroups:
    """Exact codes for keys of several columns. Without columns all rows are one group."""

    def __init__(self, types: Sequence[pa.DataType], maintenance: Maintenance = SHIPPED) -> None:
        self._keys = KeySpace(types, maintenance, null_is_value=True)

    @property
    def bound(self) -> int:
        """All codes are below this."""
        return self._keys.code_limit(self._keys.full_key)

    def encode(self, columns: Sequence[pa.Array], rows: int) -> I32:
        """The group of every row."""
        return self._keys.encode_columns(columns, rows, insert=True)

    def decode(self, codes: I32) -> list[pa.Array]:
        """The keys of groups, column by column."""
        return self._keys.decode_columns(codes)

    def recycle(self, counts: I64) -> None:
        """Free the codes of groups without rows, if many codes were added since the last time."""

        def list_used(key: Key) -> Sequence[I32]:
            return (np.flatnonzero(counts[: self.bound] > 0).astype(np.int32),) if key == self._keys.full_key else ()

        self._keys.recycle(list_used)


@dataclass(frozen=True)
class ChangePoints:
    """Groups at instants, sorted by group, then time. `first` marks the point before the first change of a group.

    `order` sorts the changes in the same way. Point p has seen the changes before `ends[p]`.
    """

    order: I64
    codes: I32
    times: I64
    ends: I64
    first: Mask

    def __len__(self) -> int:
        return self.codes.size

    @cached_property
    def last(self) -> I64:
        """The last point of every group."""
        return np.flatnonzero(np.append(self.first[1:], True))


def find_change_points(codes: I32, times: I64) -> ChangePoints:
    """The points of changes in temporal order."""
    order = np.argsort(codes, kind="stable")
    codes, times = codes[order], times[order]
    opens = np.ones(codes.size, np.bool_)  # whether a change is the first of its group
    opens[1:] = codes[1:] != codes[:-1]
    begins = opens.copy()
    begins[1:] |= times[1:] != times[:-1]
    starts = np.flatnonzero(begins)
    opens = opens[starts]
    ends = np.append(starts[1:], codes.size)
    repeats = 1 + opens
    at = np.repeat(np.arange(starts.size), repeats)
    first = np.zeros(at.size, np.bool_)
    first[np.cumsum(repeats)[opens] - 2] = True
    return ChangePoints(order, codes[starts][at], times[starts][at], np.where(first, starts[at], ends[at]), first)


class GroupCounts:
    """How many rows each group has."""

    def __init__(self) -> None:
        self.counts: I64 = np.zeros(1, np.int64)

    def apply(self, at: ChangePoints, weights: I8, bound: int) -> I64:
        """Apply changes (+1 or -1, in the order of the points); returns the count at every point."""
        self.counts = grow(self.counts, bound)
        out = np.empty(len(at), np.int64)
        count_group_rows(at.ends, at.codes, weights, self.counts, out)
        return out

    def get_counts(self, codes: I32) -> I64:
        """The count of groups that did not change."""
        known = codes < self.counts.size
        return np.where(known, self.counts[np.where(known, codes, 0)], 0)


class AnswerDiffer:
    """Computes which rows of groups enter and leave the answer. A row leaves with the number with which it entered."""

    def __init__(self) -> None:
        self._numbers: I64 = np.zeros(1, np.int64)
        self._next_number = 0

    def compute_changes(
        self, at: ChangePoints, present: Mask, columns: Mapping[str, pa.Array], bound: int
    ) -> Changes | None:
        """The changes of the answer. `columns` are the rows at the points, `present` marks those in the answer."""
        was = _read_previous(at, present)
        changed = was != present
        both = was & present & ~at.first
        if both.any():
            for column in columns.values():
                changed[1:] |= both[1:] & ~equals_previous(column)
        changed &= ~at.first

        def read(points: I64) -> dict[str, pa.Array]:
            taken = pa.array(points)
            return {name: column.take(taken) for name, column in columns.items()}

        return self._build_changes(at, changed & was, changed & present, read, bound)

    def compute_presence_changes(
        self, at: ChangePoints, present: Mask, read: Callable[[I32], dict[str, pa.Array]], bound: int
    ) -> Changes | None:
        """As `compute_changes` where the row of a group never changes; `read` returns the rows of groups."""
        return self.compute_row_changes(at, present, lambda points: read(at.codes[points]), bound)

    def compute_row_changes(
        self,
        at: ChangePoints,
        present: Mask,
        read: Callable[[I64], dict[str, pa.Array]],
        bound: int,
        marks: Mask | None = None,
    ) -> Changes | None:
        """As `compute_presence_changes`; `read` returns the rows at points. A row also changes with its mark."""
        was = _read_previous(at, present)
        changed = was != present
        if marks is not None:
            changed |= was & (marks != _read_previous(at, marks))
        changed &= ~at.first
        return self._build_changes(at, changed & was, changed & present, read, bound)

    def _build_changes(
        self, at: ChangePoints, left: Mask, entered: Mask, read: Callable[[I64], dict[str, pa.Array]], bound: int
    ) -> Changes | None:
        """The changes at some points; `read` returns the rows at points."""
        self._numbers = grow(self._numbers, bound)
        enters, leaves = np.flatnonzero(entered), np.flatnonzero(left)
        numbers = self._assign_numbers(at, enters)
        if not enters.size and not leaves.size:
            return None
        times = np.concatenate([at.times[leaves], at.times[enters]])
        order = np.argsort(times, kind="stable")  # within an instant, rows leave before others enter
        rows = np.concatenate([leaves - 1, enters])[order]
        signs = np.repeat(np.array([-1, 1], np.int8), [leaves.size, enters.size])[order]
        return Changes(times[order], read(rows), signs, numbers[rows])

    def _assign_numbers(self, at: ChangePoints, enters: I64) -> I64:
        """The number of each group's row at each point; rows that enter get new ones."""
        known: I64 = np.where(at.first, self._numbers[at.codes], NONE)
        known[enters] = self._next_number + np.arange(enters.size)
        self._next_number += enters.size
        origin = np.zeros(len(at), np.int64)
        first = np.flatnonzero(at.first)
        origin[first], origin[enters] = first, enters
        known = known[np.maximum.accumulate(origin)]
        self._numbers[at.codes[at.last]] = known[at.last]
        return known


def _read_previous(at: ChangePoints, present: Mask) -> Mask:
    """Whether the row of a group was in the answer at the point before."""
    was = np.zeros(len(at), np.bool_)
    was[1:] = present[:-1]
    return was & ~at.first


def make_empty_changes(columns: Mapping[str, pa.DataType]) -> Changes:
    """An empty batch of changes."""
    empty = np.empty(0, np.int64)
    return Changes(empty, {name: pa.array([], type_) for name, type_ in columns.items()}, empty.astype(np.int8), empty)


def equals_previous(column: pa.Array) -> Mask:
    """Whether each value but the first is the same as the one before it; NULL is NULL and NaN is NaN."""
    if pa.types.is_list(column.type):
        return _equals_previous_list(column)
    before, now = column.slice(0, len(column) - 1), column.slice(1)
    same = pc.equal(before, now)
    if pa.types.is_floating(column.type):
        same = pc.or_(same, pc.and_(pc.is_nan(before), pc.is_nan(now)))
    if column.null_count:
        nulls = pc.and_(before.is_null(), now.is_null())
        same = pc.or_(pc.fill_null(same, False), nulls)
    result: Mask = same.to_numpy(zero_copy_only=False)
    return result


def _equals_previous_list(column: pa.ListArray) -> Mask:
    """As `equals_previous`, for arrays: of the same length, and with the same values at every place."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    lengths, valid = np.diff(offsets), column.is_valid().to_numpy(zero_copy_only=False)
    same: Mask = (valid[1:] == valid[:-1]) & ((lengths[1:] == lengths[:-1]) | ~valid[1:])
    compared = np.flatnonzero(same & valid[1:] & (lengths[1:] > 0))
    if not compared.size:
        return same
    counts = lengths[compared]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    places = np.stack([np.repeat(offsets[compared + side], counts) + within for side in (0, 1)], axis=1)
    pairs = equals_previous(column.values.take(pa.array(places.ravel())))[::2]
    same[compared] = np.logical_and.reduceat(pairs, np.cumsum(counts) - counts)
    return same
