"""Percentiles, ARG_MIN, ARG_MAX, FIRST, LAST, STRING_AGG and ARRAY_AGG: aggregates of the sorted rows of a group.

Law: at every point the rows that a group has then are sorted by the terms of the aggregate and, where these are equal,
by the value. A percentile reads one or two positions: PERCENTILE_CONT the place fraction * (n - 1), between two values
in proportion, PERCENTILE_DISC the first value at or after fraction * n. ARG_MIN and FIRST read the first row, ARG_MAX
and LAST the last one. STRING_AGG and ARRAY_AGG have all values. Rows that agree in all terms and the value are
interchangeable, so the result depends on the rows alone.
State: the sort words of every row, and a treap for each group. Cost: O(log n) a change; lists O(n) a change, which
is the length of its result. Python only for each new distinct text or decimal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.expr import DOUBLE, Aggregate
from penstock.ops.aggregate.exact_sum import F64
from penstock.ops.aggregate.order_kernels import CONTINUOUS, DISCRETE, FIRST, LAST, list_groups, select_positions
from penstock.ops.protocol import I8
from penstock.ops.rank.sort_words import SortWords
from penstock.ops.row_groups import ChangePoints, Mask
from penstock.plan import SortColumn
from penstock.state import I64, NONE, Maintenance


class OrderedGroups:
    """The rows of groups, each sorted by some columns. The last column is the value."""

    def __init__(self, columns: Sequence[tuple[SortColumn, pa.DataType]], maintenance: Maintenance) -> None:
        self._sort = SortWords(columns, maintenance)
        self.roots: I64 = np.full(1, NONE, np.int64)
        self.words: NDArray[np.int64] = np.zeros((1, self._sort.width), np.int64)
        self.left, self.right, self.size = (np.zeros(1, np.int64) for _ in range(3))
        self.freed: I64 = np.empty(0, np.int64)
        self._used: Mask = np.zeros(1, np.bool_)
        self._free: I64 = np.arange(1)
        self._live_count = 0

    def place(self, weights: I8, columns: Sequence[pa.Array], bound: int) -> I64:
        """A slot with the words of every change that counts. That of a row that leaves is to find an equal one."""
        changed = np.flatnonzero(weights)
        if bound > self.roots.size:
            more = (1 << (bound - 1).bit_length()) - self.roots.size
            self.roots = np.concatenate([self.roots, np.full(more, NONE, np.int64)])
        if changed.size > self._free.size:
            self._extend(changed.size)
        self._sort.recycle(self.words, self._used, self._live_count)
        taken, self._free = self._free[: changed.size], self._free[changed.size :]
        rows = pa.array(changed)
        self.words[taken] = self._sort.encode([column.take(rows) for column in columns], self.words, self._used)
        self._used[taken] = True
        self._live_count += int(weights.sum())
        self.freed = np.empty(2 * int(np.count_nonzero(weights < 0)), np.int64)
        slots = np.full(weights.size, NONE, np.int64)
        slots[changed] = taken
        return slots

    def _extend(self, count: int) -> None:
        old = self.left.size
        capacity = 1 << (old + count - 1).bit_length()
        self.words = np.concatenate([self.words, np.zeros((capacity - old, self.words.shape[1]), np.int64)])
        self._used = np.concatenate([self._used, np.zeros(capacity - old, np.bool_)])
        self.left, self.right, self.size = (
            np.concatenate([each, np.zeros(capacity - old, np.int64)]) for each in (self.left, self.right, self.size)
        )
        self._free = np.concatenate([self._free, np.arange(old, capacity)])

    def free(self) -> None:
        """Free the slots of rows that left. Their words can be read until the next call of `place`."""
        self._used[self.freed] = False
        self._free = np.concatenate([self._free, self.freed])

    def read_values(self, slots: I64) -> pa.Array:
        """The values of rows; NULL where there is no slot."""
        known: Mask = slots >= 0
        return self._sort.decode_last(self.words[np.where(known, slots, 0)], known)


class _SelectingAccumulator:
    """An aggregate that reads one position of a group, or a place between two."""

    def __init__(self, groups: OrderedGroups, kind: int, fraction: float = 0.0, *, descending: bool = False) -> None:
        self._groups = groups
        self._kind = kind
        self._fraction = fraction
        self._descending = descending

    def _select(self, at: ChangePoints, weights: I8, columns: Sequence[pa.Array], bound: int) -> tuple[I64, I64, F64]:
        """The slots of the two neighbours at each point, and the part of the way between them."""
        groups = self._groups
        slots = groups.place(weights, columns, bound)
        out, parts = np.empty((len(at), 2), np.int64), np.empty(len(at))
        select_positions(
            at.ends, at.codes, weights, slots, self._kind, self._fraction, self._descending,
            groups.roots, groups.words, groups.left, groups.right, groups.size, groups.freed, out, parts,
        )  # fmt: skip
        groups.free()
        return out[:, 0], out[:, 1], parts


class ChoiceAccumulator(_SelectingAccumulator):
    """ARG_MIN(x, y) and ARG_MAX(x, y): x of the row with the smallest or largest y; of equal ones the same of x."""

    def __init__(self, aggregate: Aggregate, maintenance: Maintenance) -> None:
        value, key = (arg.type for arg in aggregate.args)
        columns = [(SortColumn("key", False, True), key), (SortColumn("value", False, True), value)]
        kind = FIRST if aggregate.function in ("arg_min", "first") else LAST
        super().__init__(OrderedGroups(columns, maintenance), kind)

    def apply(self, at: ChangePoints, weights: I8, columns: Sequence[pa.Array], bound: int) -> pa.Array:
        value, key = columns
        return self._groups.read_values(self._select(at, weights, [key, value], bound)[0])


class PercentileAccumulator(_SelectingAccumulator):
    """PERCENTILE_CONT and PERCENTILE_DISC."""

    def __init__(self, aggregate: Aggregate, maintenance: Maintenance) -> None:
        self._is_continuous = aggregate.function == "percentile_cont"
        fraction, descending = aggregate.parameters
        columns = [(SortColumn("value", False, True), aggregate.args[0].type)]
        kind = CONTINUOUS if self._is_continuous else DISCRETE
        super().__init__(OrderedGroups(columns, maintenance), kind, fraction, descending=descending)

    def apply(self, at: ChangePoints, weights: I8, columns: Sequence[pa.Array], bound: int) -> pa.Array:
        low, high, parts = self._select(at, weights, columns, bound)
        values = self._groups.read_values(low)
        if not self._is_continuous:
            return values
        below, above = (
            each.cast(DOUBLE).fill_null(0.0).to_numpy(zero_copy_only=False)
            for each in (values, self._groups.read_values(high))
        )
        with np.errstate(invalid="ignore"):  # infinities
            between = np.where(parts > 0, below * (1 - parts) + above * parts, below)
        return pa.array(between, mask=low < 0)


class ListAccumulator:
    """STRING_AGG and ARRAY_AGG: the values of a group in their order, with a separator between them or as an array."""

    def __init__(self, aggregate: Aggregate, maintenance: Maintenance) -> None:
        value, *keys = (arg.type for arg in aggregate.args)
        self._type = aggregate.type
        self._separator, *orders = aggregate.parameters
        sorts = [(SortColumn("key", *order), key) for key, order in zip(keys, orders, strict=True)]
        self._groups = OrderedGroups([*sorts, (SortColumn("value", False, True), value)], maintenance)

    def apply(self, at: ChangePoints, weights: I8, columns: Sequence[pa.Array], bound: int) -> pa.Array:
        value, *keys = columns
        groups = self._groups
        slots = groups.place(weights, [*keys, value], bound)
        offsets = np.zeros(len(at) + 1, np.int64)
        found, _ = list_groups(
            at.ends, at.codes, weights, slots, groups.roots, groups.words, groups.left, groups.right, groups.size,
            groups.freed, offsets,
        )  # fmt: skip
        values = groups.read_values(found)
        groups.free()
        if self._separator is None:
            return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, self._type)
        lists = pa.LargeListArray.from_arrays(pa.array(offsets), values)
        joined = pc.binary_join(lists, self._separator).cast(pa.string())
        return pc.if_else(pa.array(np.diff(offsets) > 0), joined, pa.scalar(None, pa.string()))
