"""One window of OVER: its rows, its partitions and its functions.

Law: rows come in temporal order, those of one time in one call. The result at a place is the function over the rows of
its partition from `start` to `end` before it, counted in rows or in time; in time, rows of its own time are in the
frame too. A frame that ends behind its row is one that ends at the place, `delay` behind the row. Rows that no later
frame can have are freed: by the rows of their partition, and, in a frame of time, when time has passed. A partition
without rows is freed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.cql import FrameFunction, FrameWindow
from penstock.expr import Aggregate, Column
from penstock.ops.aggregate.operator import COUNT_STAR, AggregateFunction
from penstock.ops.frame.kernels import expire_rows, find_nth_rows, link_rows, slide_frames
from penstock.ops.frame.rows import FrameRows, Partitions
from penstock.ops.protocol import I8, Changes
from penstock.ops.row_groups import ChangePoints, GroupCounts, Mask
from penstock.state import I32, I64, NONE, U8, Maintenance, flatten_table, ring_take

FrameResults = dict[str, tuple[pa.Array, Mask]]
"""By the name of the function: its values, and whether there is a row that it reads."""
_PLACE, _NUMBER, _ENTERED = "place", "number", "entered"


class FrameState:
    """The functions of one window under rows that come; results are wanted `delay` behind each row."""

    def __init__(
        self, window: FrameWindow, types: Mapping[str, pa.DataType], classes: Mapping[str, type],
        maintenance: Maintenance, delay: int,
    ) -> None:  # fmt: skip
        self._window = window
        self._delay = delay
        self._start = None if window.frame.start is None else window.frame.start + delay
        self._keys = [column.name for column in window.partition]
        self._partitions = Partitions([types[name] for name in self._keys], maintenance)
        self._aggregates = {
            function.name: _FrameAggregate(function.value, classes, maintenance)
            for function in window.functions
            if isinstance(function.value, Aggregate)
        }
        read = [name for each in self._aggregates.values() for name in each.columns]
        read += [function.value.name for function in window.functions if isinstance(function.value, Column)]
        self._expires = window.frame.unit == "range" and self._start is not None
        self._rows = FrameRows({name: types[name] for name in read}, maintenance, ages=self._expires)
        self._next_number = 0

    def __len__(self) -> int:
        return len(self._rows)

    def count_partitions(self) -> int:
        return self._partitions.count_used()

    def add_rows(self, times: I64, columns: Mapping[str, pa.Array]) -> FrameResults:
        """The results at the places of the rows."""
        codes = self._partitions.encode([columns[name] for name in self._keys], times.size)
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
        places = times[order] if self._window.frame.unit == "range" else self._count_positions(codes)
        first = self._append(codes, places, order, columns)
        return self._slide(codes, places, np.ones(times.size, np.uint8), first, order, times.size)

    def add_rows_and_places(
        self, times: I64, columns: Mapping[str, pa.Array], places: I64, of: Mapping[str, pa.Array]
    ) -> FrameResults:
        """Add rows; the results at places in time, in the partitions of the rows `of`, sorted by place."""
        keys = [pa.concat_arrays([of[name], columns[name]]) for name in self._keys]
        at = np.append(places, times)
        codes = self._partitions.encode(keys, at.size)
        added = np.zeros(at.size, np.uint8)
        added[places.size :] = 1
        order = np.lexsort((at, codes))
        codes, at, added = codes[order], at[order], added[order]
        rows = added == 1
        first = self._append(codes[rows], at[rows], order[rows] - places.size, columns)
        return self._slide(codes, at, added, first, order, places.size)

    def find_results_behind(self, of: Mapping[str, pa.Array], rows: int) -> FrameResults:
        """The results at the places behind the last rows of all partitions; of the frames of the rows `of`."""
        codes = self._partitions.encode([of[name] for name in self._keys], rows)
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
        starts, counts = _find_runs(codes)
        places = self._partitions.positions[codes] + self._delay + np.arange(rows) - np.repeat(starts + counts, counts)
        return self._slide(codes, places, np.zeros(rows, np.uint8), self._rows.end, order, rows)

    def _append(self, codes: I32, places: I64, order: I64, columns: Mapping[str, pa.Array]) -> int:
        """Store the rows at positions of a table; returns the id of the first."""
        indices = pa.array(order)
        taken = {name: columns[name].take(indices) for name in self._rows.names}
        numbers = self._next_number + np.arange(order.size)
        self._next_number += order.size
        return self._rows.append(self._partitions, codes.astype(np.int64), places, numbers, taken)

    def _count_positions(self, codes: I32) -> I64:
        """The number of each row in its partition; rows are sorted by partition."""
        starts, counts = _find_runs(codes)
        positions = self._partitions.positions
        places: I64 = positions[codes] + np.arange(codes.size) - np.repeat(starts, counts)
        positions[codes[starts]] += counts
        return places

    def _slide(self, codes: I32, places: I64, added: U8, first: int, order: I64, wanted: int) -> FrameResults:
        """Move the frames to places; the results at those of the first `wanted`, whose order is `order`."""
        rows, parts = self._rows, self._partitions
        most = 2 * (rows.end - rows.base)  # counting the living ones would read all of them
        changed, signs = np.empty(most, np.int64), np.empty(most, np.int8)
        point_codes, points = np.empty(codes.size, np.int32), np.empty(codes.size, np.int64)
        ends, firsts, lasts = (np.empty(codes.size, np.int64) for _ in range(3))
        count = slide_frames(
            codes, places, added, first, -1 if self._start is None else self._start,
            self._window.frame.end + self._delay,
            parts.heads, parts.entries, parts.tails, parts.lasts, parts.counts, rows.places, rows.links, rows.alive,
            changed, signs, point_codes, ends, points, firsts, lasts,
        )  # fmt: skip
        firsts, lasts = firsts[:count], lasts[:count]
        filled = int(ends[count - 1]) if count else 0
        at = _make_points(point_codes[:count], ends[:count])
        self._apply(at, changed[:filled], signs[:filled])
        of_place = np.empty(codes.size, np.int64)
        of_place[order] = points
        of_place = of_place[:wanted]
        found, indices = firsts >= 0, pa.array(of_place)
        results = {}
        for function in self._window.functions:
            if function.name in self._aggregates:
                values, there = self._aggregates[function.name].result, found
            else:
                chosen = self._choose_rows(function, firsts, lasts)
                values, there = self._read(function.value, chosen), chosen >= 0
            results[function.name] = values.take(indices), there[of_place]
        return results

    def _apply(self, at: ChangePoints, changed: I64, signs: I8) -> None:
        """Let rows enter and leave the aggregates."""
        rows = self._rows
        columns = {name: rows.take(name, changed) for each in self._aggregates.values() for name in each.columns}
        numbers = ring_take(rows.numbers, changed)
        changes = Changes(numbers, columns, signs, numbers)
        for aggregate in self._aggregates.values():
            aggregate.apply(at, changes, self._partitions.bound)

    def _choose_rows(self, function: FrameFunction, firsts: I64, lasts: I64) -> I64:
        if function.kind == "last":
            return lasts
        if function.place == 1:
            return firsts
        chosen = np.empty(firsts.size, np.int64)
        find_nth_rows(function.place, firsts, lasts, self._rows.links, chosen)
        return chosen

    def _read(self, value: object, chosen: I64) -> pa.Array:
        assert isinstance(value, Column)
        found = chosen >= 0
        if not found.any():
            return pa.nulls(chosen.size, value.type)
        values = self._rows.take(value.name, chosen[found])
        if found.all():
            return values
        return values.take(pa.array(np.cumsum(found) - 1, mask=~found))

    def expire(self, bound: int) -> None:
        """Free the rows that no frame of a row after `bound` has."""
        if not self._expires or self._start is None:
            return
        rows, parts = self._rows, self._partitions
        limit = bound + 1 - self._start
        stop = rows.pop_ages(limit)
        if stop <= rows.base:
            return
        left = np.empty(stop - rows.base, np.int64)
        count = expire_rows(
            rows.base, stop, limit, parts.heads, parts.entries, parts.tails, parts.counts,
            rows.codes, rows.places, rows.links, rows.alive, left,
        )  # fmt: skip
        self._enter_or_leave(left[:count], -1)
        rows.free_until(stop)

    def _enter_or_leave(self, changed: I64, sign: int) -> None:
        """Rows in the order of their ids enter or leave the frames of their partitions; no results are needed."""
        codes = ring_take(self._rows.codes, changed).astype(np.int32)
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
        ends = np.flatnonzero(np.append(codes[1:] != codes[:-1], True)[: codes.size]) + 1
        if ends.size:
            self._apply(_make_points(codes[ends - 1], ends), changed[order], np.full(codes.size, sign, np.int8))

    # ── saved state ──────────────────────────────────────────────────────────────────────────────────────────────

    def dump(self) -> pa.Table:
        """The rows of all frames, with their partitions."""
        rows, parts = self._rows, self._partitions
        living = rows.list_living()
        codes = ring_take(rows.codes, living)
        entry = parts.entries[codes]
        entered = (entry == NONE) | (living < entry)
        keys = {f"key {place}": key for place, key in enumerate(parts.decode(codes))}
        columns = {f"column {name}": rows.take(name, living) for name in rows.names}
        return pa.table({
            _PLACE: ring_take(rows.places, living), _NUMBER: ring_take(rows.numbers, living), _ENTERED: entered,
            **keys, **columns,
        })  # fmt: skip

    def restore(self, saved: pa.Table) -> None:
        rows, parts, columns = self._rows, self._partitions, flatten_table(saved)
        keys = [columns[f"key {place}"] for place in range(len(self._keys))]
        codes = parts.encode(keys, saved.num_rows).astype(np.int64)
        places, numbers = columns[_PLACE].to_numpy(), columns[_NUMBER].to_numpy()
        entered = columns[_ENTERED].to_numpy(zero_copy_only=False)
        read = {name: columns[f"column {name}"] for name in rows.names}
        first = rows.append(parts, codes, places, numbers, read)
        link_rows(
            codes, entered.astype(np.uint8), first, parts.heads, parts.entries, parts.tails, parts.lasts, parts.counts,
            rows.links,
        )  # fmt: skip
        if self._window.frame.unit == "rows":
            np.maximum.at(parts.positions, codes, places + 1)
        self._next_number = int(numbers.max()) + 1 if numbers.size else 0
        self._enter_or_leave(first + np.flatnonzero(entered), 1)


class _FrameAggregate:
    """An aggregate over the frames of all partitions; `result` is that of the last points."""

    def __init__(self, aggregate: Aggregate, classes: Mapping[str, type], maintenance: Maintenance) -> None:
        self.columns: Sequence[str] = [arg.name for arg in aggregate.args if isinstance(arg, Column)]
        self._function: AggregateFunction | GroupCounts = (
            GroupCounts()
            if aggregate == COUNT_STAR
            else AggregateFunction(aggregate, self.columns, classes, maintenance)
        )
        self.result: pa.Array = None

    def apply(self, at: ChangePoints, changes: Changes, bound: int) -> None:
        if isinstance(self._function, GroupCounts):
            self.result = pa.array(self._function.apply(at, changes.signs, bound))
        else:
            self.result = self._function.apply(at, changes, bound)


def fill_default(function: FrameFunction, results: FrameResults, columns: Mapping[str, pa.Array]) -> pa.Array:
    """The values of a function, those of its default for rows without the row that it reads."""
    values, found = results[function.name]
    if function.default is None:
        return values
    return pc.if_else(pa.array(found), values, columns[function.default.name])


def _find_runs(codes: I32) -> tuple[I64, I64]:
    """Where the runs of equal codes start, and how long they are."""
    starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1])[: codes.size])
    return starts, np.diff(np.append(starts, codes.size))


def _make_points(codes: I32, ends: I64) -> ChangePoints:
    return ChangePoints(ends, codes, ends, ends, np.zeros(codes.size, np.bool_))
