"""Aggregates of many queries over the windows of one stream: the rows are stored and added up once.

Law: each reader gets the rows that `AggregateOperator` would let enter over the reader's window, at the same instants.
What one reader gets does not depend on the others.

State: one `GroupHistory` with a column for each argument of an aggregate, back to the start of the longest window. Of a
window only two positions are stored, and for each group the last row that left it. Cost: for a window O(1) a row that
enters or leaves it; the rows of results are computed for all readers together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.errors import InternalError
from penstock.expr import AGGREGATES, INT, Aggregate, Column, Expr, compute_mask, evaluate
from penstock.ops.aggregate.accumulators import find_total_type, finish_average, finish_sum
from penstock.ops.aggregate.group_history import (
    CountTotals,
    GroupHistory,
    HistoryColumn,
    RangeMinima,
    Ranges,
    SumTotals,
    ValueLinks,
    move_rows,
)
from penstock.ops.aggregate.slice_kernels import count_distinct_rows, find_end, mark_last_rows, walk_windows
from penstock.ops.evaluation import EVALUATION_ERRORS
from penstock.ops.protocol import Batch
from penstock.ops.row_groups import Mask, RowGroups
from penstock.state import FOREVER, I32, I64, NONE, Maintenance, allocate

COUNT_STAR = Aggregate("count", (), False, INT)
Points = tuple[int, int]
"""A part of the points: the first, and the one after the last."""


@dataclass(frozen=True)
class WindowAggregates:
    """What a reader computes: `items` and `having` are over the columns of a group, its keys and aggregates."""

    life: int
    aggregates: tuple[Aggregate, ...]
    items: tuple[tuple[str, Expr], ...]
    having: Expr | None

    @property
    def shown(self) -> tuple[Expr, ...]:
        return tuple(expr for _, expr in self.items)


@dataclass(frozen=True)
class _Points:
    """Groups of windows at instants; see `walk_windows`."""

    ranges: Ranges
    codes: I32
    previous: I32
    times: I64
    distinct: I64
    ends: I64


class SharedAggregation:
    """The answers of readers that group the rows of one stream by the same keys."""

    def __init__(
        self, keys: Sequence[Expr], readers: Sequence[WindowAggregates], done: int, maintenance: Maintenance
    ) -> None:
        """`done` is the time up to which all readers know their results."""
        self._keys = tuple(keys)
        self._maintenance = maintenance
        self._done = done
        order = sorted(range(len(readers)), key=lambda place: _sort_key(readers[place]))
        self._places = order
        """The place of each window's reader among the readers."""
        self._readers = [readers[place] for place in order]
        self._groups = RowGroups([key.type for key in keys], maintenance)
        self._history = GroupHistory()
        self._columns: dict[tuple[str, Expr], HistoryColumn] = {}
        self._links: dict[Expr, int] = {}
        for reader in self._readers:
            for aggregate in reader.aggregates:
                self._add_column(aggregate)
        self._lives: I64 = np.array([reader.life for reader in self._readers], np.int64)
        self._positions: I64 = np.zeros((len(readers), 2), np.int64)
        self._left: I32 = np.full((len(readers), 1), NONE, np.int32)
        self._last: I32 = np.full(1, NONE, np.int32)
        self._distinct: I64 = np.zeros((len(self._links), len(readers), 1), np.int64)
        self._bound = 1

    def _add_column(self, aggregate: Aggregate) -> None:
        if aggregate == COUNT_STAR:
            return
        (argument,) = aggregate.args
        name = _name_column(aggregate)
        if (name, argument) in self._columns:
            return
        if name == "distinct":
            self._links[argument] = len(self._links)
        self._columns[name, argument] = _make_column(name, argument.type, self._maintenance)

    @property
    def inputs(self) -> tuple[Expr, ...]:
        """The keys and arguments."""
        return tuple(dict.fromkeys((*self._keys, *(argument for _, argument in self._columns))))

    # ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def load(self, times: I64, columns: Mapping[Expr, pa.Array]) -> None:
        """Start from stored rows in temporal order, of which the readers have seen those up to `done`."""
        self._append(times, columns)
        seen = self._find_targets(self._done)
        links = list(self._list_links())
        for window, (start, stop) in enumerate(seen.tolist()):
            mark_last_rows(0, start, self._history.codes, self._left[window])
            mark_last_rows(0, stop, self._history.codes, self._last)
            for counts, link in zip(self._distinct, links, strict=True):
                count_distinct_rows(start, stop, self._history.codes, link.before, link.after, counts[window])
        self._positions[:] = seen

    def _append(self, times: I64, columns: Mapping[Expr, pa.Array]) -> None:
        codes = self._groups.encode([columns[key] for key in self._keys], times.size)
        self._extend(self._groups.bound)
        first = self._history.append(times, codes, self._groups.bound)
        for (_, argument), column in self._columns.items():
            column.append(self._history, first, columns[argument])

    def _extend(self, bound: int) -> None:
        """Make room for groups."""
        if bound <= self._bound:
            return
        more = (1 << (bound - 1).bit_length()) - self._bound
        self._left = np.concatenate([self._left, np.full((self._left.shape[0], more), NONE, np.int32)], axis=1)
        self._last = np.concatenate([self._last, np.full(more, NONE, np.int32)])
        self._distinct = np.concatenate([self._distinct, np.zeros((*self._distinct.shape[:2], more), np.int64)], axis=2)
        self._bound += more

    def _list_links(self) -> Iterator[ValueLinks]:
        for column in self._columns.values():
            if isinstance(column, ValueLinks):
                yield column

    def _find_targets(self, until: int) -> I64:
        """For each window the first row that has not left it, and the first that has not entered, at an instant."""
        times = self._history.times[: self._history.size]
        entered = int(np.searchsorted(times, until, side="right"))
        starts = np.int64(until) - self._lives
        left = np.where(starts > until, 0, np.searchsorted(times, starts, side="right"))  # an overflow: before all rows
        return np.stack([left, np.full(left.size, entered)], axis=1)

    def _drop_rows(self) -> None:
        """Drop the rows that have left all windows, once there are many of them."""
        count, upkeep = int(self._positions[:, 0].min()), self._maintenance
        if count <= upkeep.dead_rows + (self._history.size - count) * min(upkeep.dead_per_living, 1.0):
            return
        size = self._history.size
        dropped = self._history.drop(count)
        for column in self._columns.values():
            column.drop(dropped, size)
        self._left, self._last = move_rows(self._left, count), move_rows(self._last, count)
        self._positions -= count
        self._groups.recycle(np.bincount(self._history.codes[: self._history.size], minlength=self._groups.bound))

    def find_next_ends(self) -> list[int | None]:
        """For each reader the instant at which the next row leaves its window, as far as is known."""
        found: list[int | None] = [None] * len(self._readers)
        for window, (left, entered) in enumerate(self._positions.tolist()):
            if left < entered:
                due = int(find_end(self._history.times[left], self._readers[window].life))
                found[self._places[window]] = None if due >= FOREVER else due
        return found

    # ── results ──────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, times: I64, columns: Mapping[Expr, pa.Array], until: int) -> list[Batch | Exception | None]:
        """Move all windows to an instant, after the rows that arrived; returns what enters the answer of each reader.

        An error is that of a reader whose expressions cannot be evaluated.
        """
        if times.size:
            self._append(times, columns)
        self._done = until
        points = self._move_windows(until)
        found: list[Batch | Exception | None] = [None] * len(self._readers)
        if points is not None:
            for window, batch in self._build_results(points):
                found[self._places[window]] = batch
        self._drop_rows()
        return found

    def _move_windows(self, until: int) -> _Points | None:
        targets, history = self._find_targets(until), self._history
        entered = int(self._positions[0, 1])
        room = 2 * int((targets - self._positions).sum())
        if not room:
            return None
        out_left, out_last, out_codes, out_previous = (allocate(room, np.int32) for _ in range(4))
        out_times, out_ends = allocate(room, np.int64), np.empty(len(self._readers), np.int64)
        out_distinct = allocate(len(self._links) * room, np.int64).reshape(len(self._links), room)
        links = list(self._list_links())
        shape = (len(links), history.size)
        before, after = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        for place, link in enumerate(links):
            before[place], after[place] = link.before[: history.size], link.after[: history.size]
        scratch = [np.full(self._bound, NONE, np.int32) for _ in range(3)]
        instants, places = np.zeros(self._bound, np.int64), np.zeros(self._bound, np.int64)
        count = walk_windows(
            history.times, history.codes, self._lives, self._positions, targets, self._left, self._last,
            before, after, self._distinct, scratch[0], scratch[1], instants, places, scratch[2],
            out_left, out_last, out_codes, out_previous, out_times, out_distinct, out_ends,
        )  # fmt: skip
        mark_last_rows(entered, int(targets[0, 1]), history.codes, self._last)
        ranges = Ranges(out_left[:count], out_last[:count])
        return _Points(
            ranges, out_codes[:count], out_previous[:count], out_times[:count], out_distinct[:, :count], out_ends
        )

    def _build_results(self, points: _Points) -> Iterator[tuple[int, Batch | Exception]]:
        """The result rows of each window that has any. Windows with the same aggregates are computed together."""
        for windows in _list_runs(self._readers, lambda reader: reader.aggregates):
            start, stop = _find_points(points, windows)
            if start == stop:
                continue
            block = _PointBlock(self, points, start, stop, self._readers[windows[0]].aggregates)
            members = self._readers[windows[0] : windows[1]]
            for first, last in _list_runs(members, lambda reader: reader.shown):
                yield from self._try_build_rows(block, points, (windows[0] + first, windows[0] + last))

    def _try_build_rows(
        self, block: _PointBlock, points: _Points, windows: Points
    ) -> Iterator[tuple[int, Batch | Exception]]:
        """As `_build_rows`; if expressions cannot be evaluated, the error of each window to which that applies."""
        first, last = windows
        try:
            yield from list(self._build_rows(block, points, windows))
        except MemoryError:
            raise
        except EVALUATION_ERRORS as error:
            if last - first == 1:
                yield first, error
                return
            for window in range(first, last):
                yield from self._try_build_rows(block, points, (window, window + 1))

    def _build_rows(
        self, block: _PointBlock, points: _Points, windows: Points
    ) -> Iterator[tuple[int, Batch | Exception]]:
        """The result rows of windows with the same items."""
        start, stop = _find_points(points, windows)
        if start == stop:
            return
        present = block.counts[start - block.start : stop - block.start] > 0
        members = self._readers[windows[0] : windows[1]]
        read = partial(block.read, start, stop)
        for first, last in _list_runs(members, lambda reader: reader.having):
            having = members[first].having
            low, high = _find_points(points, (windows[0] + first, windows[0] + last))
            if having is not None and low < high:
                passed = compute_mask([having], partial(block.read, low, high), high - low)
                present[low - start : high - start] &= passed
        previous = points.previous[start:stop] - np.int32(start)
        follows = points.previous[start:stop] != NONE
        was = np.zeros(stop - start, np.bool_)
        was[follows] = present[previous[follows]]
        entered = present & follows & ~was
        columns = {
            place: evaluate(expr, read, stop - start)
            for place, expr in enumerate(members[0].shown)
            if not _is_key(expr)
        }
        kept = np.flatnonzero(present & was)
        for column in columns.values():
            differs = _compare(column, kept, previous[kept])
            entered[kept[differs]] = True
            kept = kept[~differs]
        rows = np.flatnonzero(entered)
        if not rows.size:
            return
        indices = pa.array(rows)
        shown = self._take_rows(members[0].shown, columns, indices, points.codes[start:stop][rows])
        times = points.times[start:stop][rows]
        ends = np.searchsorted(rows, points.ends[windows[0] : windows[1]] - start)
        low = 0
        for window, high in enumerate(ends.tolist()):
            if high > low:
                names = (name for name, _ in members[window].items)
                taken = {name: column.slice(low, high - low) for name, column in zip(names, shown, strict=True)}
                yield windows[0] + window, Batch(times[low:high], taken)
            low = high

    def _take_rows(
        self, shown: Sequence[Expr], columns: Mapping[int, pa.Array], indices: pa.Array, codes: I32
    ) -> list[pa.Array]:
        """The columns at some points; keys are the same at all points of a group."""
        keys = self._groups.decode(codes) if any(map(_is_key, shown)) else []
        return [
            keys[int(expr.name)] if isinstance(expr, Column) and place not in columns else columns[place].take(indices)
            for place, expr in enumerate(shown)
        ]

    def decode_keys(self, codes: I32) -> list[pa.Array]:
        return self._groups.decode(codes)

    def count_rows(self, ranges: Ranges) -> I64:
        return self._history.count_rows(ranges)

    def compute(self, aggregate: Aggregate, ranges: Ranges, distinct: I64) -> pa.Array:
        """An aggregate of ranges. `distinct` has the numbers of distinct values."""
        if aggregate == COUNT_STAR:
            return pa.array(self._history.count_rows(ranges))
        (argument,) = aggregate.args
        column = self._columns[_name_column(aggregate), argument]
        match column:
            case ValueLinks():
                return pa.array(distinct[self._links[argument]])
            case CountTotals():
                return pa.array(column.read(ranges))
            case RangeMinima():
                return column.read(self._history, ranges)
            case SumTotals() if aggregate.function == "sum":
                read = column.read_as_doubles if pt.is_floating(aggregate.type) else column.read
                return finish_sum(read(ranges), aggregate.type)
            case SumTotals():
                total = find_total_type(argument.type)
                read = column.read_as_doubles if total is None else column.read
                return finish_average(read(ranges), total, aggregate.type)
        raise InternalError("UNKNOWN_COLUMN", f"no aggregate is computed from a {type(column).__name__}")


class _PointBlock:
    """The values of groups at some points, each computed when it is first read."""

    def __init__(
        self, owner: SharedAggregation, points: _Points, start: int, stop: int, aggregates: Sequence[Aggregate]
    ) -> None:
        self.start = start
        self._owner = owner
        self._ranges = points.ranges.slice(start, stop)
        self._codes = points.codes[start:stop]
        self._distinct = points.distinct[:, start:stop]
        self._aggregates = aggregates
        self._keys: list[pa.Array] | None = None
        self._values: dict[int, pa.Array] = {}
        self.counts = owner.count_rows(self._ranges)

    def read(self, start: int, stop: int, column: Column) -> pa.Array:
        """A key or an aggregate at the points from `start` to `stop`."""
        return self._find_column(column).slice(start - self.start, stop - start)

    def _find_column(self, column: Column) -> pa.Array:
        place = int(column.name)
        if column.alias == "key":
            if self._keys is None:
                self._keys = self._owner.decode_keys(self._codes)
            return self._keys[place]
        if place not in self._values:
            self._values[place] = self._owner.compute(self._aggregates[place], self._ranges, self._distinct)
        return self._values[place]


def can_be_sliced(aggregate: Aggregate) -> bool:
    """Whether an aggregate is computed from a shared history."""
    if aggregate == COUNT_STAR:
        return True
    if len(aggregate.args) != 1 or aggregate.function not in AGGREGATES:
        return False
    type_ = aggregate.args[0].type
    if aggregate.function in ("min", "max"):  # of one word; DISTINCT makes no difference
        return not (pt.is_string(type_) or pt.is_binary(type_) or pt.is_decimal(type_))
    return aggregate.function == "count" or (aggregate.function in ("sum", "avg") and not aggregate.distinct)


def _name_column(aggregate: Aggregate) -> str:
    if aggregate.function == "count":
        return "distinct" if aggregate.distinct else "count"
    return aggregate.function if aggregate.function in ("min", "max") else "sum"


def _make_column(name: str, type_: pa.DataType, maintenance: Maintenance) -> HistoryColumn:
    makers: dict[str, Callable[[], HistoryColumn]] = {
        "count": CountTotals,
        "distinct": lambda: ValueLinks(type_, maintenance),
        "sum": lambda: SumTotals(type_),
        "min": lambda: RangeMinima(type_, smallest=True),
        "max": lambda: RangeMinima(type_, smallest=False),
    }
    return makers[name]()


def _sort_key(reader: WindowAggregates) -> tuple[str, str, str]:
    """Readers with the same aggregates, items and HAVING come after each other."""
    return repr(reader.aggregates), repr(reader.shown), repr(reader.having)


def _list_runs(readers: Sequence[WindowAggregates], key: Callable[[WindowAggregates], object]) -> Iterator[Points]:
    start = 0
    for _, run in groupby(readers, key):
        stop = start + sum(1 for _ in run)
        yield start, stop
        start = stop


def _find_points(points: _Points, windows: Points) -> Points:
    """The points of some windows."""
    first, last = windows
    return int(points.ends[first - 1]) if first else 0, int(points.ends[last - 1])


def _is_key(expr: Expr) -> bool:
    return isinstance(expr, Column) and expr.alias == "key"


def _compare(column: pa.Array, rows: I64, others: I32) -> Mask:
    """Where the values in two lists of rows differ; NULL is NULL and NaN is NaN."""
    if not column.null_count and (pt.is_integer(column.type) or pt.is_floating(column.type)):
        values = column.to_numpy()
        now, before = values[rows], values[others]
        differs: Mask = now != before
        return differs & ~(np.isnan(now) & np.isnan(before)) if pt.is_floating(column.type) else differs
    now, before = column.take(pa.array(rows)), column.take(pa.array(others))
    same = pc.equal(now, before)
    if pt.is_floating(column.type):
        same = pc.or_(same, pc.and_(pc.is_nan(now), pc.is_nan(before)))
    if column.null_count:
        same = pc.or_(pc.fill_null(same, False), pc.and_(now.is_null(), before.is_null()))
    result: Mask = same.to_numpy(zero_copy_only=False)
    return ~result
