"""The rank operator: ROW_NUMBER, RANK and DENSE_RANK of the rows of partitions, and the first rows of each.

Law: at every instant the rows of a partition are ordered by the sort terms and, where these are equal, by all columns
in their order, ascending with NULLs first. A row is in the answer while its rank is above `offset` and at most `limit`.
Rows that agree in all columns are interchangeable, so the answer depends on values alone. A row leaves and another
enters at an instant only if the answer has other values: with a column for the rank, also if a rank changes.

State: all rows of the input, as codes of their values, and a treap for each partition. It follows from the current
rows of the input. Cost: O(log n) for a change below the limit; O(log n + limit) for one that touches the first rows,
O(log n + ties) with RANK, O(n) without a limit and with DENSE_RANK.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.ops.change_operators import ChangeOperator
from penstock.ops.protocol import Changes, Inlet, Outlet
from penstock.ops.rank.kernels import DENSE_RANK, RANK, ROW_NUMBER, rank_changes
from penstock.ops.rank.sort_words import SortWords
from penstock.ops.row_groups import ChangePoints, RowGroups, find_change_points, grow
from penstock.plan import RankPart
from penstock.state import I32, I64, NONE, SHIPPED, Maintenance, NumberMap

_FUNCTIONS = {"row_number": ROW_NUMBER, "rank": RANK, "dense_rank": DENSE_RANK}


class RankOperator(ChangeOperator):
    """The ranked rows of a part."""

    def __init__(
        self, id_: str, inlet: Inlet, outlet: Outlet, part: RankPart, maintenance: Maintenance = SHIPPED
    ) -> None:
        super().__init__(id_, inlet, outlet, part.types)
        self._part = part
        self._partitions = RowGroups([dict(part.columns)[name] for name in part.partition], maintenance)
        self._members: I64 = np.zeros(1, np.int64)
        self._roots: I64 = np.full(1, NONE, np.int64)
        self._rows = _RankedRows(part, maintenance)
        self._answer = _Answer(maintenance)

    def _apply_changes(self, changes: Changes) -> Changes | None:
        if not len(changes):
            return None
        part = self._part
        self._partitions.recycle(self._members)
        codes = self._partitions.encode([changes.columns[name] for name in part.partition], len(changes))
        at = find_change_points(codes, changes.times)
        changes, codes = changes.take(at.order), codes[at.order]
        self._members = grow(self._members, self._partitions.bound)
        np.add.at(self._members, codes, changes.signs)
        if self._partitions.bound > self._roots.size:
            more = (1 << (self._partitions.bound - 1).bit_length()) - self._roots.size
            self._roots = np.concatenate([self._roots, np.full(more, NONE, np.int64)])
        slots = self._rows.locate(changes)
        rows = self._rows
        lines = rank_changes(
            at.ends, at.codes, changes.signs, slots, _FUNCTIONS[part.function], 2 * len(part.order), part.offset,
            -1 if part.limit is None else part.limit, self._roots, rows.words, rows.left, rows.right, rows.size,
        )  # fmt: skip
        if part.rank is None:
            lines[:, 3] = 0
        elif part.function == "row_number":
            lines[:, 4] = 0  # a number is there once
        changed = self._answer.compute_changes(at, rows.codes[lines[:, 2]], lines)
        shown = None if changed is None else self._build(*changed)
        rows.free(slots[changes.signs < 0])
        return shown

    def _count_rows(self) -> int:
        return len(self._rows)

    def _build(self, times: I64, signs: I64, numbers: I64, codes: I32, ranks: I64) -> Changes:
        part = self._part
        values = dict(zip((name for name, _ in part.columns), self._rows.decode(codes), strict=True))
        columns = {name: values[name] for name in part.shown}
        if part.rank is not None:
            columns[part.rank] = pa.array(ranks)
        return Changes(times, columns, signs.astype(np.int8), numbers)


class _RankedRows:
    """The rows of all partitions, each in a slot: a code for its values, its words, and its place in a treap."""

    def __init__(self, part: RankPart, maintenance: Maintenance) -> None:
        self._names = [name for name, _ in part.columns]
        self._values = RowGroups([kind for _, kind in part.columns], maintenance)
        self._counts: I64 = np.zeros(1, np.int64)
        self._sorted = part.sort_columns
        types = dict(part.columns)
        self._sort = SortWords([(column, types[column.name]) for column in self._sorted], maintenance)
        self._slots = NumberMap(maintenance)
        capacity = 16
        self.codes: I32 = np.zeros(capacity, np.int32)
        self.words: NDArray[np.int64] = np.zeros((capacity, self._sort.width), np.int64)
        self.left, self.right, self.size = (np.zeros(capacity, np.int64) for _ in range(3))
        self._free: I64 = np.arange(capacity)
        self._free_count = capacity
        self._used = np.zeros(capacity, np.bool_)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def locate(self, changes: Changes) -> I64:
        """The slot of every change; rows that enter get new ones."""
        self._values.recycle(self._counts)
        slots = np.empty(len(changes), np.int64)
        enters = np.flatnonzero(changes.signs > 0)
        slots[enters] = self._add(changes.take(enters))
        leaves = np.flatnonzero(changes.signs < 0)
        slots[leaves] = self._slots.pop(changes.numbers[leaves])
        return slots

    def _add(self, rows: Changes) -> I64:
        count = len(rows)
        if count > self._free_count:
            self._extend(count)
        self._free_count -= count
        slots = self._free[self._free_count : self._free_count + count].copy()
        self._sort.recycle(self.words, self._used, len(self))
        values = [rows.columns[column.name] for column in self._sorted]
        self.words[slots] = self._sort.encode(values, self.words, self._used)
        self.codes[slots] = self._values.encode([rows.columns[name] for name in self._names], count)
        self._counts = grow(self._counts, self._values.bound)
        np.add.at(self._counts, self.codes[slots], 1)
        self._used[slots] = True
        self._count += count
        self._slots.put(rows.numbers, slots)
        return slots

    def _extend(self, count: int) -> None:
        old = self.codes.size
        capacity = 1 << (old + count - 1).bit_length()
        self.codes = np.concatenate([self.codes, np.zeros(capacity - old, np.int32)])
        self._used = np.concatenate([self._used, np.zeros(capacity - old, np.bool_)])
        self.words = np.concatenate([self.words, np.zeros((capacity - old, self.words.shape[1]), np.int64)])
        self.left, self.right, self.size = (
            np.concatenate([each, np.zeros(capacity - old, np.int64)]) for each in (self.left, self.right, self.size)
        )
        free = np.concatenate([self._free[: self._free_count], np.arange(old, capacity)])
        self._free, self._free_count = np.concatenate([free, np.zeros(capacity - free.size, np.int64)]), free.size

    def free(self, slots: I64) -> None:
        """Rows that have left."""
        self._used[slots] = False
        self._count -= slots.size
        np.subtract.at(self._counts, self.codes[slots], 1)
        self._free[self._free_count : self._free_count + slots.size] = slots
        self._free_count += slots.size

    def decode(self, codes: I32) -> list[pa.Array]:
        return self._values.decode(codes)


class _Answer:
    """The rows in the answer: value, rank and copy, each with the number with which it entered."""

    def __init__(self, maintenance: Maintenance) -> None:
        self._groups = RowGroups([pa.int32(), pa.int64(), pa.int64()], maintenance)
        self._present: I64 = np.zeros(1, np.int64)
        self._numbers: I64 = np.zeros(1, np.int64)
        self._next_number = 0

    def compute_changes(
        self, at: ChangePoints, codes: I32, lines: NDArray[np.int64]
    ) -> tuple[I64, I64, I64, I32, I64] | None:
        """Times, signs, numbers, values and ranks of what leaves and enters, given the top rows around points."""
        points, signs, ranks, copies = lines[:, 0], lines[:, 1], lines[:, 3], lines[:, 4]
        self._groups.recycle(self._present)
        names = self._groups.encode([pa.array(codes), pa.array(ranks), pa.array(copies)], codes.size)
        order = np.lexsort((signs, points, names))
        names, points, signs = names[order], points[order], signs[order]
        stays = np.zeros(order.size, np.bool_)
        stays[1:] = (names[1:] == names[:-1]) & (points[1:] == points[:-1])
        stays[:-1] |= stays[1:]
        kept = np.flatnonzero(~stays)
        if not kept.size:
            return None
        names, points, signs, order = names[kept], points[kept], signs[kept], order[kept]
        bound = self._groups.bound
        self._present, self._numbers = grow(self._present, bound), grow(self._numbers, bound)
        numbers = np.empty(kept.size, np.int64)
        enters, leaves = np.flatnonzero(signs > 0), np.flatnonzero(signs < 0)
        numbers[enters] = self._next_number + np.arange(enters.size)
        self._next_number += enters.size
        follows = np.zeros(kept.size, np.bool_)  # whether the event before is of the same row
        follows[1:] = names[1:] == names[:-1]
        numbers[leaves] = np.where(follows[leaves], numbers[leaves - 1], self._numbers[names[leaves]])
        last = np.flatnonzero(np.append(names[1:] != names[:-1], True))
        self._numbers[names[last]] = numbers[last]
        self._present[names[last]] = signs[last] > 0
        times = at.times[points]
        sequence = np.lexsort((signs, times))
        chosen = order[sequence]
        return times[sequence], signs[sequence], numbers[sequence], codes[chosen], ranks[chosen]
