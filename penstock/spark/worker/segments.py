"""The segments of a cell: the base rows its windows may still scan. Pure functions over small values.

A segment holds the rows of consecutive versions (micro-batches), by inlet. It is dropped when all of its rows are dead
and rewritten without them when most are dead. Small segments are merged into larger ones, so that there are few, up to
a size that a micro-batch can write without a long pause. The rows of a larger micro-batch are several segments. A row
is dead if no later result can contain it: later results are at or after the smallest frontier.

A window that slides by m rows reports at multiples of m, and the rows of its last report leave at the next one. So its
dead rows are dropped in multiples of m, the oldest first: then a rebuilt cell counts on from the same remainder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import lcm

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.cql import Window
from penstock.spark.layout import StreamInlet
from penstock.state import Maintenance, flatten_column, flatten_table, to_ticks

_ESTIMATED_ROW_BYTES = 64
_PART_SHIFT = 40


@dataclass(frozen=True)
class Segment:
    """Rows of the versions first … last. `spans`: for every inlet with rows, their number, first and last time."""

    first: int
    last: int
    rows: int
    spans: Mapping[int, tuple[int, int, int]]
    size: int
    """The bytes of its rows."""
    part: int = 0
    """Its number among the segments that begin with the same version: a large micro-batch is divided."""

    @property
    def key(self) -> tuple[int, int]:
        """Its key in Spark's state."""
        return self.first + (self.part << _PART_SHIFT), self.last

    def as_json(self) -> list[object]:
        spans = [[number, *span] for number, span in self.spans.items()]
        return [self.first, self.last, self.rows, spans, self.size, *([self.part] if self.part else [])]

    @classmethod
    def from_json(
        cls,
        first: int,
        last: int,
        rows: int,
        spans: Sequence[tuple[int, int, int, int]],
        size: int | None = None,
        part: int = 0,
    ) -> Segment:
        """Segments of older checkpoints have no size: it is estimated."""
        size = rows * _ESTIMATED_ROW_BYTES if size is None else size
        return cls(first, last, rows, {number: (count, low, top) for number, count, low, top in spans}, size, part)

    def compute_tier(self, maintenance: Maintenance) -> int:
        """The size class of a segment: segments of one tier have about the same number of rows."""
        tier, size = 0, self.rows // maintenance.segment_rows
        while size >= 1:
            tier, size = tier + 1, size // maintenance.merged_segments
        return tier


def build_segment(
    first: int, last: int, tables: Mapping[int, pa.Table], times: Mapping[int, str], size: int, part: int = 0
) -> Segment:
    """The description of a segment whose rows have `size` bytes."""
    spans = {n: _compute_span(table, times[n]) for n, table in tables.items() if table.num_rows}
    return Segment(first, last, sum(rows for rows, _, _ in spans.values()), spans, size, part)


def cut_rows(rows: Mapping[int, pa.Table], most: int) -> Iterator[dict[int, pa.Table]]:
    """The rows of a cell in parts of about `most` bytes, those of each inlet in order of arrival."""
    count = -(-sum(table.nbytes for table in rows.values()) // most)
    for part in range(count):
        found = {}
        for number, table in rows.items():
            first, end = table.num_rows * part // count, table.num_rows * (part + 1) // count
            if end > first:
                found[number] = table.slice(first, end - first)
        if found:
            yield found


def _compute_span(table: pa.Table, time: str) -> tuple[int, int, int]:
    times = _read_times(table, time)
    return times.size, int(times.min()), int(times.max())


def _read_times(table: pa.Table, time: str) -> NDArray[np.int64]:
    return to_ticks(flatten_column(table.column(time)))


def find_needed_inlets(
    segments: Sequence[Segment], inlets: Iterable[StreamInlet], bounds: Mapping[int, int]
) -> list[dict[int, int]]:
    """For every segment, the inlets with rows that may not be dead, each with the number of these rows.

    `bounds`: by inlet, the first instant whose answer is not known yet.
    """
    known = {inlet.number: inlet for inlet in inlets}
    return [
        {
            number: needed
            for number, span in item.spans.items()
            if number in known and (needed := _count_needed(known[number], span, bounds[number], segments[place + 1 :]))
        }
        for place, item in enumerate(segments)
    ]


def _count_needed(inlet: StreamInlet, span: tuple[int, int, int], bound: int, later: Sequence[Segment]) -> int:
    """How many rows of a span are needed: all, or if all are dead, those that are no multiple of a slide."""
    rows, _, _ = span
    return rows if _is_alive(inlet, span, bound, later) else rows % _find_multiple(inlet)


def _find_multiple(inlet: StreamInlet) -> int:
    """Rows of an inlet are dropped in multiples of this number."""
    return lcm(*(scan.window.row_slide for scan in inlet.scans if scan.window.row_slide is not None))


def _count_kept(window: Window) -> int:
    """How many rows a ROWS window keeps: those that its last report needs."""
    return (window.row_count or 0) + (window.row_slide or 0)


def _is_alive(inlet: StreamInlet, span: tuple[int, int, int], bound: int, later: Sequence[Segment]) -> bool:
    """Whether the newest row of a span may be valid at `bound`."""
    _, _, top = span
    for scan in inlet.scans:
        window = scan.window
        if scan.keeps_all:
            return True
        if window.row_count is None:
            if window.lifetime is None or top + window.lifetime >= bound:
                return True
        elif window.partition or _count_following(inlet.number, top, bound, later) < _count_kept(window):
            return True
    return False


def _count_following(inlet: int, top: int, bound: int, later: Sequence[Segment]) -> int:
    """How many rows are known to come after time `top` and before `bound`."""
    spans = (item.spans[inlet] for item in later if inlet in item.spans)
    return sum(rows for rows, low, high in spans if low >= top and high < bound)


def plan_loads(
    segments: Sequence[Segment], streams: Mapping[int, str], frontiers: Mapping[str, int], most: int
) -> Iterator[tuple[Sequence[Segment], dict[str, int]]]:
    """Neighbouring segments of about `most` bytes that are loaded together, and the frontiers after each part.

    A frontier is not later than the first time of the rows that the stream still has in later parts. `streams`: by
    inlet, the name of its stream; `frontiers`: those after the last part.
    """
    start = 0
    while start < len(segments) or not start:
        sizes = accumulate(item.size for item in segments[start:])
        end = start + max(1, sum(size <= most for size in sizes))
        until = dict(frontiers)
        for number, (_, low, _) in (span for item in segments[end:] for span in item.spans.items()):
            name = streams.get(number)
            if name in until:
                until[name] = min(until[name], low)
        yield segments[start:end], until
        start = end


def choose_rewrite(
    segments: Sequence[Segment], alive: Sequence[Mapping[int, int]], maintenance: Maintenance
) -> tuple[int, int] | None:
    """The next segments to rewrite, as a slice; `alive`: the result of `find_needed_inlets`.

    That is a segment most of whose rows no inlet needs, or else some neighbours of one tier, as many as fit into a
    segment of the largest size. The newest segments stay as they are: workers that are behind catch up from them.
    """
    end, count = len(segments) - maintenance.newest_segments, maintenance.merged_segments
    for place in range(end):
        if 2 * sum(alive[place].values()) < segments[place].rows:
            return place, place + 1
    for start in range(end - count, -1, -1):
        group = segments[start : start + count]
        if len({item.compute_tier(maintenance) for item in group}) == 1:
            sizes = accumulate(item.size for item in group)
            fitting = sum(size <= maintenance.segment_bytes for size in sizes)
            if fitting > 1:
                return start, start + fitting
    return None


def keep_newest_rows(table: pa.Table, time: str, count: int) -> pa.Table:
    """The newest rows of a table in order of arrival."""
    if table.num_rows <= count:
        return table
    order = np.argsort(_read_times(table, time), kind="stable")
    return table.take(pa.array(np.sort(order[table.num_rows - count :])))


def drop_dead_rows(table: pa.Table, inlet: StreamInlet, bound: int) -> pa.Table:
    """The rows of one inlet, in order of arrival, that may be valid at `bound`."""
    times = _read_times(table, inlet.stream.time)
    alive: NDArray[np.bool_] = np.zeros(times.size, np.bool_)
    for scan in inlet.scans:
        window = scan.window
        if scan.keeps_all:
            return table
        if window.row_count is not None:
            alive |= _count_followers(table, times, bound, window.partition) < _count_kept(window)
        elif window.lifetime is None:
            return table
        else:
            alive |= times >= bound - window.lifetime
    _keep_remainder(alive, times, _find_multiple(inlet))
    return table if alive.all() else table.filter(pa.array(alive))


def _keep_remainder(alive: NDArray[np.bool_], times: NDArray[np.int64], multiple: int) -> None:
    """Mark the newest of the dead rows as alive, so that the others are a multiple."""
    dead = np.flatnonzero(~alive)
    if kept := dead.size % multiple:
        alive[dead[np.argsort(times[dead], kind="stable")[-kept:]]] = True


def _count_followers(
    table: pa.Table, times: NDArray[np.int64], bound: int, partition: tuple[str, ...]
) -> NDArray[np.int64]:
    """For each row, how many rows of its partition come after it and before `bound`."""
    if partition:
        codes = np.zeros(times.size, np.int64)
        for column in flatten_table(table.select(list(dict.fromkeys(partition)))).values():
            part = column.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
            codes = np.unique(codes * (int(part.max(initial=0)) + 1) + part, return_inverse=True)[1]
    else:
        codes = np.zeros(times.size, np.int64)
    order = np.lexsort((np.arange(times.size), times, codes))
    before = times[order] < bound
    reverse = np.cumsum(before[::-1])[::-1]  # rows from here on, of this and later partitions
    ends = np.flatnonzero(np.diff(codes[order], append=-1))
    beyond = np.append(reverse, 0)[ends + 1]
    group = np.searchsorted(ends, np.arange(times.size))
    followers = np.empty(times.size, np.int64)
    followers[order] = reverse - before - beyond[group]
    return followers
