"""The description of a cell for the page: its operators, the slices of shared joins, the newest rows of queries.

Law: results do not depend on it, and it takes at most `SHARE` of the time of a cell. A description that took long is
followed by a long pause, so figures may be older than the micro-batch; the first one after a change of queries or
plans comes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import monotonic, perf_counter
from typing import Any

import pyarrow as pa

from penstock.display import format_rows
from penstock.engine import Engine, EngineStatus
from penstock.errors import PenstockError
from penstock.spark.layout import Layout

SHARE = 0.005
"""The part of a cell's time that descriptions may take."""
LEAST_SECONDS = 1.0
"""The shortest time between two descriptions of the same queries and plans."""
MOST_QUERIES = 50
"""The newest rows are kept of so many queries with rows in a micro-batch, and slices of so many joins."""
KEPT_ROWS = 5


class CellObserver:
    """Describes one cell from time to time."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._due = 0.0
        self._described: str | None = None
        self._latest: dict[str, pa.Table] = {}

    def keep_latest(self, results: Mapping[str, pa.Table]) -> None:
        """Copy the newest rows of queries, so that they do not keep the others in memory."""
        kept = 0
        for name, table in results.items():
            rows = table.num_rows
            if rows and kept < MOST_QUERIES:
                kept += 1
                self._latest[name] = table.take(pa.array(range(max(0, rows - KEPT_ROWS), rows)))

    def forget(self, names: Iterable[str]) -> None:
        """Forget the newest rows of queries that begin: another query had the name."""
        for name in names:
            self._latest.pop(name, None)

    def describe(self, engine: Engine, layout: Layout) -> dict[str, Any] | None:
        """The description, as values of JSON; None if it is not due."""
        if self._clock() < self._due and self._described == layout.spec.id:
            return None
        begun = perf_counter()
        status = engine.status()
        names = {query.name for query in status.queries}
        described = {
            **_encode_status(status, {f"source {inlet.name}": inlet.stream.name for inlet in layout.inlets}),
            "slices": _list_slices(engine, status),
            "latest": {name: format_rows(table) for name, table in self._latest.items() if name in names},
        }
        self._latest.clear()
        self._described = layout.spec.id
        self._due = self._clock() + max(LEAST_SECONDS, (perf_counter() - begun) / SHARE)
        return described


_QUERY_KEYS = ("name", "plan", "state", "operator", "derived")


def _encode_status(status: EngineStatus, inlets: Mapping[str, str]) -> dict[str, Any]:
    """The operators, arcs and queries; an inlet is the stream that it reads."""
    arcs = [
        {**vars(arc), "source": f"source {inlets[arc.source]}"} if arc.source in inlets else vars(arc)
        for arc in status.arcs
    ]
    return {
        "operators": [vars(each) for each in status.operators if each.id not in inlets],
        "arcs": arcs,
        "queries": [{key: getattr(each, key) for key in _QUERY_KEYS} for each in status.queries],
    }


def _list_slices(engine: Engine, status: EngineStatus) -> dict[str, Any]:
    """The slices of every shared join, by one of its queries."""
    shared = {each.id for each in status.operators if each.kind == "join" and each.members > 1}
    readers = {each.operator: each.name for each in status.queries if each.operator in shared}
    found: dict[str, Any] = {}
    for name in list(readers.values())[:MOST_QUERIES]:
        try:
            found[name] = format_rows(engine.slices(name), numbers=True)
        except PenstockError:  # several joins
            continue
    return found
