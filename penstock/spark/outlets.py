"""The sink stage: unpacks what the cells wrote and hands it to the sinks, once per micro-batch."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from time import time_ns
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.errors import PenstockError
from penstock.spark.control import Command
from penstock.spark.frames import decoded
from penstock.spark.heartbeat import promises
from penstock.spark.keeper import DEAD, LATE, METRICS, RESULT
from penstock.spark.layout import Layout
from penstock.spark.ledger import Ledger
from penstock.spark.sinks import Sink
from penstock.spark.spec import Spec

Place = tuple[str, str]
"""A kind of output (result, late, dead) and the query or stream it belongs to."""
Listener = Callable[[int, Mapping[int, Any]], object]


class Outlets:
    """What `foreachBatch` calls.

    At the end of a micro-batch the commands it held change the plan: from the next one on the changed plan counts. It
    is written to the ledger before the micro-batch counts as done, so that a repeated one finds it.
    """

    def __init__(
        self, spec: Spec, ledger: Ledger, sinks: Mapping[Place, Sink], announce: Callable[[str], object]
    ) -> None:
        """`announce`: how the plans reach the tasks of the next micro-batch."""
        self.layout = Layout(spec.planned(ledger.schedule.last))
        self._ledger = ledger
        self._sinks = dict(sinks)
        self._announce = announce
        self._given: dict[int, tuple[Command, Sink | None]] = {}
        self._turned = threading.Condition()
        self._batch = -1
        self._cells: dict[int, dict[str, Any]] = {}
        self._counts: dict[Place, int] = {}
        self._heard = dict.fromkeys((stream.name for stream in spec.streams), time_ns() // 1000)
        self._listeners: list[Listener] = []
        self._thread: int | None = None
        for (kind, name), sink in sinks.items():
            sink.open(ledger.run, name, self.layout.spec.bound[name].schema if kind == RESULT else self._declared(name))

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self._thread = threading.get_ident()
        cells: dict[int, dict[str, Any]] = {}
        found: dict[Place, list[pa.Table]] = {}
        for cell, kind, name, _, data in frame.collect():
            if kind == METRICS:
                cells[cell] = json.loads(bytes(data))
            else:
                found.setdefault((kind, name), []).append(decoded(bytes(data)))
        for place, sink in self._sinks.items():
            self._write(place, sink, batch, found.get(place, []))
        with self._turned:
            self._cells.update(cells)
            now = time_ns() // 1000
            self._heard.update({name: now for cell in cells.values() for name in cell["heard"]})
            if batch > self._batch:
                for place, tables in found.items():
                    self._counts[place] = self._counts.get(place, 0) + sum(table.num_rows for table in tables)
                self._batch = batch
            self._turn(batch, max((cell["seen"] for cell in cells.values()), default=-1))
        for listener in self._listeners:
            listener(batch, cells)

    def _write(self, place: Place, sink: Sink, batch: int, tables: list[pa.Table]) -> None:
        try:
            sink.write(batch, self._table(place, tables))
        except Exception as error:
            message = (
                f"the {place[0]} sink of {place[1]} failed in micro-batch {batch}: {type(error).__name__}: {error}; "
                "mend it and start again: it is given the same micro-batch again"
            )
            raise PenstockError("SINK_FAILED", message) from error

    # ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def given(self, command: Command, sink: Sink | None) -> None:
        """A command about queries is on its way; with `add`, where the results will go."""
        with self._turned:
            self._given[command.number] = command, sink

    def wait(self, number: int, seconds: float) -> bool:
        """Wait so long for a command to take effect; a sink, which is called by the micro-batch itself, never waits."""
        with self._turned:
            if threading.get_ident() == self._thread:
                return True
            return self._turned.wait_for(lambda: number not in self._given, seconds)

    def listen(self, listener: Listener) -> None:
        """Call a function after every micro-batch, in its thread, with its number and what the cells reported."""
        self._listeners.append(listener)

    def _turn(self, batch: int, seen: int) -> None:
        """Put the commands of a micro-batch into effect."""
        due = sorted(number for number in self._given if number <= seen)
        if not due:
            return
        plan = self.layout.spec.plan
        for number in due:
            command, sink = self._given.pop(number)
            plan = plan.changed(command.do, command.arguments, self._ledger.generation + 1)
            if sink is not None:
                self._sinks[RESULT, command.arguments["name"]] = sink
            if command.do == "drop":
                del self._sinks[RESULT, command.arguments["name"]]
        before = {query.name for query in self.layout.spec.queries}
        self._ledger.turn(batch + 1, plan)
        self.layout = Layout(self.layout.spec.planned(plan))
        for query in plan.queries:
            if query.name not in before:
                schema = self.layout.spec.bound[query.name].schema
                self._sinks[RESULT, query.name].open(self._ledger.run, query.name, schema)
        self._announce(self._ledger.schedule.packed())
        self._turned.notify_all()

    def _declared(self, stream: str) -> pa.Schema:
        return next(item.schema for item in self.layout.spec.streams if item.name == stream)

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
        with self._turned:
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
        with self._turned:
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
