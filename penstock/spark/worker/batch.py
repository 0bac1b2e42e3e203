"""The input of a cell in a micro-batch: rows by inlet, late and bad rows apart, and the frontiers after it.

Lateness is judged against the frontier before the micro-batch, which is the same in every cell. So the same rows are
late for any number of cells. If several cells or inlets hold a late row, one of them reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from penstock.ops.lateness import find_frontier, mark_late, stamp_times
from penstock.spark.driver.control import ControlCommand, read_frontiers
from penstock.spark.heartbeat import is_stamped
from penstock.spark.layout import ALWAYS, FOREVER, Layout, StreamInlet
from penstock.spark.worker.pack import BAD_ROWS, COMMAND, OWN_COLUMN
from penstock.state.arrow import decode_table, flatten_column
from penstock.state.instants import to_ticks

PackedRow = tuple[int, int, int, int, int, bytes | None]
"""stream, inlet, part, seq, top, data: a packed row without its cell."""


class CellBatch:
    """The input of one cell in one micro-batch."""

    def __init__(
        self, layout: Layout, cell: int, before: Mapping[str, int], last_command: int, packed: Iterable[PackedRow]
    ) -> None:
        """`before`: the frontiers after the last micro-batch; `last_command`: the number of the last command."""
        self.frontiers = dict(before)
        self.active_streams: set[str] = set()
        commands: list[ControlCommand] = []
        self.rows: dict[int, pa.Table] = {}
        self.late: dict[str, pa.Table] = {}
        blobs: dict[int, list[tuple[int, int, pa.Table]]] = {}
        dead: dict[str, list[pa.Table]] = {}
        for stream_number, inlet_number, part, seq, top, data in packed:
            if int(inlet_number) == COMMAND:
                commands.append(ControlCommand.decode(bytes(data or b"")))
                continue
            stream = layout.spec.streams[int(stream_number)]
            self.active_streams.add(stream.name)
            self._advance(stream.name, find_frontier(stream, int(top)) if int(top) != ALWAYS else ALWAYS)
            if data is None:
                continue
            if int(inlet_number) == BAD_ROWS:
                dead.setdefault(stream.name, []).append(decode_table(data))
            else:
                blobs.setdefault(int(inlet_number), []).append((int(part), int(seq), decode_table(data)))
        self.dead = {name: pa.concat_tables(tables) for name, tables in dead.items()}
        names = [stream.name for stream in layout.spec.streams]
        for name, frontier in read_frontiers(commands, last_command, names, FOREVER):
            self._advance(name, frontier)
        self.last_command = max([last_command, *(command.number for command in commands)])
        for inlet in layout.inlets:
            parts = sorted(blobs.get(inlet.number, []), key=lambda part: part[:2])
            if parts:
                table = pa.concat_tables([table for _, _, table in parts])
                self._split_late(inlet, table, before.get(inlet.stream.name, ALWAYS), inlet.route.is_owner(cell))

    def _advance(self, stream: str, frontier: int) -> None:
        if frontier != ALWAYS:
            self.frontiers[stream] = max(self.frontiers.get(stream, ALWAYS), frontier)

    def _split_late(self, inlet: StreamInlet, table: pa.Table, frontier: int, owner: bool) -> None:
        place = table.column_names.index(inlet.stream.time)
        times = to_ticks(flatten_column(table.column(place)))
        late = mark_late(times, frontier)
        if is_stamped(inlet.stream) and late.any():  # the clock went back: such rows get the frontier as their time
            now = pa.array(stamp_times(times, frontier)).cast(inlet.stream.time_type)
            table = table.set_column(place, table.schema.field(place), now)
        elif late.any():
            rejected = table.filter(pa.array(late))
            table = table.filter(pa.array(~late))
            if OWN_COLUMN in rejected.column_names:
                rejected = rejected.filter(rejected.column(OWN_COLUMN)).drop_columns([OWN_COLUMN])
            if owner and rejected.num_rows:
                name = inlet.stream.name
                before = [self.late[name]] if name in self.late else []
                self.late[name] = pa.concat_tables([*before, rejected], promote_options="default")
        if OWN_COLUMN in table.column_names:
            table = table.drop_columns([OWN_COLUMN])
        if table.num_rows:
            self.rows[inlet.number] = table
