"""The input of a cell in a micro-batch: rows by inlet, late and bad rows apart, and the frontiers after it.

Lateness is judged against the frontier before the micro-batch, which is the same in every cell. So the same rows are
late for any number of cells. If several cells or inlets hold a late row, one of them reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.adapt import EngineCommand
from penstock.ops import find_frontier, mark_late, stamp_times
from penstock.spark.control_command import ControlCommand, list_engine_commands, read_frontiers
from penstock.spark.heartbeat import compute_heartbeats, is_stamped
from penstock.spark.layout import ALWAYS, FOREVER, Layout, StreamInlet
from penstock.spark.worker.pack import BAD_ROWS, CLOCK, COMMAND, OWN_COLUMN
from penstock.state import decode_table, flatten_column, to_ticks

PackedRow = tuple[int, int, int, int, int, bytes | None]
"""stream, inlet, part, seq, top, data: a packed row without its cell."""


@dataclass(frozen=True)
class CellBatch:
    """The input of one cell in one micro-batch. Rows are by inlet, late and dead rows by stream."""

    rows: Mapping[int, pa.Table]
    late: Mapping[str, pa.Table]
    dead: Mapping[str, pa.Table]
    frontiers: dict[str, int]
    """The frontiers of streams after the micro-batch."""
    active_streams: frozenset[str]
    """The streams that had rows in any cell."""
    last_command: int
    """The number of the last command."""
    engine_commands: tuple[EngineCommand, ...] = ()
    """The commands that the engine obeys before it gets the rows."""
    arrivals: Mapping[str, int] = field(default_factory=dict)
    """By stream, the time of the last micro-batch with rows of it; empty unless the pipeline is clocked."""


@dataclass
class _Unpacked:
    """The packed rows of a micro-batch, decoded and sorted by kind."""

    blobs: dict[int, list[tuple[int, int, pa.Table]]] = field(default_factory=dict)
    """By inlet: part, number within the part, rows."""
    dead: dict[str, list[pa.Table]] = field(default_factory=dict)
    tops: dict[str, list[int]] = field(default_factory=dict)
    """By stream, the largest times of input partitions."""
    commands: list[ControlCommand] = field(default_factory=list)
    clock: int | None = None
    """The time of the micro-batch, if its rows bring it."""


def read_batch(
    layout: Layout,
    cell: int,
    before: Mapping[str, int],
    last_command: int,
    packed: Iterable[PackedRow],
    arrivals: Mapping[str, int] | None = None,
) -> CellBatch:
    """The input of a cell.

    `before` and `arrivals`: the frontiers and arrivals after the last micro-batch; `last_command`: the last one it saw.
    """
    unpacked = _unpack(layout, packed)
    rows: dict[int, pa.Table] = {}
    late: dict[str, list[pa.Table]] = {}
    for inlet in layout.inlets:
        parts = sorted(unpacked.blobs.get(inlet.number, []), key=lambda part: part[:2])
        if parts:
            table = pa.concat_tables([table for _, _, table in parts])
            on_time, rejected = _split_late(inlet, table, before.get(inlet.stream.name, ALWAYS))
            if on_time.num_rows:
                rows[inlet.number] = on_time
            if rejected.num_rows and inlet.route.is_owner(cell):
                late.setdefault(inlet.stream.name, []).append(rejected)
    frontiers = _advance_frontiers(layout, before, last_command, unpacked)
    arrivals = _advance_idle_streams(layout, frontiers, arrivals or {}, unpacked)
    return CellBatch(
        rows,
        {name: pa.concat_tables(tables, promote_options="default") for name, tables in late.items()},
        {name: pa.concat_tables(tables, promote_options="default") for name, tables in unpacked.dead.items()},
        frontiers,
        frozenset(unpacked.tops),
        max([last_command, *(command.number for command in unpacked.commands)]),
        tuple(list_engine_commands(unpacked.commands, last_command).values()),
        arrivals,
    )


def _unpack(layout: Layout, packed: Iterable[PackedRow]) -> _Unpacked:
    found = _Unpacked()
    for stream_number, inlet_number, part, seq, top, data in packed:
        inlet = int(inlet_number)
        if inlet == COMMAND:
            found.commands.append(ControlCommand.decode(bytes(data or b"")))
            continue
        if inlet == CLOCK:
            found.clock = int(top) if found.clock is None else max(found.clock, int(top))
            continue
        name = layout.spec.streams[int(stream_number)].name
        found.tops.setdefault(name, []).append(int(top))
        if data is not None and inlet == BAD_ROWS:
            found.dead.setdefault(name, []).append(decode_table(data))
        elif data is not None:
            found.blobs.setdefault(inlet, []).append((int(part), int(seq), decode_table(data)))
    return found


def _advance_frontiers(
    layout: Layout, before: Mapping[str, int], last_command: int, unpacked: _Unpacked
) -> dict[str, int]:
    """The frontiers after a micro-batch: by the largest times of its rows, then by its commands."""
    frontiers = dict(before)
    names = [stream.name for stream in layout.spec.streams]
    by_rows = (
        (stream.name, find_frontier(stream, top))
        for stream in layout.spec.streams
        for top in unpacked.tops.get(stream.name, ())
        if top != ALWAYS
    )
    for name, frontier in (*by_rows, *read_frontiers(unpacked.commands, last_command, names, FOREVER)):
        if frontier != ALWAYS:
            frontiers[name] = max(frontiers.get(name, ALWAYS), frontier)
    return frontiers


def _advance_idle_streams(
    layout: Layout, frontiers: dict[str, int], arrivals: Mapping[str, int], unpacked: _Unpacked
) -> dict[str, int]:
    """Advance `frontiers` as far as the time of the micro-batch allows; returns the last arrivals by stream.

    A stream that never had rows counts as idle from the first micro-batch on.
    """
    if unpacked.clock is None:
        return dict(arrivals)
    clock, streams = unpacked.clock, layout.spec.streams
    last = {each.name: arrivals.get(each.name, clock) for each in streams} | dict.fromkeys(unpacked.tops, clock)
    readers = [(frozenset(layout.find_base_streams(name)), None) for name in layout.spec.bound_queries]
    frontiers.update(compute_heartbeats(streams, readers, frontiers, last, clock))
    return last


def _split_late(inlet: StreamInlet, table: pa.Table, frontier: int) -> tuple[pa.Table, pa.Table]:
    """The rows at or after a frontier, and the late rows that this inlet reports."""
    place = table.column_names.index(inlet.stream.time)
    times = to_ticks(flatten_column(table.column(place)))
    late = mark_late(times, frontier)
    if is_stamped(inlet.stream) and late.any():  # the clock went back: such rows get the frontier as their time
        now = pa.array(stamp_times(times, frontier)).cast(inlet.stream.time_type)
        table, late = table.set_column(place, table.schema.field(place), now), np.zeros_like(late)
    rejected = table.filter(pa.array(late)) if late.any() else table.slice(0, 0)
    table = table.filter(pa.array(~late)) if late.any() else table
    if OWN_COLUMN in table.column_names:
        rejected = rejected.filter(rejected.column(OWN_COLUMN)).drop_columns([OWN_COLUMN])
        table = table.drop_columns([OWN_COLUMN])
    return table, rejected
