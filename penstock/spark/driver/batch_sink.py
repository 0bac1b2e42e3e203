"""The sink stage: unpacks what the cells wrote and hands it to the sinks, once per micro-batch."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from time import time_ns
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.adapt.monitor import Sample
from penstock.cql import bind_query
from penstock.errors import PenstockError
from penstock.spark.driver.adaptive import Steering
from penstock.spark.driver.checkpoint_metadata import Ledger
from penstock.spark.driver.control import Command
from penstock.spark.heartbeat import promises
from penstock.spark.layout import Layout
from penstock.spark.sinks import Sink, opened
from penstock.spark.spec import Spec
from penstock.spark.table_codec import decoded
from penstock.spark.worker.cell import COUNTED
from penstock.spark.worker.cell_state import DEAD, LATE, METRICS, RESULT, SAMPLES
from penstock.spark.worker.key_stats import Heat

Place = tuple[str, str]
"""A kind of output (result, late, dead) and the query or stream it belongs to."""
Listener = Callable[[int, Mapping[int, Any]], object]
Done = Callable[[int], None]
"""Is told the micro-batch from which on a command counts."""


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
        self.steering: Steering | None = None
        self._given: dict[int, tuple[Command, Sink | None, Done | None]] = {}
        self._turned = threading.Condition()
        self._batch = -1
        self._cells: dict[int, dict[str, Any]] = {}
        self._counts: dict[Place, int] = {}
        self._heard = dict.fromkeys((stream.name for stream in spec.streams), time_ns() // 1000)
        self._listeners: list[Listener] = []
        self._heat = Heat()
        self._thread: int | None = None
        for (kind, name), sink in sinks.items():
            schema = self.layout.spec.bound[name].schema if kind == RESULT else self._declared(name)
            opened(sink, ledger.run, name, schema)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self._thread = threading.get_ident()
        try:
            self._take(frame, batch)
        finally:
            self._thread = None

    @property
    def inside(self) -> bool:
        """Whether this is called by the micro-batch itself: by a sink, or by a function that listens."""
        return threading.get_ident() == self._thread

    def _take(self, frame: DataFrame, batch: int) -> None:
        cells: dict[int, dict[str, Any]] = {}
        samples: dict[int, list[Sample]] = {}
        found: dict[Place, list[pa.Table]] = {}
        for cell, kind, name, _, data in frame.collect():
            if kind == METRICS:
                cells[cell] = json.loads(bytes(data))
            elif kind == SAMPLES:
                samples[cell] = pickle.loads(bytes(data))
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
                self._heat.add(cells)
            self._turn(batch, max((cell["seen"] for cell in cells.values()), default=-1))
        for listener in list(self._listeners):
            listener(batch, cells)
        if self.steering is not None:
            self._steer(self.steering, batch, cells, samples)

    def _steer(
        self, steering: Steering, batch: int, cells: Mapping[int, Any], samples: Mapping[int, list[Sample]]
    ) -> None:
        for cell in cells.values():
            if cell["failure"] is not None:
                steering.failed(cell["failure"])
        queries = {query.name for query in self.layout.spec.queries}
        steering.heard(batch, [cell["worked"] for cell in cells.values()], samples, queries)

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

    def open(self, name: str, text: str, sink: Sink) -> None:
        """Open the sink of a query that is to be added: what it cannot do, the caller is told, and no micro-batch."""
        opened(sink, self._ledger.run, name, bind_query(text, self.layout.spec.catalog).schema)

    def given(self, give: Callable[[], Command], sink: Sink | None, done: Done | None) -> Command:
        """Give a command about queries; with `add`, where the results go; `done` is told of its effect.

        No micro-batch ends between the two: one that had read the command would not know of it.
        """
        with self._turned:
            command = give()
            self._given[command.number] = command, sink, done
        return command

    def wait(self, number: int, seconds: float) -> bool:
        """Wait so long for a command to take effect; a sink, which is called by the micro-batch itself, never waits."""
        with self._turned:
            if self.inside:
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
            command, sink, done = self._given.pop(number)
            if done is not None:
                done(batch + 1)
            plan = plan.changed(command.do, command.arguments, self._ledger.generation + 1)
            if sink is not None:
                self._sinks[RESULT, command.arguments["name"]] = sink
            if command.do == "drop":
                del self._sinks[RESULT, command.arguments["name"]]
        self._ledger.turn(batch + 1, plan)
        self.layout = Layout(self.layout.spec.planned(plan))
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
            awaits = [cell["awaits"] for cell in self._cells.values()]
            layout = self.layout
        spec = layout.spec
        queries = [
            (layout.bases(name), min((each[name] for each in awaits if name in each), default=None))
            for name in spec.bound
        ]
        return frontiers, promises(spec.streams, queries, frontiers, heard, now)

    def metrics(self) -> dict[str, Any]:
        """What the cells said last, put together."""
        with self._turned:
            cells, counts, batch, layout = dict(self._cells), dict(self._counts), self._batch, self.layout
            hot = self._heat.hot(layout)
        kept = ("version", "segments", "base_rows", "how", "seconds", "rows")
        return {
            "batch": batch,
            "streams": {stream.name: _stream(stream.name, cells, counts) for stream in layout.spec.streams},
            "queries": {query.name: _query(query.name, layout, cells, counts) for query in layout.spec.queries},
            "hot": [asdict(each) for each in hot],
            "cells": {number: {key: cells[number][key] for key in kept} for number in sorted(cells)},
        }

    def budgets(self) -> dict[str, str]:
        """The queries that keep to a budget, and to which, as it was asked for."""
        return _budgets(self.layout)

    def explain(self) -> str:
        """How the queries are placed, and what is uneven about it."""
        with self._turned:
            layout = self.layout
            hot = self._heat.hot(layout)
        placed = (f"{name}: {placement}" for name, placement in layout.placements.items())
        return "\n".join([*placed, *(f"hot: {each}" for each in hot)])


def _budgets(layout: Layout) -> dict[str, str]:
    plan = layout.spec.plan
    general = [order.arguments for order in plan.orders if order.do == "budget"]
    found = {query.name: dict(query.budget or next(iter(general), ())) for query in plan.queries}
    asked = {name: arguments.get("probes") for name, arguments in found.items()}
    return {
        name: probes if isinstance(probes, str) else f"{probes:g} probes per second and cell"
        for name, probes in asked.items()
        if probes is not None
    }


def _query(name: str, layout: Layout, cells: Mapping[int, Any], counts: Mapping[Place, int]) -> dict[str, Any]:
    placement = layout.placements[name]
    together = _together([cell["cell"][name] for cell in cells.values() if name in cell["cell"]])
    return {
        **together,
        "emitted": together["emitted"] if name in layout.spec.derived else counts.get((RESULT, name), 0),
        "placement": str(placement),
        "replication": placement.replication(),
        "budget": _budgets(layout).get(name),
    }


def _stream(name: str, cells: Mapping[int, Any], counts: Mapping[Place, int]) -> dict[str, Any]:
    frontiers = [cell["frontiers"][name] for cell in cells.values() if name in cell["frontiers"]]
    return {
        "late": counts.get((LATE, name), 0),
        "dead": counts.get((DEAD, name), 0),
        "frontier": max(frontiers, default=None),
    }


def _together(cells: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The figures of a query in all cells. Completeness: of the results to be expected where results came."""
    total: dict[str, Any] = {key: sum(cell[key] for cell in cells) for key in COUNTED}
    expected = sum(cell["emitted"] / cell["completeness"] for cell in cells if cell["completeness"])
    least = min((cell["completeness"] for cell in cells), default=1.0)
    return {**total, "completeness": total["emitted"] / expected if expected else least}
