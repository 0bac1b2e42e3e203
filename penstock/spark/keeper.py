"""A cell's micro-batch with exactly-once state, although its engine outlives the task.

State kept by Spark: a journal of base rows (a map of segments, see `journal`) and one small value (version, token,
meta). Intermediate results are never stored.

The engine lives in a cache of the Python worker. It is taken out at the start and put back at the end of a micro-batch,
so that an attempt that fails half-way leaves nothing behind. It counts only if its version and token are those of the
state: every attempt has a fresh token, so an attempt that Spark did not commit is never taken for one it did. If it is
of an earlier version of the same history, it catches up from the newest segments; otherwise it is built anew.
"""

from __future__ import annotations

import json
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol

import pyarrow as pa

from penstock.spark.batch import CellBatch, Packed
from penstock.spark.cell import Cell
from penstock.spark.frames import decoded, encoded, framed, unframed
from penstock.spark.journal import Segment, due, living, needed, segment
from penstock.spark.layout import Layout

RESULT, LATE, DEAD, METRICS = "result", "late", "dead", "metrics"
Output = tuple[int, str, str, int, bytes]
"""cell, kind, name, rows, data: what a cell writes."""
_LINEAGE = 16
_CACHED = 64


class ValueState(Protocol):
    """Spark's ValueState of (version, token, meta)."""

    def get(self) -> tuple[Any, ...] | None: ...
    def update(self, newValue: tuple[Any, ...]) -> None: ...  # noqa: N803 - Spark's names here and below


class MapState(Protocol):
    """Spark's MapState of (first, last) → (token, data)."""

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None: ...  # noqa: N802
    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None: ...  # noqa: N802
    def removeKey(self, key: tuple[Any, ...]) -> None: ...  # noqa: N802


@dataclass
class Meta:
    """The small part of a cell's state."""

    version: int = 0
    token: str = ""
    frontiers: dict[str, int] = field(default_factory=dict)
    lineage: list[tuple[int, str]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    seen: int = -1
    """The number of the last command."""

    def packed(self) -> bytes:
        segments = [[s.first, s.last, s.rows, [[n, *span] for n, span in s.spans.items()]] for s in self.segments]
        return json.dumps([self.frontiers, self.lineage, segments, self.seen]).encode()

    @classmethod
    def unpacked(cls, version: int, token: str, blob: bytes) -> Meta:
        frontiers, lineage, parts, seen = json.loads(blob)
        segments = [
            Segment(first, last, rows, {n: (count, low, top) for n, count, low, top in spans})
            for first, last, rows, spans in parts
        ]
        return cls(version, token, frontiers, [(v, t) for v, t in lineage], segments, seen)


@dataclass
class Cached:
    """An engine and the state it agrees with."""

    version: int
    token: str
    cell: Cell


class Cache:
    """The engines of this worker, by run and cell; the ones not used for longest go first."""

    def __init__(self) -> None:
        self._items: OrderedDict[tuple[str, int], Cached] = OrderedDict()

    def take(self, run: str, cell: int) -> Cached | None:
        return self._items.pop((run, cell), None)

    def put(self, run: str, cell: int, item: Cached) -> None:
        self._items[run, cell] = item
        while len(self._items) > _CACHED:
            self._items.popitem(last=False)


CACHE = Cache()


class Keeper:
    """The state of one cell during one attempt of one micro-batch."""

    def __init__(self, run: str, layout: Layout, value: ValueState, segments: MapState, cache: Cache = CACHE) -> None:
        self._run = run
        self._layout = layout
        self._value = value
        self._segments = segments
        self._cache = cache

    def step(
        self, number: int, packed: Iterable[Packed], passed: Callable[[str, int, int], None]
    ) -> Iterator[list[Output]]:
        """Work on a micro-batch: write once, then publish. `passed` is told the stages, for tests to fail in them."""
        begun = perf_counter()
        meta = self._meta()
        cell, how = self._cell(number, meta)
        passed("ready", number, meta.version)
        batch = CellBatch(self._layout, number, meta.frontiers, meta.seen, packed)
        token = uuid.uuid4().hex
        results = cell.take(batch.rows, batch.frontiers)
        passed("mutated", number, meta.version)
        meta = self._commit(meta, batch, token)
        passed("stored", number, meta.version)
        report = {**_stored(meta), "how": how, "seconds": perf_counter() - begun, "cell": cell.metrics()}
        yield _output(number, results, batch, report)
        self._cache.put(self._run, number, Cached(meta.version, token, cell))
        passed("published", number, meta.version)

    # ── before ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _meta(self) -> Meta:
        state = self._value.get()
        return Meta() if state is None else Meta.unpacked(int(state[0]), str(state[1]), bytes(state[2]))

    def _cell(self, number: int, meta: Meta) -> tuple[Cell, str]:
        """The engine at the state's version, and how it came to be."""
        layout = self._layout
        cached = self._cache.take(self._run, number)
        if cached is not None and cached.cell.layout.spec.id == layout.spec.id:
            if (cached.version, cached.token) == (meta.version, meta.token):
                return cached.cell, "hit"
            missing = _missing(meta, cached.version, cached.token)
            if missing is not None:
                cached.cell.take(self._load(missing), meta.frontiers)
                return cached.cell, "catch-up"
        cell = Cell(layout)
        if not meta.version:
            return cell, "new"
        cell.take(self._load(meta.segments), meta.frontiers)
        return cell, "rebuild"

    def _load(self, segments: list[Segment]) -> dict[int, pa.Table]:
        """The rows of segments by inlet, in the order of their arrival."""
        found: dict[int, list[pa.Table]] = {}
        schemas = {inlet.number: inlet.schema for inlet in self._layout.inlets}
        for item in segments:
            value = self._segments.getValue((item.first, item.last))
            assert value is not None, f"segment {item.first}-{item.last} is not in the state"
            for inlet, blob in unframed(bytes(value[1])).items():
                if inlet in schemas:
                    found.setdefault(inlet, []).append(decoded(blob).select(schemas[inlet].names))
        return {inlet: pa.concat_tables(tables) for inlet, tables in found.items()}

    # ── after ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _commit(self, meta: Meta, batch: CellBatch, token: str) -> Meta:
        version = meta.version + 1
        segments = list(meta.segments)
        if batch.rows:
            segments.append(self._store(version, version, batch.rows, token))
        bounds = self._layout.bounds(batch.frontiers)
        kept = needed(segments, self._layout.inlets, bounds)
        for item in segments:
            if item not in kept:
                self._segments.removeKey((item.first, item.last))
        while (merge := due(kept)) is not None:
            kept = self._merged(kept, *merge, bounds, token)
        lineage = [*meta.lineage, (meta.version, meta.token)][-_LINEAGE:]
        new = Meta(version, token, batch.frontiers, lineage, kept, batch.seen)
        self._value.update((version, token, new.packed()))
        return new

    def _store(self, first: int, last: int, rows: Mapping[int, pa.Table], token: str) -> Segment:
        times = {inlet.number: inlet.stream.time for inlet in self._layout.inlets}
        blob = framed({inlet: encoded(table) for inlet, table in rows.items()})
        self._segments.updateValue((first, last), (token, blob))
        return segment(first, last, rows, times)

    def _merged(
        self, segments: list[Segment], start: int, end: int, bounds: Mapping[int, int], token: str
    ) -> list[Segment]:
        """The segments with those from start to end made one, dead rows left out."""
        group = segments[start:end]
        inlets = {inlet.number: inlet for inlet in self._layout.inlets}
        rows = {
            number: alive
            for number, table in self._load(group).items()
            if (alive := living(table, inlets[number], bounds[number])).num_rows
        }
        for item in group:
            self._segments.removeKey((item.first, item.last))
        merged = [self._store(group[0].first, group[-1].last, rows, token)] if rows else []
        return [*segments[:start], *merged, *segments[end:]]


def _missing(meta: Meta, version: int, token: str) -> list[Segment] | None:
    """The segments after a version, if it is of the same history and they can be told apart."""
    if (version, token) not in meta.lineage:
        return None
    after = [item for item in meta.segments if item.last > version]
    return after if all(item.first > version for item in after) else None


def _stored(meta: Meta) -> dict[str, object]:
    return {"version": meta.version, "segments": len(meta.segments), "base_rows": sum(s.rows for s in meta.segments)}


def _output(cell: int, results: Mapping[str, pa.Table], batch: CellBatch, report: Mapping[str, object]) -> list[Output]:
    out: list[Output] = []
    for kind, tables in ((RESULT, results), (LATE, batch.late), (DEAD, batch.dead)):
        out += [(cell, kind, name, table.num_rows, encoded(table)) for name, table in tables.items() if table.num_rows]
    rows = {str(number): table.num_rows for number, table in batch.rows.items()}
    said = json.dumps({**report, "frontiers": batch.frontiers, "heard": sorted(batch.heard), "rows": rows})
    return [*out, (cell, METRICS, "", 0, said.encode())]
