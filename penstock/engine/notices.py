"""The notices of an engine: silent problems of its streams, found from their frontiers and counts.

After each push the frontier and the counts of every source are compared with those before: O(streams), no work per row.
A notice is active while its cause lasts. It is also emitted once as a `PenstockWarning`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from time import time

import pyarrow as pa

from penstock.cql import Stream, format_duration
from penstock.engine.guard import Guard
from penstock.engine.registry import QueryRegistry
from penstock.engine.streams import StreamRegistry
from penstock.graph import Buffer, Node, find_holding_source
from penstock.ops import (
    FAR_AHEAD,
    HeldBack,
    Notice,
    SourceOperator,
    describe_held_back,
    describe_late_rows,
    find_unit_difference,
    find_unit_mistake,
    read_utc,
)
from penstock.state import ALWAYS

_CHECK_SECONDS = 10.0
_MIN_PUSHES, _MAX_PUSHES = 10, 100
"""A frontier that stood still for 100 pushes, or for 10 pushes that took 10 seconds, is worth a warning."""
_MANY_LATE = 100


@dataclass
class SourceRecord:
    """What is remembered of a source: its figures after the last push, and when they changed."""

    timed: bool
    """Whether its times are timestamps of its rows, which can be in a wrong unit."""
    frontier: int
    arrived: int
    late: int
    push: int
    """The push that last raised the frontier."""
    seconds: float
    """The system clock at that push."""
    rise: int = 0
    """The largest rise of the frontier in one push."""
    rise_push: int = 0
    last_rows: int = 0
    last_late: int = 0


class Notices:
    """Watches the sources of one engine."""

    def __init__(self, streams: StreamRegistry, queries: QueryRegistry, guard: Guard) -> None:
        self._streams = streams
        self._queries = queries
        self._guard = guard
        self._records: dict[str, SourceRecord] = {}
        self._warned: set[tuple[str, str]] = set()
        self._pushes = 0
        self._checked = time()
        self._check_push = 0

    def after_push(self) -> None:
        """Compare the sources with their records. Called after every push."""
        self._pushes += 1
        for source in self._streams:
            record = self._records.get(source.stream.name)
            if record is None:
                record = self._add_record(source.stream)
            if source.frontier != record.frontier:
                self._record_frontier(source, record)
            if source.arrival_count != record.arrived:
                self._record_rows(source, record)
        if self._guard.warns and self._pushes % _MIN_PUSHES == 0:
            self._check_progress()

    def _record_frontier(self, source: SourceOperator, record: SourceRecord) -> None:
        rise = source.frontier - record.frontier
        if record.frontier != ALWAYS and rise > record.rise:
            record.rise, record.rise_push = rise, self._pushes
        record.frontier, record.push, record.seconds = source.frontier, self._pushes, time()
        if record.timed and (found := find_unit_mistake(source.stream, source.find_newest_time())) is not None:
            self._warn(found)

    def _add_record(self, stream: Stream) -> SourceRecord:
        timed = stream.timestamps == "external" and pa.types.is_timestamp(stream.time_type)
        return self._records.setdefault(stream.name, SourceRecord(timed, int(ALWAYS), 0, 0, self._pushes - 1, time()))

    def _record_rows(self, source: SourceOperator, record: SourceRecord) -> None:
        record.last_rows = source.arrival_count - record.arrived
        record.last_late = source.late.count - record.late
        record.arrived, record.late = source.arrival_count, source.late.count
        found = self._find_late_rows(source, record) if record.last_late else None
        if found is not None and (record.late >= _MANY_LATE or self._is_far_ahead(source)):
            self._warn(found)

    def _check_progress(self) -> None:
        """Warn of streams that have held others back for long."""
        now = time()
        if now - self._checked < _CHECK_SECONDS and self._pushes - self._check_push < _MAX_PUSHES:
            return
        self._checked, self._check_push = now, self._pushes
        for held in self._find_held_back():
            if self._pushes - self._records[held.stream.name].push >= _MIN_PUSHES:
                self._warn(describe_held_back(held))

    def _warn(self, notice: Notice) -> None:
        key = notice.condition, notice.stream
        if key not in self._warned:
            self._warned.add(key)
            self._guard.warn(str(notice))

    def list_active(self) -> tuple[Notice, ...]:
        """The notices that are active now."""
        found = [describe_held_back(held) for held in self._find_held_back()]
        for source in self._streams:
            record = self._records.get(source.stream.name)
            if record is not None and (late := self._find_late_rows(source, record)) is not None:
                found.append(late)
            if (unit := find_unit_mistake(source.stream, source.find_newest_time())) is not None:
                found.append(unit)
        found += self._find_unit_differences()
        return tuple(dict.fromkeys(found))

    def _find_held_back(self) -> Iterator[HeldBack]:
        """The streams that did not rise in the last push while rows of other streams wait for them."""
        waiting: dict[str, list[tuple[str, Node]]] = {}
        holders: dict[Node, Node | None] = {}  # queries share nodes
        for running in self._queries:
            for node in running.nodes:
                if node not in holders:
                    holders[node] = find_holding_source(node)
                source = holders[node]
                if source is not None and isinstance(source.operator, SourceOperator):
                    waiting.setdefault(source.operator.stream.name, []).append((running.name, node))
        for name, held in waiting.items():
            source_, record = self._streams[name], self._records.get(name)
            if record is None or record.push >= self._pushes:
                continue
            nodes = dict.fromkeys(node for _, node in held)
            frontiers = [other.frontier for other in self._streams if other.stream.name in _list_inputs(nodes)]
            yield HeldBack(
                source_.stream,
                source_.frontier,
                max(frontiers),
                _count_waiting(nodes),
                tuple(dict.fromkeys(query for query, _ in held)),
                f"push {record.push} ({read_utc(record.seconds)})" if record.push else "the start",
            )

    def _find_late_rows(self, source: SourceOperator, record: SourceRecord) -> Notice | None:
        if 2 * record.last_late <= record.last_rows:
            return None
        rise = ""
        if record.rise > 0:
            rise = f"; it rose by {format_duration(record.rise, source.stream.time_type)} in push {record.rise_push}"
        return describe_late_rows(source.stream, record.last_late, record.last_rows, source.frontier, rise)

    def _is_far_ahead(self, source: SourceOperator) -> bool:
        return pa.types.is_timestamp(source.stream.time_type) and source.frontier > time() * 1e6 + FAR_AHEAD

    def _find_unit_differences(self) -> Iterator[Notice]:
        newest = {source.stream.name: (source.stream, source.find_newest_time()) for source in self._streams}
        inputs = {running.input_names: None for running in self._queries}
        for names in inputs:
            found = find_unit_difference([newest[name] for name in dict.fromkeys(names) if name in newest])
            if found is not None:
                yield found


def _count_waiting(nodes: Iterable[Node]) -> int:
    """The rows that wait before some nodes; rows that several of them read are counted once."""
    rows: dict[Buffer, int] = {}
    for reader in (reader for node in nodes for reader in node.readers):
        rows[reader.buffer] = max(rows.get(reader.buffer, 0), reader.waiting())
    return sum(rows.values())


def _list_inputs(nodes: Iterable[Node]) -> set[str]:
    """The names of the streams that nodes read, directly or through other operators."""
    found: set[str] = set()
    left = list(nodes)
    while left:
        node = left.pop()
        left += node.predecessors
        if isinstance(node.operator, SourceOperator):
            found.add(node.operator.stream.name)
    return found
