"""The outer join of streams whose rows have a known end: as `outer_join`, without counting partners.

Law: that of `outer_join`. The end of a pair is known when it enters, so a row of a preserved side has a partner until
the last end of its pairs so far. It enters the answer when that time has come, and it leaves when the next pair enters
or when it expires. So pairs are read once, when they enter, and only if the reader needs ends they are read again. It
reads whole instants of all inputs, up to their lowest frontier.

EMIT ON WINDOW CLOSE: a pair is written when it enters, a row of a preserved side when it expires, if it was in no pair
until then. A semi join writes a row when its first pair enters.

State: the current rows of the preserved sides, and until when each is covered. Cost: O(1) a pair, O(log n) a row.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.expr import HIDDEN
from penstock.ops.change_operators import MergeOperator, ReadBatches
from penstock.ops.expirations import Expirations
from penstock.ops.kernels import cover_rows
from penstock.ops.protocol import (
    END_TIME,
    I8,
    Batch,
    Changes,
    Inlet,
    Outlet,
    SavedState,
    as_changes,
    concat,
    order_changes,
    sort_changes,
)
from penstock.ops.row_groups import make_empty_changes
from penstock.plan import OuterJoinPart, PreservedSide
from penstock.state import ALWAYS, FOREVER, I64, U8, Maintenance

_STATES = tuple(f"{HIDDEN}{name}" for name in ("number", "dies", "covered", "shown"))
_Events = tuple[I64, I64, I8]
"""Times, slots and signs of rows that enter and leave."""


class TimedOuterJoinOperator(MergeOperator):
    """A left, full or anti join, or a semi join of final rows.

    The first inlet has the pairs, then there is one for each preserved side.

    With `emits_ends` it reads changes of the pairs and writes changes, else rows that enter. Of the preserved sides it
    reads rows that enter.
    """

    current_inputs: int | None = 1
    cuts_backlog = False  # joins write the rows of a push at once

    def __init__(
        self,
        id_: str,
        inlets: Sequence[Inlet],
        outlet: Outlet,
        part: OuterJoinPart,
        maintenance: Maintenance,
        *,
        emits_ends: bool,
    ) -> None:
        super().__init__(id_, inlets, outlet)
        self._part = part
        self._types = dict(part.columns)
        self._shows_pairs = part.kind in ("left", "full")
        self._emits_ends = emits_ends
        make: type[_CoveredRows] = _CoveredRows
        if part.final:
            make = _MatchedRows if part.kind == "semi" else _UnmatchedRows
        self._sides = tuple(make(side, self._types, maintenance, emits_ends=emits_ends) for side in part.sides)

    def next_timer(self) -> int | None:
        due = [time for side in self._sides if (time := side.next_due()) is not None]
        return min(due) + 1 if due else None

    def _merge(self, read: ReadBatches, until: int) -> Batch | None:
        pairs, *kept = read
        found = [self._select_pairs(batch) for batch in pairs] if self._shows_pairs else []
        entered = concat([self._select_entered(batch) for batch in pairs]) if pairs else None
        for place, (side, rows) in enumerate(zip(self._sides, kept, strict=True)):
            if rows:
                side.add(concat(rows))
            changed = side.advance(entered, until)
            found += [] if changed is None else [self._number(changed, 1 + place)]
        return self._sort([batch for batch in found if len(batch)])

    def _describe_state(self) -> Mapping[str, object]:
        return {"rows": [side.count_rows() for side in self._sides]}

    def dump(self) -> SavedState:
        """The rows of the preserved sides, and until when they are covered: partners may have expired."""
        return SavedState({}, {f"side {place}": side.dump() for place, side in enumerate(self._sides)})

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:
        for place, side in enumerate(self._sides):
            side.restore(saved.tables[f"side {place}"])
        if not self._emits_ends or current is None:
            return None
        rows = [self._number(side.list_shown(), 1 + place) for place, side in enumerate(self._sides)]
        if self._shows_pairs:
            rows.append(as_changes(self._select_pairs(current[0])))
        return concat([make_empty_changes(self._types), *rows])

    def _select_pairs(self, pairs: Batch) -> Batch:
        columns = {name: pairs.columns[name] for name in self._types}
        if isinstance(pairs, Changes):
            return self._number(replace(pairs, columns=columns), 0)
        return Batch(pairs.times, columns)

    def _select_entered(self, pairs: Batch) -> Batch:
        """When pairs enter, until when they last, and the numbers of their rows."""
        names = {END_TIME, *(side.pair_number for side in self._part.sides)} & pairs.columns.keys()
        entered = Batch(pairs.times, {name: pairs.columns[name] for name in sorted(names)})
        if pairs.signs is None or pairs.signs.min(initial=1) > 0:
            return entered
        return entered.take(np.flatnonzero(pairs.signs > 0))

    def _number(self, changes: Changes, place: int) -> Changes:
        return replace(changes, numbers=changes.numbers * (1 + len(self._sides)) + place)

    def _sort(self, found: list[Batch]) -> Batch | None:
        if not found:
            return None
        if self._emits_ends:
            return sort_changes(as_changes(concat(found)))
        merged = concat([Batch(batch.times, batch.columns) for batch in found])
        return merged if len(found) == 1 else merged.take(np.argsort(merged.times, kind="stable"))


def _find_distinct(slots: I64, size: int) -> I64:
    """The distinct slots, in order; all are below `size`."""
    if 8 * slots.size < size:
        return np.unique(slots)
    marked = np.zeros(size, np.bool_)
    marked[slots] = True
    return np.flatnonzero(marked)


@dataclass
class _SlotTable:
    """The slot of each row by its number, from the number `first` on."""

    slots: I64
    first: int = 0

    def add(self, numbers: I64, slots: I64, live: I64) -> None:
        """Add rows. `live` are the numbers of the rows that are kept; all others are forgotten if space is needed."""
        low, high = int(numbers.min()), int(numbers.max())
        if low < self.first or high >= self.first + self.slots.size:
            known = live - self.first
            inside = (known >= 0) & (known < self.slots.size)
            kept, their_slots = live[inside], self.slots[known[inside]]
            self.first = min(low, int(kept.min(initial=low)))
            size = 1 << (2 * (max(high, int(kept.max(initial=high))) - self.first) + 15).bit_length()
            self.slots = np.full(size, -1)
            self.slots[kept - self.first] = their_slots
        self.slots[numbers - self.first] = slots


class _CoveredRows:
    """The rows of one preserved side, in the order in which they enter and expire.

    The slot of a row counts the rows before it since the first one that is kept. `_first` is the slot of that one since
    the beginning, which the table has.
    """

    def __init__(
        self, side: PreservedSide, types: Mapping[str, pa.DataType], maintenance: Maintenance, *, emits_ends: bool
    ) -> None:
        self._side = side
        self._types = types
        self._emits_ends = emits_ends
        self._dead_rows = maintenance.dead_rows
        capacity = maintenance.capacity
        self._table = _SlotTable(np.full(capacity, -1))
        self._first = self._size = 0
        self._head = 0
        """How many of the rows that are kept have expired."""
        self._new = 0
        """How many rows were added since the last call of `advance`."""
        self._numbers, self._dies, self._covered, self._entries = np.empty((4, capacity), np.int64)
        self._shown, self._raised = np.zeros((2, capacity), np.uint8)
        self._next_entry = 0
        self._chunks: list[Batch] = []
        self._due = Expirations([])
        """When rows are covered no longer, by their slots since the beginning; some are covered longer by now."""

    def count_rows(self) -> int:
        return int(np.count_nonzero(self._shown[self._head : self._size]))

    def next_due(self) -> int | None:
        """The next time at which a row enters or leaves without a pair."""
        due = self._due.next_due()
        if self._emits_ends and self._head < self._size and self._dies[self._head] < FOREVER:
            expires = int(self._dies[self._head])
            due = expires if due is None else min(due, expires)
        return due

    def add(self, rows: Batch) -> None:
        """Rows that enter the side, in temporal order."""
        self._append(
            rows.columns[self._side.row_number or ""].to_numpy(),
            rows.columns[END_TIME].to_numpy(),
            rows.times,
            np.zeros(len(rows), np.uint8),
            {name: rows.columns[own] for name, own in self._side.columns},
        )
        self._new += len(rows)

    def advance(self, pairs: Batch | None, until: int) -> Changes | None:
        """The rows that enter and leave the answer up to an instant, given the pairs that enter by then."""
        events, checked = [], [np.arange(self._size - self._new, self._size)]
        if pairs is not None:
            found, touched = self._cover(pairs)
            events.append(found)
            checked.append(touched)
        self._new = 0
        due = self._due.pop_due(until)
        if due is not None:
            slots = due.numbers - self._first
            current = slots >= self._head
            slots, times = slots[current], due.times[current]
            checked.append(slots[self._covered[slots] == times])
        events.append(self._settle(_find_distinct(np.concatenate(checked), self._size), until))
        events.append(self._expire(until))
        changes = self._build_changes(*(np.concatenate(each) for each in zip(*events, strict=True)))
        self._free()
        return changes

    def _cover(self, pairs: Batch) -> tuple[_Events, I64]:
        """Apply pairs; returns events, and the slots that are covered longer."""
        count = len(pairs)
        times, slots, touched = (np.empty(size, np.int64) for size in (2 * count, 2 * count, count))
        signs = np.empty(2 * count, np.int8)
        found, longer = cover_rows(
            pairs.columns[self._side.pair_number].to_numpy(), pairs.times, pairs.columns[END_TIME].to_numpy(),
            self._table.slots, self._table.first, self._first,
            self._covered, self._shown, self._raised, times, slots, signs, touched,
        )  # fmt: skip
        return (times[:found], slots[:found], signs[:found]), touched[:longer]

    def _settle(self, slots: I64, until: int) -> _Events:
        """Rows that are covered no longer enter; others are due later."""
        covered = self._covered[slots]
        waits = (self._shown[slots] == 0) & (covered < self._dies[slots])
        now, later = waits & (covered <= until), waits & (covered > until)
        changed, waiting = slots[now], slots[later] + self._first
        self._shown[changed] = 1
        self._due.add(covered[later], waiting, np.empty((0, waiting.size), np.int64), {})
        return covered[now], changed, np.ones(changed.size, np.int8)

    def _expire(self, until: int) -> _Events:
        """Rows that expire leave."""
        end = self._head + int(np.searchsorted(self._dies[self._head : self._size], until, side="right"))
        slots = self._head + np.flatnonzero(self._shown[self._head : end])
        self._head = end
        self._shown[slots] = 0
        return self._dies[slots], slots, np.full(slots.size, -1, np.int8)

    # ── the answer ───────────────────────────────────────────────────────────────────────────────────────────────

    def _build_changes(self, times: I64, slots: I64, signs: I8) -> Changes | None:
        if not self._emits_ends:
            entered = np.flatnonzero(signs > 0)
            times, slots, signs = times[entered], slots[entered], signs[entered]
        if not times.size:
            return None
        order = order_changes(times, signs) if self._emits_ends else np.argsort(times, kind="stable")
        if order is not None:
            times, slots, signs = times[order], slots[order], signs[order]
        numbers = self._assign_entries(slots, signs) if self._emits_ends else slots
        return Changes(times, self._read(slots), signs, numbers)

    def _assign_entries(self, slots: I64, signs: I8) -> I64:
        """The number of each change, in temporal order: a row leaves with the number with which it entered."""
        order = np.argsort(slots, kind="stable")
        slots, entered = slots[order], signs[order] > 0
        numbers = self._entries[slots]
        count = int(np.count_nonzero(entered))
        numbers[entered] = self._next_entry + np.arange(count)
        self._next_entry += count
        again = np.flatnonzero(~entered[1:] & (slots[1:] == slots[:-1])) + 1  # entered in this batch
        numbers[again] = numbers[again - 1]
        last = np.flatnonzero(np.append(slots[1:] != slots[:-1], True))
        self._entries[slots[last]] = numbers[last]
        assigned = np.empty_like(numbers)
        assigned[order] = numbers
        return assigned

    def list_shown(self) -> Changes:
        """The rows that are in the answer."""
        slots = self._head + np.flatnonzero(self._shown[self._head : self._size])
        times = np.full(slots.size, ALWAYS + 1)
        return Changes(times, self._read(slots), np.ones(slots.size, np.int8), self._entries[slots])

    def _read(self, slots: I64) -> dict[str, pa.Array]:
        indices, own = pa.array(slots), dict(self._side.columns)

        def read(name: str, type_: pa.DataType) -> pa.Array:
            if name not in own:
                return pa.nulls(slots.size, type_)
            return pa.chunked_array([chunk.columns[name] for chunk in self._chunks], type_).take(indices)

        columns = {name: read(name, type_) for name, type_ in self._types.items()}
        return {
            name: column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            for name, column in columns.items()
        }

    # ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _append(self, numbers: I64, dies: I64, covered: I64, shown: U8, columns: Mapping[str, pa.Array]) -> None:
        if not numbers.size:
            return
        first, end = self._size, self._size + numbers.size
        slots = self._first + np.arange(first, end)
        self._table.add(numbers, slots, self._numbers[self._head : first])
        if end > self._numbers.size:
            self._resize(1 << (end - 1).bit_length())
        self._numbers[first:end], self._dies[first:end], self._covered[first:end] = numbers, dies, covered
        self._shown[first:end], self._entries[first:end] = shown, -1
        self._size = end
        chunk = Batch(numbers, columns)
        while self._chunks and len(self._chunks[-1]) <= 2 * len(chunk):
            chunk = concat([self._chunks.pop(), chunk])
        self._chunks.append(chunk)

    def _resize(self, capacity: int) -> None:
        old = self._numbers, self._dies, self._covered, self._entries, self._shown, self._raised
        self._numbers, self._dies, self._covered, self._entries, self._shown, self._raised = (
            np.concatenate([each[: self._size], np.zeros(capacity - self._size, each.dtype)]) for each in old
        )

    def _free(self) -> None:
        """Forget the rows that have expired, if they are most of the rows."""
        if self._head <= max(self._size // 2, self._dead_rows):
            return
        live = slice(self._head, self._size)
        for each in (self._numbers, self._dies, self._covered, self._entries, self._shown):
            each[: self._size - self._head] = each[live].copy()
        rows = concat(self._chunks).take(np.arange(self._head, self._size))
        self._chunks = [rows] if len(rows) else []
        self._first += self._head
        self._size -= self._head
        self._head = 0

    def dump(self) -> pa.Table:
        live = slice(self._head, self._size)
        states = (pa.array(self._numbers[live]), pa.array(self._dies[live]), pa.array(self._covered[live]))
        columns: Mapping[str, pa.Array] = {}
        if self._chunks:
            columns = concat(self._chunks).slice(self._head, self._size).columns
        own = {name: columns.get(name, pa.array([], self._types[name])) for name, _ in self._side.columns}
        return pa.table([*states, pa.array(self._shown[live]), *own.values()], [*_STATES, *own])

    def restore(self, rows: pa.Table) -> None:
        columns = {name: rows[name].combine_chunks() for name in rows.column_names}
        numbers, dies, covered, shown = (columns.pop(name).to_numpy() for name in _STATES)
        self._append(numbers, dies, covered, shown, columns)
        slots = np.arange(numbers.size)
        self._entries[: numbers.size] = slots
        self._next_entry = numbers.size
        waits = (shown == 0) & (covered < dies)
        self._due.add(covered[waits], slots[waits], np.empty((0, int(waits.sum())), np.int64), {})


class _FinalRows(_CoveredRows):
    """Rows of a side that are written once. A row is covered for ever if it was in a pair, else not at all."""

    def count_rows(self) -> int:
        return self._size - self._head

    def next_due(self) -> int | None:
        if self._head == self._size or self._dies[self._head] == FOREVER:
            return None
        return int(self._dies[self._head])

    def add(self, rows: Batch) -> None:
        super().add(replace(rows, times=np.full(len(rows), ALWAYS)))

    def advance(self, pairs: Batch | None, until: int) -> Changes | None:
        matched = None if pairs is None else self._match(pairs)
        end = self._head + int(np.searchsorted(self._dies[self._head : self._size], until, side="right"))
        unmatched = self._head + np.flatnonzero(self._covered[self._head : end] == ALWAYS)
        self._head = end
        changes = self._write_final(matched, unmatched)
        self._free()
        return changes

    def restore(self, rows: pa.Table) -> None:
        super().restore(rows)
        self._due = Expirations([])

    def _match(self, pairs: Batch) -> tuple[I64, I64]:
        """The rows whose first pair came, and when."""
        places = pairs.columns[self._side.pair_number].to_numpy() - self._table.first
        known = np.flatnonzero((places >= 0) & (places < self._table.slots.size))
        slots = self._table.slots[places[known]] - self._first
        fresh = np.flatnonzero((slots >= 0) & (self._covered[slots] == ALWAYS))
        matched, first = np.unique(slots[fresh], return_index=True)
        self._covered[matched] = FOREVER
        return matched, pairs.times[known[fresh[first]]]

    @abstractmethod
    def _write_final(self, matched: tuple[I64, I64] | None, unmatched: I64) -> Changes | None:
        """The rows that are final."""


class _UnmatchedRows(_FinalRows):
    """Rows that are written when they expire, if they were in no pair."""

    def _write_final(self, matched: tuple[I64, I64] | None, unmatched: I64) -> Changes | None:  # noqa: ARG002
        return self._build_changes(self._dies[unmatched], unmatched, np.ones(unmatched.size, np.int8))


class _MatchedRows(_FinalRows):
    """Rows that are written when their first pair comes."""

    def _write_final(self, matched: tuple[I64, I64] | None, unmatched: I64) -> Changes | None:  # noqa: ARG002
        if matched is None:
            return None
        slots, times = matched
        return self._build_changes(times, slots, np.ones(slots.size, np.int8))
