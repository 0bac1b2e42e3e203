"""The table of a node state: rows of a join node, in chains per key code.

Law: `probe` returns every stored row with the probe's code whose interval overlaps the probe's. Rows are kept until a
rebuild finds them dead; a dead row never matches, because intervals that do not overlap stay so.

State per row: key code, born, dies, chain link, one id per alias, and whether the row belongs to the current batch.
Cost: O(1) per insert; a rebuild each time the table has doubled since the last one; O(1) for another order of aliases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.join.join_rows import JoinRows
from penstock.join.range_probes import ProbeRanges
from penstock.join.row_kernels import NO_MARKS, ChainTarget, KeyColumn, append_rows
from penstock.join.row_set import RowSet
from penstock.plan import StoredRange
from penstock.state import (
    F64,
    I32,
    I64,
    NO_AGE_LIMIT,
    NONE,
    U8,
    Maintenance,
    Mask,
    PairBlock,
    ProbeBuffer,
    ProbeTarget,
    SortedIndex,
    chain_append,
    empty_codes,
    grow_array,
    probe_chain,
    ring_take,
)

_NO_RING = -1  # as a mask it keeps every position


class RowTable:
    """A growing table of rows with one chain per key code."""

    def __init__(self, width: int, maintenance: Maintenance) -> None:
        self._width = width
        self._maintenance = maintenance
        self._allocate(maintenance.state_capacity)
        self._fresh_from = 0
        self._rebuild_at = float(maintenance.rebuild_rows)

    def _allocate(self, capacity: int) -> None:
        self.size = 0
        self._codes = empty_codes(capacity)
        self._born: I64 = np.empty(capacity, np.int64)
        self._dies: I64 = np.empty(capacity, np.int64)
        self._next_older: I64 = np.empty(capacity, np.int64)
        self._fresh: U8 = np.zeros(capacity, np.uint8)
        self._ids: NDArray[np.int64] = np.empty((self._width, capacity), np.int64)
        self._lines: I64 | None = None
        """By the place of an alias, its line in `_ids`; None if the lines are in the order of the aliases."""
        self._head: I64 = np.full(capacity, NONE, np.int64)
        self._row_set = RowSet()
        self._sorted_index: SortedIndex | None = None
        self._sorted_by: StoredRange | None = None

    def __len__(self) -> int:
        return self.size

    @property
    def nbytes(self) -> int:
        arrays = (self._codes, self._born, self._dies, self._next_older, self._fresh, self._ids, self._head)
        return sum(array.nbytes for array in arrays) + self._row_set.nbytes

    def find_absent(self, rows: JoinRows) -> Mask:
        """Which rows the table does not hold. The caller must insert exactly those, in this order."""
        ids = rows.ids if self._lines is None else rows.ids[np.argsort(self._lines)]
        return self._row_set.add(ids, self._ids, self.size)

    def append(self, rows: JoinRows, key: KeyColumn, code_limit: int) -> None:
        """As `insert`, for rows with a tuple of this batch."""
        line, ring = key
        if self._lines is not None:
            codes = ring if line == NONE else ring_take(ring, rows.ids[line])
            self.insert(rows, codes, code_limit, fresh=True)
            return
        first = self._make_room(len(rows), code_limit)
        append_rows(
            rows.ids, rows.born, rows.dies, line, ring, first, True,
            self._codes, self._born, self._dies, self._ids, self._fresh, self._head, self._next_older,
        )  # fmt: skip

    def _make_room(self, rows: int, code_limit: int) -> int:
        """Make room for rows whose key codes are all below `code_limit`; returns the position of the first."""
        first, self.size = self.size, self.size + rows
        if self.size > self._born.size:
            self._grow(self.size)
        if code_limit > self._head.size:
            more = (1 << (code_limit - 1).bit_length()) - self._head.size
            self._head = np.concatenate([self._head, np.full(more, NONE, np.int64)])
        return first

    def insert(self, rows: JoinRows, codes: I32, code_limit: int, fresh: Mask | bool) -> None:
        """Add rows whose key codes are all below `code_limit`; `fresh` are those with a tuple of this batch."""
        first = self._make_room(len(rows), code_limit)
        here = slice(first, self.size)
        self._codes[here] = codes
        self._born[here] = rows.born
        self._dies[here] = rows.dies
        self._ids[slice(None) if self._lines is None else self._lines, here] = rows.ids
        self._fresh[here] = fresh
        chain_append(codes, first, _NO_RING, self._head, self._next_older)

    def probe(self, codes: I32, born: I64, dies: I64, old_only: bool, scratch: ProbeBuffer) -> Iterator[PairBlock]:
        """Blocks of (probe, position) with equal codes and overlapping validity."""
        stored = self._make_target(old_only)
        return scratch.iter_blocks(
            lambda at, row, out: probe_chain(
                codes, born, dies, at, row, self._head, self._next_older, stored.mask, stored.base, stored.limit,
                stored.born, stored.dies, stored.fresh, False, NO_AGE_LIMIT, *out,
            ),
            codes.size,
        )  # fmt: skip

    def find_chains(self, *, old_only: bool) -> ChainTarget | None:
        """The chains over all rows, or those without a tuple of this batch; None if lines are in another order."""
        if self._lines is not None:
            return None
        fresh = self._fresh if old_only else NO_MARKS
        return (
            self._head, self._next_older, _NO_RING, 0, self.size, self._born, self._dies, fresh, False, self._ids,
        )  # fmt: skip

    def _make_target(self, old_only: bool) -> ProbeTarget:
        fresh = self._fresh if old_only else self._fresh[:0]
        return ProbeTarget(_NO_RING, 0, self.size, self._born, self._dies, fresh)

    def probe_range(
        self, ranges: ProbeRanges, born: I64, dies: I64, old_only: bool, by: StoredRange,
        read_numbers: Callable[[JoinRows], list[F64]], scratch: ProbeBuffer,
    ) -> Iterator[PairBlock]:  # fmt: skip
        """Blocks of (probe, position) where the row's numbers, see `read_numbers`, lie in the probe's ranges."""
        if self._sorted_index is None or self._sorted_by != by:
            self._sorted_index, self._sorted_by, self._sorted_until = SortedIndex(), by, 0
        if self._sorted_until < self.size:
            first, *second = read_numbers(self._read_slice(self._sorted_until))
            positions = np.arange(self._sorted_until, self.size)
            self._sorted_index.add(first, positions, lambda old: np.ones(old.size, np.bool_), *second)
            self._sorted_until = self.size
        target = self._make_target(old_only)
        return self._sorted_index.probe(ranges.lows, ranges.highs, born, dies, target, scratch, ranges.least)

    def read_ids(self, positions: I64) -> NDArray[np.int64]:
        if self._lines is None:
            return self._ids.take(positions, axis=1)
        ids = np.empty((self._width, positions.size), np.int64)
        for place, line in enumerate(self._lines):
            self._ids[line].take(positions, out=ids[place])
        return ids

    def rows(self) -> JoinRows:
        """All rows, dead rows that are not purged yet included."""
        return self._read_slice(0)

    def _read_slice(self, first: int) -> JoinRows:
        here = slice(first, self.size)
        ids = self._ids[:, here] if self._lines is None else self._ids[self._lines, here]
        return JoinRows(ids, self._born[here], self._dies[here])

    def codes(self) -> I32:
        return self._codes[: self.size]

    def reorder(self, order: Sequence[int]) -> None:
        """Take another order of aliases: the alias at place i was at `order[i]` before. No row is copied."""
        lines = np.array(order) if self._lines is None else self._lines[list(order)]
        self._lines = None if np.array_equal(lines, np.arange(self._width)) else lines

    def end_batch(self) -> None:
        """The current batch is over: no row is fresh any more."""
        if self._fresh_from < self.size:
            self._fresh[self._fresh_from : self.size] = 0
            self._fresh_from = self.size

    @property
    def needs_rebuild(self) -> bool:
        """Whether enough rows were added since the last rebuild to make another one worth its cost."""
        return self.size > self._rebuild_at

    def postpone_rebuild(self, rows: int) -> None:
        """Completed rows are alive, so they do not count as growth for the next rebuild."""
        self._rebuild_at += self._maintenance.regrowth * rows

    def rebuild(self, rows: JoinRows, codes: I32) -> None:
        """Hold exactly these rows, none of them fresh; they may be views of the current rows."""
        capacity = max(self._maintenance.state_capacity, 1 << (2 * len(rows)).bit_length())
        bound = int(codes.max(initial=NONE)) + 1
        self._allocate(capacity)  # allocates new arrays: `rows` may refer to the old ones
        self.insert(rows, codes, bound, fresh=False)
        self._fresh_from = self.size
        self._rebuild_at = max(self._maintenance.rebuild_rows, self._maintenance.regrowth * self.size)

    def _grow(self, need: int) -> None:
        capacity = 1 << (need - 1).bit_length()
        self._codes = grow_array(self._codes, capacity)
        self._born = grow_array(self._born, capacity)
        self._dies = grow_array(self._dies, capacity)
        self._next_older = grow_array(self._next_older, capacity)
        self._fresh = grow_array(self._fresh, capacity)
        self._ids = grow_array(self._ids, capacity)
