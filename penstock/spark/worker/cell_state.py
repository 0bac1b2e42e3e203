"""A cell's micro-batch with exactly-once state, although its engine outlives the task.

State kept by Spark is one map: base rows in segments (see `journal`), and under a key of its own a small head that
says which segments count. Intermediate results are never stored. One map, because every variable of a processor costs
the task a few round trips to Spark.

The engine lives in a cache of the Python worker. It is taken out at the start and put back at the end of a micro-batch,
so that an attempt that fails half-way leaves nothing behind. It counts only if its version and token are those of the
state: every attempt has a fresh token, so an attempt that Spark did not commit is never taken for one it did. If it is
of an earlier version of the same history, it catches up from the newest segments; otherwise it is built anew.
"""

from __future__ import annotations

import json
import pickle
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol

import pyarrow as pa

from penstock.adapt.monitor import Sample
from penstock.spark.layout import Layout
from penstock.spark.table_codec import decoded, encoded, framed, unframed
from penstock.spark.worker.batch import CellBatch, Packed
from penstock.spark.worker.cell import Cell
from penstock.spark.worker.key_stats import Top, top_key
from penstock.spark.worker.segments import Segment, due, living, needed, segment

RESULT, LATE, DEAD, METRICS, SAMPLES = "result", "late", "dead", "metrics", "samples"
Output = tuple[int, str, str, int, bytes]
"""cell, kind, name, rows, data: what a cell writes."""


HEAD = (0, 0)
"""The key of the head: versions, and so segments, begin with 1."""


class MapState(Protocol):
    """Spark's MapState of (first, last) → (data)."""

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None: ...  # noqa: N802 - Spark's names
    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None: ...  # noqa: N802
    def removeKey(self, key: tuple[Any, ...]) -> None: ...  # noqa: N802


@dataclass
class Head:
    """The small part of a cell's state. Every attempt at a micro-batch has a fresh token."""

    version: int = 0
    token: str = ""
    frontiers: dict[str, int] = field(default_factory=dict)
    lineage: list[tuple[int, str]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    seen: int = -1
    """The number of the last command."""

    def packed(self) -> bytes:
        segments = [[s.first, s.last, s.rows, [[n, *span] for n, span in s.spans.items()]] for s in self.segments]
        return json.dumps([self.version, self.token, self.frontiers, self.lineage, segments, self.seen]).encode()

    @classmethod
    def unpacked(cls, blob: bytes) -> Head:
        version, token, frontiers, lineage, parts, seen = json.loads(blob)
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
        while len(self._items) > item.cell.layout.spec.maintenance.cached_cells:
            self._items.popitem(last=False)


CACHE = Cache()


class Keeper:
    """The state of one cell during one attempt of one micro-batch."""

    def __init__(self, run: str, layout: Layout, state: MapState, cache: Cache = CACHE) -> None:
        self._run = run
        self._layout = layout
        self._state = state
        self._cache = cache

    def step(
        self, number: int, packed: Iterable[Packed], passed: Callable[[str, int, int], None]
    ) -> Iterator[list[Output]]:
        """Work on a micro-batch: write once, then publish. `passed` is told the stages, for tests to fail in them."""
        begun = perf_counter()
        head = self._head()
        cell, how = self._cell(number, head)
        passed("ready", number, head.version)
        batch = CellBatch(self._layout, number, head.frontiers, head.seen, packed)
        token = uuid.uuid4().hex
        working = perf_counter()
        results = cell.take(batch.rows, batch.frontiers)
        worked = perf_counter() - working
        passed("mutated", number, head.version)
        head = self._commit(head, batch, token)
        passed("stored", number, head.version)
        output = _output(number, results, batch)
        samples, failure = _looked(cell)
        if samples:
            output.append((number, SAMPLES, "", len(samples), pickle.dumps(samples)))
        report = {
            **_stored(head), **_heard(batch), "tops": self._tops(batch), "how": how, "cell": cell.metrics(),
            "worked": worked, "failure": failure, "awaits": cell.awaits(), "seconds": perf_counter() - begun,
        }  # fmt: skip
        yield [*output, (number, METRICS, "", 0, json.dumps(report).encode())]
        self._cache.put(self._run, number, Cached(head.version, token, cell))
        passed("published", number, head.version)

    # ── before ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _head(self) -> Head:
        blob = self._state.getValue(HEAD)
        return Head() if blob is None else Head.unpacked(bytes(blob[0]))

    def _cell(self, number: int, head: Head) -> tuple[Cell, str]:
        """The engine at the state's version, and how it came to be."""
        layout = self._layout
        cached = self._cache.take(self._run, number)
        if cached is not None and (cached.cell.layout.spec.id == layout.spec.id or cached.cell.change(layout)):
            if (cached.version, cached.token) == (head.version, head.token):
                return cached.cell, "hit"
            missing = _missing(head, cached.version, cached.token)
            if missing is not None:
                cached.cell.replay(self._load(missing), head.frontiers)
                return cached.cell, "catch-up"
        cell = Cell(layout)
        if not head.version:
            return cell, "new"
        cell.replay(self._load(head.segments), head.frontiers)
        return cell, "rebuild"

    def _load(self, segments: Sequence[Segment], chosen: Sequence[frozenset[int]] | None = None) -> dict[int, pa.Table]:
        """The rows of segments by inlet, in the order of their arrival; those of all inlets, or of some chosen ones."""
        found: dict[int, list[pa.Table]] = {}
        schemas = {inlet.number: inlet.schema for inlet in self._layout.inlets}
        for item, wanted in zip(segments, chosen or [frozenset(schemas)] * len(segments), strict=True):
            value = self._state.getValue((item.first, item.last))
            assert value is not None, f"segment {item.first}-{item.last} is not in the state"
            for inlet, blob in unframed(bytes(value[0])).items():
                if inlet in schemas and inlet in wanted:
                    found.setdefault(inlet, []).append(decoded(blob).select(schemas[inlet].names))
        return {inlet: pa.concat_tables(tables) for inlet, tables in found.items()}

    def _tops(self, batch: CellBatch) -> dict[str, Top]:
        inlets = {inlet.number: inlet for inlet in self._layout.inlets}
        tops = ((number, top_key(inlets[number], table)) for number, table in batch.rows.items())
        return {str(number): top for number, top in tops if top is not None}

    # ── after ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _commit(self, head: Head, batch: CellBatch, token: str) -> Head:
        version = head.version + 1
        segments = list(head.segments)
        bounds = self._layout.bounds(batch.frontiers)
        rows = self._alive(batch.rows, bounds)
        if rows:
            segments.append(self._store(version, version, rows))
        alive = needed(segments, self._layout.inlets, bounds)
        for item in (item for item, inlets in zip(segments, alive, strict=True) if not inlets):
            self._state.removeKey((item.first, item.last))
        segments = [item for item, inlets in zip(segments, alive, strict=True) if inlets]
        upkeep, inlets = self._layout.spec.maintenance, self._layout.inlets
        while (again := due(segments, alive := needed(segments, inlets, bounds), upkeep)) is not None:
            segments = self._rewritten(segments, alive, *again, bounds)
        lineage = [*head.lineage, (head.version, head.token)][-upkeep.lineage :]
        new = Head(version, token, batch.frontiers, lineage, segments, batch.seen)
        self._state.updateValue(HEAD, (new.packed(),))
        return new

    def _store(self, first: int, last: int, rows: Mapping[int, pa.Table]) -> Segment:
        times = {inlet.number: inlet.stream.time for inlet in self._layout.inlets}
        blob = framed({inlet: encoded(table) for inlet, table in rows.items()})
        self._state.updateValue((first, last), (blob,))
        return segment(first, last, rows, times)

    def _rewritten(
        self,
        segments: list[Segment],
        alive: Sequence[frozenset[int]],
        start: int,
        end: int,
        bounds: Mapping[int, int],
    ) -> list[Segment]:
        """The segments with those from start to end made one, dead rows left out."""
        group = segments[start:end]
        rows = self._alive(self._load(group, alive[start:end]), bounds)
        for item in group:
            self._state.removeKey((item.first, item.last))
        merged = [self._store(group[0].first, group[-1].last, rows)] if rows else []
        return [*segments[:start], *merged, *segments[end:]]

    def _alive(self, rows: Mapping[int, pa.Table], bounds: Mapping[int, int]) -> dict[int, pa.Table]:
        """The rows some result may still need."""
        inlets = {inlet.number: inlet for inlet in self._layout.inlets}
        found = {number: living(table, inlets[number], bounds[number]) for number, table in rows.items()}
        return {number: table for number, table in found.items() if table.num_rows}


def _missing(head: Head, version: int, token: str) -> list[Segment] | None:
    """The segments after a version, if it is of the same history and they can be told apart."""
    if (version, token) not in head.lineage:
        return None
    after = [item for item in head.segments if item.last > version]
    return after if all(item.first > version for item in after) else None


def _stored(head: Head) -> dict[str, object]:
    return {"version": head.version, "segments": len(head.segments), "base_rows": sum(s.rows for s in head.segments)}


def _looked(cell: Cell) -> tuple[list[Sample], str | None]:
    """What a cell sees of its joins, or why it cannot: that must not reach a query."""
    try:
        return cell.look(), None
    except Exception as error:
        return [], f"{type(error).__name__}: {error}"


def _output(cell: int, results: Mapping[str, pa.Table], batch: CellBatch) -> list[Output]:
    out: list[Output] = []
    for kind, tables in ((RESULT, results), (LATE, batch.late), (DEAD, batch.dead)):
        out += [(cell, kind, name, table.num_rows, encoded(table)) for name, table in tables.items() if table.num_rows]
    return out


def _heard(batch: CellBatch) -> dict[str, object]:
    rows = {str(number): table.num_rows for number, table in batch.rows.items()}
    return {"frontiers": batch.frontiers, "seen": batch.seen, "heard": sorted(batch.heard), "rows": rows}
