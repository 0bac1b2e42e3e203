"""A cell's micro-batch with exactly-once state, although its engine outlives the task.

The state kept by Spark is one map: base rows in segments (see `segments`), and under a key of its own a small header
that lists the valid segments. Intermediate results are never stored. It is one map because every state variable costs
the task a few round trips to Spark.

The engine is in a cache of the Python worker. It is taken out at the start and put back at the end of a micro-batch, so
that an attempt that fails half-way leaves nothing behind. It is used only if its version and token equal those of the
state: every attempt has a fresh token, so an attempt that Spark did not commit is never confused with one it did. An
engine of an earlier version of the same history loads the newest segments; otherwise all are loaded into a new one.
"""

from __future__ import annotations

import json
import logging
import uuid
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import reduce
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from penstock.adapt import EngineCommand, JoinSample, encode_samples
from penstock.errors import InternalError
from penstock.spark.blobs import join_blobs, split_blobs
from penstock.spark.layout import Layout, get_layout
from penstock.spark.worker.batch import CellBatch, PackedRow, read_batch
from penstock.spark.worker.cell import Cell
from penstock.spark.worker.cell_memory import find_cell_memory, name_cell
from penstock.spark.worker.key_stats import TopKey, find_top_key
from penstock.spark.worker.segments import (
    Segment,
    build_segment,
    choose_rewrite,
    cut_rows,
    drop_dead_rows,
    find_needed_inlets,
    keep_newest_rows,
    plan_loads,
)
from penstock.state import decode_table, encode_table

_LOG = logging.getLogger(__name__)
RESULT, LATE, DEAD, METRICS, SAMPLES = "result", "late", "dead", "metrics", "samples"
OutputKey = tuple[str, str]
"""A kind of output (result, late, dead) and the query or stream it belongs to."""
OutputRow = tuple[int, str, str, int, bytes]
"""cell, kind, name, rows, data: what a cell writes."""
WriteOutput = Callable[[int, str, Iterable[tuple[OutputKey, pa.Table]]], list[OutputRow]]
"""Writes the tables of a cell, given the token of the attempt, and returns the rows that Spark gets."""
Written = TypeVar("Written")
BLOB_BYTES = 60 * 2**10
"""About the largest size of the data in one output row; see `NARROW_ROWS` in `session`."""


_ALL_ROWS = 2**62
HEADER_KEY = (0, 0)
"""The key of the header: versions, and so segments, begin with 1."""


class MapState(Protocol):
    """Spark's MapState of (first, last) → (data)."""

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None: ...  # noqa: N802 - Spark's names
    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None: ...  # noqa: N802
    def removeKey(self, key: tuple[Any, ...]) -> None: ...  # noqa: N802


@dataclass
class StateHeader:
    """The small part of a cell's state. Every attempt at a micro-batch has a fresh token."""

    version: int = 0
    token: str = ""
    frontiers: dict[str, int] = field(default_factory=dict)
    lineage: list[tuple[int, str]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    last_command: int = -1
    """The number of the last command."""
    arrivals: dict[str, int] = field(default_factory=dict)
    """By stream, the time of the last micro-batch with rows of it; empty unless the pipeline is clocked."""

    def encode(self) -> bytes:
        segments = [segment.as_json() for segment in self.segments]
        values = [self.version, self.token, self.frontiers, self.lineage, segments, self.last_command]
        return json.dumps([*values, self.arrivals] if self.arrivals else values).encode()

    @classmethod
    def decode(cls, blob: bytes) -> StateHeader:
        version, token, frontiers, lineage, parts, last_command, *arrivals = json.loads(blob)
        segments = [Segment.from_json(*part) for part in parts]
        return cls(version, token, frontiers, [(v, t) for v, t in lineage], segments, last_command, *arrivals)


@dataclass
class CachedCell:
    """An engine and the state it agrees with.

    `size`: the bytes of its base rows; `held`: what the engine holds, which is counted if it has a limit.
    """

    version: int
    token: str
    cell: Cell
    size: int
    held: int = 0


@dataclass(frozen=True)
class WorkReport:
    """How the engine of a cell was obtained, the seconds it worked, when the micro-batch began, and its results.

    `memory`: what the engine holds, if it has a limit; see `Cell.measure_memory`.
    """

    how: str
    seconds: float
    begun: float
    results: Mapping[str, pa.Table]
    memory: Mapping[str, int] | None


class CellCache:
    """The engines of this worker, by run and cell.

    With several cores Spark gives a cell to another worker each time, so without limits every worker would hold every
    cell. An engine that is too far behind to catch up is removed at once: all cells of a run have about the same
    version. Then the least recently used are removed, while there are too many or their rows have too many bytes. Under
    a memory limit of the worker, those that leave too little memory for a cell are removed before it works.
    """

    def __init__(self) -> None:
        self._items: OrderedDict[tuple[str, int], CachedCell] = OrderedDict()

    def take(self, run: str, cell: int) -> CachedCell | None:
        return self._items.pop((run, cell), None)

    def put(self, run: str, cell: int, item: CachedCell) -> None:
        limits = item.cell.layout.spec.maintenance
        self._items[run, cell] = item
        oldest = item.version - limits.lineage
        for key in [key for key, other in self._items.items() if key[0] == run and other.version < oldest]:
            self._items.pop(key).cell.close()
        while len(self._items) > 1 and (
            len(self._items) > limits.cached_cells
            or sum(other.size for other in self._items.values()) > limits.cached_bytes
        ):
            self._remove_oldest()

    def make_room(self, most: int) -> None:
        """Keep engines that hold at most so many bytes."""
        while sum(other.held for other in self._items.values()) > most:
            self._remove_oldest()

    def _remove_oldest(self) -> None:
        self._items.popitem(last=False)[1].cell.close()


CELL_CACHE = CellCache()


class CellAttempt(ABC, Generic[Written]):
    """One attempt at one micro-batch of a cell. What it writes and reports is that of the subclass."""

    def __init__(self, run: str, layout: Layout, state: MapState, cache: CellCache = CELL_CACHE) -> None:
        self._run = run
        self._layout = layout
        self._state = state
        self._cache = cache
        self._memory = find_cell_memory(layout.spec)
        kept = layout.spec.maintenance
        self._maintenance = kept if self._memory is None else self._memory.fit_segments(kept)

    @abstractmethod
    def _write(self, number: int, token: str, output: Iterable[tuple[OutputKey, pa.Table]]) -> list[Written]:
        """Write the tables of the cell, given the token of the attempt; returns what Spark gets."""

    def _report(
        self, number: int, header: StateHeader, batch: CellBatch, cell: Cell, work: WorkReport
    ) -> Iterable[Written]:
        """What Spark gets besides, about the cell after its micro-batch."""
        del number, header, batch, cell, work
        return ()

    def step(
        self, number: int, packed: Iterable[PackedRow], on_stage: Callable[[str, int, int], None]
    ) -> Iterator[list[Written]]:
        """Process a micro-batch: write once, then publish. `on_stage` is called between stages, for fault tests."""
        begun = perf_counter()
        header = self._read_header()
        batch = read_batch(self._layout, number, header.frontiers, header.last_command, packed, header.arrivals)
        self._obey(batch.engine_commands)
        cell, how = self._open_cell(number, header)
        with _close_after_error(cell):
            on_stage("ready", number, header.version)
            token = uuid.uuid4().hex
            working = perf_counter()
            with self._name_cell(number):
                results = cell.take(batch.rows, batch.frontiers)
            worked = perf_counter() - working
            on_stage("mutated", number, header.version)
            header = self._commit(header, batch, token)
            on_stage("stored", number, header.version)
            output = self._write(number, token, _list_output(results, batch))
            on_stage("written", number, header.version)
            memory = cell.measure_memory()
            work = WorkReport(how, worked, begun, results, memory)
            yield [*output, *self._report(number, header, batch, cell, work)]
            size = sum(segment.size for segment in header.segments)
        held = 0 if memory is None else memory["held"]
        self._cache.put(self._run, number, CachedCell(header.version, token, cell, size, held))
        on_stage("published", number, header.version)

    # ── before ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _read_header(self) -> StateHeader:
        blob = self._state.getValue(HEADER_KEY)
        return StateHeader() if blob is None else StateHeader.decode(bytes(blob[0]))

    def _obey(self, commands: Sequence[EngineCommand]) -> None:
        """Change the config as the driver will for the next micro-batch; the inlets stay."""
        spec = self._layout.spec
        config = reduce(lambda config, command: command.configure(config, 0), commands, spec.config)
        if config != spec.config:
            self._layout = get_layout(spec.with_config(config))

    def _open_cell(self, number: int, header: StateHeader) -> tuple[Cell, str]:
        """The engine at the version of the state, and how it was obtained."""
        layout = self._layout
        cached = self._cache.take(self._run, number)
        if self._memory is not None and self._memory.room_beside is not None:
            self._cache.make_room(self._memory.room_beside)
        if cached is not None:
            if cached.cell.layout.spec.id == layout.spec.id or cached.cell.change_layout(layout):
                if (cached.version, cached.token) == (header.version, header.token):
                    return cached.cell, "hit"
                missing = _find_missing_segments(header, cached.version, cached.token)
                if missing is not None:
                    self._load(number, cached.cell, missing, header.frontiers)
                    return cached.cell, "catch-up"
            cached.cell.close()
        with self._name_cell(number):
            cell = Cell(layout, self._memory)
        if not header.version:
            return cell, "new"
        self._load(number, cell, header.segments, header.frontiers)
        return cell, "rebuild"

    def _load(self, number: int, cell: Cell, segments: Sequence[Segment], frontiers: Mapping[str, int]) -> None:
        """Load the rows of segments into an engine: at once, or in parts if it has a limit."""
        if self._memory is None:
            cell.load(self._load_rows(segments), frontiers)
            return
        streams = {inlet.number: inlet.stream.name for inlet in self._layout.inlets}
        with _close_after_error(cell), self._name_cell(number):
            for part, until in plan_loads(segments, streams, frontiers, self._memory.part):
                cell.load(self._load_rows(part), until)

    def _name_cell(self, number: int) -> AbstractContextManager[None]:
        """Errors about memory inside are those of this cell."""
        return name_cell(number, self._layout.spec.cells, self._memory)

    def _load_rows(
        self, segments: Sequence[Segment], needed: Sequence[Mapping[int, int]] | None = None
    ) -> dict[int, pa.Table]:
        """The rows of segments by inlet, in order of arrival: all, or as many as each inlet needs, the newest."""
        found: dict[int, list[pa.Table]] = {}
        schemas = {inlet.number: inlet.schema for inlet in self._layout.inlets}
        times = {inlet.number: inlet.stream.time for inlet in self._layout.inlets}
        everything = dict.fromkeys(schemas, _ALL_ROWS)
        for item, wanted in zip(segments, needed or [everything] * len(segments), strict=True):
            value = self._state.getValue(item.key)
            if value is None:
                raise InternalError("SEGMENT_MISSING", f"segment {item.first}-{item.last} is not in the state")
            for inlet, blob in split_blobs(bytes(value[0])).items():
                if inlet in schemas and inlet in wanted:
                    rows = decode_table(blob).select(schemas[inlet].names)
                    found.setdefault(inlet, []).append(keep_newest_rows(rows, times[inlet], wanted[inlet]))
        return {inlet: pa.concat_tables(tables) for inlet, tables in found.items()}

    # ── after ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _commit(self, header: StateHeader, batch: CellBatch, token: str) -> StateHeader:
        version = header.version + 1
        segments = list(header.segments)
        bounds = self._layout.compute_bounds(batch.frontiers)
        rows = self._drop_dead_rows(batch.rows, bounds)
        parts = cut_rows(rows, self._maintenance.segment_bytes)
        segments += [self._store_segment(version, version, each, part) for part, each in enumerate(parts)]
        alive = find_needed_inlets(segments, self._layout.inlets, bounds)
        for item in (item for item, inlets in zip(segments, alive, strict=True) if not inlets):
            self._state.removeKey(item.key)
        segments = [item for item, inlets in zip(segments, alive, strict=True) if inlets]
        maintenance, inlets = self._maintenance, self._layout.inlets
        while (
            again := choose_rewrite(segments, alive := find_needed_inlets(segments, inlets, bounds), maintenance)
        ) is not None:
            segments = self._rewrite_segments(segments, alive, *again, bounds)
        lineage = [*header.lineage, (header.version, header.token)][-maintenance.lineage :]
        new = StateHeader(version, token, batch.frontiers, lineage, segments, batch.last_command, dict(batch.arrivals))
        self._state.updateValue(HEADER_KEY, (new.encode(),))
        return new

    def _store_segment(self, first: int, last: int, rows: Mapping[int, pa.Table], part: int) -> Segment:
        times = {inlet.number: inlet.stream.time for inlet in self._layout.inlets}
        blob = join_blobs({inlet: encode_table(table) for inlet, table in rows.items()})
        segment = build_segment(first, last, rows, times, len(blob), part)
        self._state.updateValue(segment.key, (blob,))
        return segment

    def _rewrite_segments(
        self,
        segments: list[Segment],
        alive: Sequence[Mapping[int, int]],
        start: int,
        end: int,
        bounds: Mapping[int, int],
    ) -> list[Segment]:
        """The segments with those from start to end merged into one, without dead rows."""
        group = segments[start:end]
        rows = self._drop_dead_rows(self._load_rows(group, alive[start:end]), bounds)
        for item in group:
            self._state.removeKey(item.key)
        merged = [self._store_segment(group[0].first, group[-1].last, rows, group[0].part)] if rows else []
        return [*segments[:start], *merged, *segments[end:]]

    def _drop_dead_rows(self, rows: Mapping[int, pa.Table], bounds: Mapping[int, int]) -> dict[int, pa.Table]:
        """The rows that a later result may need."""
        inlets = {inlet.number: inlet for inlet in self._layout.inlets}
        found = {number: drop_dead_rows(table, inlets[number], bounds[number]) for number, table in rows.items()}
        return {number: table for number, table in found.items() if table.num_rows}


class CellState(CellAttempt[OutputRow]):
    """An attempt for a pipeline: output rows, with a report for the driver."""

    def __init__(
        self,
        run: str,
        layout: Layout,
        state: MapState,
        cache: CellCache = CELL_CACHE,
        write: WriteOutput | None = None,
    ) -> None:
        """`write`: writes the results; by default they are output rows."""
        super().__init__(run, layout, state, cache)
        self._write_output = write or encode_output

    def _write(self, number: int, token: str, output: Iterable[tuple[OutputKey, pa.Table]]) -> list[OutputRow]:
        return self._write_output(number, token, output)

    def _report(
        self, number: int, header: StateHeader, batch: CellBatch, cell: Cell, work: WorkReport
    ) -> Iterator[OutputRow]:
        """What the driver learns of this micro-batch: samples, if there are some, and the report of the cell."""
        samples, failure = _sample_cell(cell)
        if samples:
            yield number, SAMPLES, "", len(samples), encode_samples(samples)
        report = {
            **_report_state(header),
            **_report_input(batch),
            "tops": self._find_top_keys(batch),
            "how": work.how,
            "cell": cell.metrics(),
            "failures": cell.failures(),
            "status": self._describe(cell, work.results),
            "worked": work.seconds,
            "memory": work.memory,
            "failure": failure,
            "awaits": cell.find_wake_times(),
            "seconds": perf_counter() - work.begun,
        }
        yield number, METRICS, "", 0, json.dumps(report).encode()

    def _find_top_keys(self, batch: CellBatch) -> dict[str, TopKey]:
        inlets = {inlet.number: inlet for inlet in self._layout.inlets}
        tops = ((number, find_top_key(inlets[number], table)) for number, table in batch.rows.items())
        return {str(number): top for number, top in tops if top is not None}

    def _describe(self, cell: Cell, results: Mapping[str, pa.Table]) -> dict[str, object] | None:
        """What the page shows of the cell, if it is due; an error there must not stop queries."""
        try:
            return cell.describe(results)
        except Exception:
            _LOG.debug("the cell cannot be described", exc_info=True)
            return None


@contextmanager
def _close_after_error(cell: Cell) -> Iterator[None]:
    """An engine whose attempt fails inside is not used again."""
    try:
        yield
    except BaseException:
        cell.close()
        raise


def _find_missing_segments(header: StateHeader, version: int, token: str) -> list[Segment] | None:
    """The segments after a version; None if it is of another history or they are merged with older ones."""
    if (version, token) not in header.lineage:
        return None
    after = [item for item in header.segments if item.last > version]
    return after if all(item.first > version for item in after) else None


def _report_state(header: StateHeader) -> dict[str, object]:
    return {
        "version": header.version,
        "segments": len(header.segments),
        "base_rows": sum(s.rows for s in header.segments),
    }


def _sample_cell(cell: Cell) -> tuple[list[JoinSample], str | None]:
    """The samples of a cell, or the error that prevented them: it must not stop queries."""
    try:
        return cell.sample(), None
    except Exception as error:
        return [], f"{type(error).__name__}: {error}"


def _list_output(results: Mapping[str, pa.Table], batch: CellBatch) -> Iterator[tuple[OutputKey, pa.Table]]:
    """The tables with rows that a cell writes."""
    for kind, tables in ((RESULT, results), (LATE, batch.late), (DEAD, batch.dead)):
        yield from (((kind, name), table) for name, table in tables.items() if table.num_rows)


def encode_output(cell: int, token: str, output: Iterable[tuple[OutputKey, pa.Table]]) -> list[OutputRow]:
    """All tables as output rows, the same for every attempt."""
    del token
    return [row for key, table in output for row in encode_rows(cell, key, table)]


def encode_rows(cell: int, key: OutputKey, table: pa.Table) -> list[OutputRow]:
    """A table as output rows of a bounded size."""
    parts = max(1, min(-(-table.nbytes // BLOB_BYTES), table.num_rows))
    size = -(-table.num_rows // parts)
    chunks = (table.slice(start, size) for start in range(0, table.num_rows, size))
    return [(cell, *key, chunk.num_rows, encode_table(chunk)) for chunk in chunks]


def _report_input(batch: CellBatch) -> dict[str, object]:
    rows = {str(number): table.num_rows for number, table in batch.rows.items()}
    return {
        "frontiers": batch.frontiers,
        "seen": batch.last_command,
        "heard": sorted(batch.active_streams),
        "rows": rows,
    }
