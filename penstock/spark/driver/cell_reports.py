"""The reports of cells: the last one of each cell, and counts and sizes added up by stream and query."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from time import time_ns
from typing import Any

from penstock.adapt import SetBudget
from penstock.ops import Notice, describe_failed_query
from penstock.spark.driver.stream_notices import PipelineFigures, list_notices
from penstock.spark.heartbeat import compute_heartbeats
from penstock.spark.layout import Layout
from penstock.spark.worker.cell import SUMMED_METRICS
from penstock.spark.worker.cell_state import DEAD, LATE, RESULT, OutputKey
from penstock.spark.worker.key_stats import KeyStats

_LOGGER = logging.getLogger("penstock")

CellReport = Mapping[str, Any]
"""The figures of one cell after a micro-batch; see `CellState.step`."""

_SHOWN = ("version", "segments", "base_rows", "how", "seconds", "rows", "memory")
"""The figures of a cell that `metrics` shows."""


class CellReports:
    """The last report of each cell. Methods may be called from several threads."""

    def __init__(self, streams: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._batch = -1
        self._cells: dict[int, CellReport] = {}
        self._counts: dict[OutputKey, int] = {}
        self._rows_read: dict[str, int] = {}
        self._statuses: dict[int, Mapping[str, Any]] = {}
        self._latest: dict[tuple[str, str], dict[int, Any]] = {}
        """By name and text of a query, and by cell, the newest rows that a cell described."""
        self._last_arrivals = dict.fromkeys(streams, time_ns() // 1000)
        self._key_stats = KeyStats()
        self._late: dict[str, int] = {}
        self._logged: set[tuple[str, str]] = set()
        self._failures: dict[tuple[str, str], dict[int, str]] = {}
        """By name and text of a query, the cells in which it stopped, and the errors: a rebuilt cell forgets them."""

    def add(self, layout: Layout, batch: int, cells: Mapping[int, CellReport], rows: Mapping[OutputKey, int]) -> None:
        """Add the reports of a micro-batch and the rows written by output; a repeated micro-batch counts once."""
        now = time_ns() // 1000
        with self._lock:
            self._cells.update(cells)
            for number, cell in cells.items():
                for name, (text, error) in cell["failures"].items():
                    self._failures.setdefault((name, text), {})[number] = error
            self._last_arrivals.update({name: now for cell in cells.values() for name in cell["heard"]})
            texts = {query.name: query.text for query in layout.spec.queries}
            self._latest = {key: found for key, found in self._latest.items() if key in texts.items()}
            for number, cell in cells.items():
                if (status := cell["status"]) is not None:
                    self._statuses[number] = status
                    for name, newest in status["latest"].items():
                        self._latest.setdefault((name, texts.get(name, "")), {})[number] = newest
            self._late = {name: count for (kind, name), count in rows.items() if kind == LATE}
            if batch > self._batch:
                for output, count in rows.items():
                    self._counts[output] = self._counts.get(output, 0) + count
                for name, count in _count_rows_read(layout, cells).items():
                    self._rows_read[name] = self._rows_read.get(name, 0) + count
                self._batch = batch
                self._key_stats.add(cells)

    def find_due_frontiers(self, layout: Layout, now: int) -> tuple[dict[str, int], dict[str, int]]:
        """The frontiers of streams, and those that the clock may advance at the time `now`."""
        with self._lock:
            cells, last_arrivals = list(self._cells.values()), dict(self._last_arrivals)
        frontiers: dict[str, int] = {}
        for cell in cells:
            for name, frontier in cell["frontiers"].items():
                frontiers[name] = max(frontier, frontiers.get(name, frontier))
        waiting = [
            (
                layout.find_base_streams(name),
                min((cell["awaits"][name] for cell in cells if name in cell["awaits"]), default=None),
            )
            for name in layout.spec.bound_queries
        ]
        return frontiers, compute_heartbeats(layout.spec.streams, waiting, frontiers, last_arrivals, now)

    def list_notices(self, layout: Layout) -> tuple[Notice, ...]:
        """The notices that are active after the last micro-batch."""
        with self._lock:
            figures = PipelineFigures(list(self._cells.values()), dict(self._late), dict(self._last_arrivals))
        failed = (describe_failed_query(name, error) for name, error in self.list_failures(layout).items())
        return (*failed, *list_notices(layout, figures))

    def list_failures(self, layout: Layout) -> dict[str, str]:
        """The queries of a layout that have stopped: in which cells, and the error."""
        with self._lock:
            found = {
                query.name: dict(self._failures.get((query.name, query.text), {})) for query in layout.spec.queries
            }
        return {name: _describe_failure(cells) for name, cells in found.items() if cells}

    def log_notices(self, layout: Layout) -> None:
        """Log every notice once."""
        for notice in self.list_notices(layout):
            if (notice.condition, notice.stream) not in self._logged:
                self._logged.add((notice.condition, notice.stream))
                _LOGGER.warning("%s", notice)

    def metrics(self, layout: Layout) -> dict[str, Any]:
        """The last reports, added up by stream and query of a layout."""
        with self._lock:
            cells, counts, batch, read = dict(self._cells), dict(self._counts), self._batch, dict(self._rows_read)
            hot = self._key_stats.find_hot_cells(layout)
        spec, failures = layout.spec, self.list_failures(layout)
        queries = {each.name: _collect_query_metrics(each.name, layout, cells, counts) for each in spec.queries}
        return {
            "batch": batch,
            "streams": {
                each.name: {"read": read.get(each.name, 0), **_collect_stream_metrics(each.name, cells, counts)}
                for each in spec.streams
            },
            "queries": {name: {**figures, "error": failures.get(name)} for name, figures in queries.items()},
            "hot": [asdict(each) for each in hot],
            "cells": {number: {key: cells[number][key] for key in _SHOWN} for number in sorted(cells)},
        }

    def list_statuses(self) -> list[Mapping[str, Any]]:
        """The newest descriptions of the cells, in their order; see `CellObserver`."""
        with self._lock:
            return [self._statuses[number] for number in sorted(self._statuses)]

    def get_latest(self, name: str) -> list[Any]:
        """The newest rows of a query, by cell."""
        with self._lock:
            found = next((cells for (other, _), cells in self._latest.items() if other == name), {})
            return [found[number] for number in sorted(found)]

    def explain(self, layout: Layout) -> str:
        """The placement of queries, and hot cells."""
        with self._lock:
            hot = self._key_stats.find_hot_cells(layout)
        placed = (f"{name}: {placement}" for name, placement in layout.placements.items())
        return "\n".join([*placed, *(f"hot: {each}" for each in hot)])


def _describe_failure(cells: Mapping[int, str]) -> str:
    numbers = ", ".join(map(str, sorted(cells)))
    return f"stopped in {'cell' if len(cells) == 1 else 'cells'} {numbers}: {cells[min(cells)]}"


def list_budgets(layout: Layout) -> dict[str, str]:
    """The budgets that the user or the pipeline set, as text, by query."""
    config = layout.spec.config
    general = next((order for order in config.orders if isinstance(order, SetBudget)), SetBudget(None))
    limits = {query.name: (query.budget or general).probes for query in config.queries}
    return {
        name: probes if isinstance(probes, str) else f"{probes:g} probes per second and cell"
        for name, probes in limits.items()
        if probes is not None
    }


def _collect_query_metrics(
    name: str, layout: Layout, cells: Mapping[int, Any], counts: Mapping[OutputKey, int]
) -> dict[str, Any]:
    """The figures of a query over all cells, and its placement and budget."""
    placement = layout.placements[name]
    together = _sum_cells([cell["cell"][name] for cell in cells.values() if name in cell["cell"]])
    return {
        **together,
        "emitted": together["emitted"] if name in layout.spec.derived_streams else counts.get((RESULT, name), 0),
        "written": counts.get((RESULT, name), 0),
        "placement": str(placement),
        "replication": placement.compute_replication(),
        "budget": list_budgets(layout).get(name),
    }


def _count_rows_read(layout: Layout, cells: Mapping[int, CellReport]) -> dict[str, int]:
    """By stream, the rows of a micro-batch that its widest reader gets, each counted once."""
    found: dict[str, int] = {}
    for inlet in layout.inlets:
        rows = sum(cell["rows"].get(str(inlet.number), 0) for cell in cells.values()) // inlet.route.copies
        found[inlet.stream.name] = max(rows, found.get(inlet.stream.name, 0))
    return found


def _collect_stream_metrics(name: str, cells: Mapping[int, Any], counts: Mapping[OutputKey, int]) -> dict[str, Any]:
    """The rejected rows of a stream and its frontier."""
    frontiers = [cell["frontiers"][name] for cell in cells.values() if name in cell["frontiers"]]
    return {
        "late": counts.get((LATE, name), 0),
        "dead": counts.get((DEAD, name), 0),
        "frontier": max(frontiers, default=None),
    }


def _sum_cells(cells: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The figures of a query in all cells. Completeness: of the results to be expected where results came."""
    total: dict[str, Any] = {key: sum(cell[key] for cell in cells) for key in SUMMED_METRICS}
    expected = sum(cell["emitted"] / cell["completeness"] for cell in cells if cell["completeness"])
    least = min((cell["completeness"] for cell in cells), default=1.0)
    return {**total, "completeness": total["emitted"] / expected if expected else least}
