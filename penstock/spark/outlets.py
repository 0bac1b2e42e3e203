"""The sink stage: unpacks what the cells wrote and hands it to the sinks, once per micro-batch."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from time import time_ns
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.errors import ResourceError
from penstock.spark.frames import decoded
from penstock.spark.heartbeat import promises
from penstock.spark.keeper import DEAD, LATE, METRICS, RESULT
from penstock.spark.layout import Layout
from penstock.spark.sinks import Sink

Place = tuple[str, str]
"""A kind of output (result, late, dead) and the query or stream it belongs to."""


class Outlets:
    """What `foreachBatch` calls. Counts go on from `before`, the outlets of the same run before it was changed."""

    def __init__(self, layout: Layout, run: str, sinks: Mapping[Place, Sink], before: Outlets | None = None) -> None:
        self.layout = layout
        self._sinks = sinks
        self._lock = threading.Lock()
        self._closed = False
        self._batch: int = before._batch if before else -1
        self._cells: dict[int, dict[str, Any]] = dict(before._cells) if before else {}
        self._counts: dict[Place, int] = dict(before._counts) if before else {}
        begun = time_ns() // 1000
        self._heard: dict[str, int] = dict.fromkeys((stream.name for stream in layout.spec.streams), begun)
        self._heard |= before._heard if before else {}
        for (kind, name), sink in sinks.items():
            sink.open(run, name, layout.spec.bound[name].schema if kind == RESULT else self._declared(name))

    def __call__(self, frame: DataFrame, batch: int) -> None:
        cells: dict[int, dict[str, Any]] = {}
        found: dict[Place, list[pa.Table]] = {}
        for cell, kind, name, _, data in frame.collect():
            if kind == METRICS:
                cells[cell] = json.loads(bytes(data))
            else:
                found.setdefault((kind, name), []).append(decoded(bytes(data)))
        with self._lock:
            if self._closed:
                raise ResourceError("RUN_CLOSED", "the run was stopped before this micro-batch was written")
            for place, sink in self._sinks.items():
                sink.write(batch, self._table(place, found.get(place, [])))
            self._cells.update(cells)
            now = time_ns() // 1000
            self._heard.update({name: now for cell in cells.values() for name in cell["heard"]})
            if batch > self._batch:
                for place, tables in found.items():
                    self._counts[place] = self._counts.get(place, 0) + sum(table.num_rows for table in tables)
                self._batch = batch

    def close(self) -> None:
        """Let the micro-batch that is being written end; write no other."""
        with self._lock:
            self._closed = True

    def _declared(self, stream: str) -> pa.Schema:
        declared = next(item for item in self.layout.spec.streams if item.name == stream)
        return pa.schema([declared.schema.field(name) for name in self.layout.columns(declared)])

    def _table(self, place: Place, tables: list[pa.Table]) -> pa.Table:
        kind, name = place
        if kind != RESULT:
            return pa.concat_tables([self._declared(name).empty_table(), *tables], promote_options="default")
        if not tables:
            return self.layout.spec.bound[name].schema.empty_table()
        together = pa.concat_tables(tables)
        return together if len(tables) == 1 else together.sort_by("_ts")

    def due(self, now: int) -> tuple[dict[str, int], dict[str, int]]:
        """The frontiers, and those the clock may raise."""
        with self._lock:
            frontiers: dict[str, int] = {}
            for cell in self._cells.values():
                for name, frontier in cell["frontiers"].items():
                    frontiers[name] = max(frontier, frontiers.get(name, frontier))
            heard = dict(self._heard)
        spec = self.layout.spec
        queries = [
            frozenset(source.relation.name for source in query.body.inputs if not source.is_table)
            for query in spec.bound.values()
        ]
        return frontiers, promises(spec.streams, queries, frontiers, heard, now)

    def metrics(self) -> dict[str, Any]:
        """What the cells said last, put together."""
        with self._lock:
            cells, counts, batch = dict(self._cells), dict(self._counts), self._batch
        kept = ("version", "segments", "base_rows", "how", "seconds", "rows")
        return {
            "batch": batch,
            "streams": {stream.name: _stream(stream.name, cells, counts) for stream in self.layout.spec.streams},
            "queries": {query.name: self._query(query.name, cells, counts) for query in self.layout.spec.queries},
            "cells": {number: {key: cells[number][key] for key in kept} for number in sorted(cells)},
        }

    def _query(self, name: str, cells: Mapping[int, Any], counts: Mapping[Place, int]) -> dict[str, Any]:
        placement = self.layout.placements[name]
        return {
            "emitted": counts.get((RESULT, name), 0),
            "placement": str(placement),
            "replication": placement.replication(),
            **_summed(cell["cell"][name] for cell in cells.values() if name in cell["cell"]),
        }


def _stream(name: str, cells: Mapping[int, Any], counts: Mapping[Place, int]) -> dict[str, Any]:
    frontiers = [cell["frontiers"][name] for cell in cells.values() if name in cell["frontiers"]]
    return {
        "late": counts.get((LATE, name), 0),
        "dead": counts.get((DEAD, name), 0),
        "frontier": max(frontiers, default=None),
    }


def _summed(cells: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    total = {"bytes": 0, "window_rows": 0, "state_rows": 0, "waiting": 0, "living": 0}
    for cell in cells:
        for key in total:
            value = cell.get(key, 0)
            total[key] += sum(value.values()) if isinstance(value, dict) else value
    return total
