"""A cell: the embedded engine with a pipeline's queries over its inlets, fed with rows and frontiers from outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from penstock.adapt import AddQuery, DeriveStream, JoinSample, QueryCommand, Sampler, compare_codes
from penstock.engine import Engine
from penstock.errors import InternalError, UnsupportedError
from penstock.spark.layout import Layout, StreamInlet
from penstock.spark.pipeline_config import PipelineConfig, list_changes
from penstock.spark.worker.cell_memory import CellMemory
from penstock.spark.worker.cell_status import CellObserver


class Cell:
    """The engine of one cell.

    It takes rows that are not late, in order of arrival: the caller judges lateness against the frontier of the whole
    pipeline, so that it does not depend on the number of cells.
    """

    def __init__(self, layout: Layout, memory: CellMemory | None = None) -> None:
        """`memory`: the limit of the engine; None without one."""
        self.layout = layout
        self._memory = memory
        self._newest_change = max((query.since for query in layout.spec.queries), default=0)
        limit, spill = (None, None) if memory is None else (memory.limit, memory.spill)
        spec = layout.spec
        self._engine = Engine(spec.state, maintenance=spec.maintenance, warn=False, memory=limit, spill=spill)
        for function in layout.spec.functions:
            self._engine.function(function.name, *function.as_spec())
        for name, table in layout.spec.tables.items():
            self._engine.table(name, table.read())
        self._sampler = None if layout.spec.sampling is None else Sampler(layout.spec.sampling.effort)
        self._observer = CellObserver()
        self._declare_inlets(layout.inlets)
        self._apply(layout, list_changes(PipelineConfig(()), layout.spec.config))

    def _declare_inlets(self, inlets: Iterable[StreamInlet]) -> None:
        for inlet in inlets:
            self._engine.declare(inlet.declaration)

    def _apply(self, layout: Layout, commands: Iterable[QueryCommand]) -> None:
        for command in commands:
            if isinstance(command, AddQuery | DeriveStream):
                command.start(self._engine, layout.read_inlets(command.name))
            else:
                command.apply(self._engine)

    def change_layout(self, layout: Layout) -> bool:
        """Change to another layout in place; False if that is not possible and the cell must be rebuilt."""
        before, after = self.layout.spec, layout.spec
        schemas = {inlet.number: inlet.schema for inlet in self.layout.inlets}
        old = {(query.name, query.since) for query in before.queries}
        added = [query for query in after.queries if (query.name, query.since) not in old]
        other = before.sampling != after.sampling or before.derived_streams != after.derived_streams
        reshaped = any(schemas.get(inlet.number, inlet.schema) != inlet.schema for inlet in layout.inlets)
        returning = any(query.since <= self._newest_change for query in added)  # a query of an older config returns
        texts = {(query.name, query.since): query.text for query in before.queries}
        rewritten = any(texts.get((each.name, each.since), each.text) != each.text for each in after.queries)
        if reshaped or other or returning or rewritten or before.tables_id != after.tables_id:
            return False
        self._declare_inlets(inlet for inlet in layout.inlets if inlet.number not in schemas)
        try:
            self._apply(layout, list_changes(before.config, after.config))
        except UnsupportedError:  # a query that shares its join gets a budget of its own
            return False
        self.layout = layout
        self._observer.forget(query.name for query in added)
        self._newest_change = max([self._newest_change, *(query.since for query in added)])
        return True

    def take(self, rows: Mapping[int, pa.Table], frontiers: Mapping[str, int]) -> Mapping[str, pa.Table]:
        """Push rows by inlet and the frontiers of the streams; returns the results that become certain, by query."""
        if self._sampler is None:
            return self._push(rows, frontiers)
        self._sampler.begin()
        results = self._push(rows, frontiers)
        self._sampler.end()
        return results

    def load(self, rows: Mapping[int, pa.Table], frontiers: Mapping[str, int]) -> None:
        """Take rows that another engine of this cell took before: all rows of its windows, or those it has not seen.

        Joins build nothing until a later row needs it, and states that they have start again too. That costs less than
        to join the rows if there are many results or many rows, and about a tenth more if there are few.
        """
        self._engine.load(*self._name_inlets(rows, frontiers))
        if self._sampler is not None:
            self._sampler.skip_next()
            self._engine.take_samples(self._sampler)

    def _push(self, rows: Mapping[int, pa.Table], frontiers: Mapping[str, int]) -> Mapping[str, pa.Table]:
        return self._engine.push(*self._name_inlets(rows, frontiers))

    def _name_inlets(
        self, rows: Mapping[int, pa.Table], frontiers: Mapping[str, int]
    ) -> tuple[dict[str, pa.Table], dict[str, pa.Scalar]]:
        """Rows and frontiers by the names of the engine's streams."""
        names = {inlet.number: inlet.name for inlet in self.layout.inlets}
        data = {names[number]: table for number, table in rows.items() if number in names}
        known = (inlet for inlet in self.layout.inlets if inlet.stream.name in frontiers)
        times = {each.name: _as_time(frontiers[each.stream.name], each.stream.time_type) for each in known}
        return data, times

    def sample(self) -> list[JoinSample]:
        """Samples of the joins, for adaptation; empty most of the time."""
        watch = self.layout.spec.sampling
        if self._sampler is None or watch is None or (watch.fresh_only and not self.layout.has_freshness):
            return []
        return [compare_codes(sample) for sample in self._engine.take_samples(self._sampler)]

    def find_wake_times(self) -> dict[str, int]:
        """By query that waits for time to pass, the first time at which it has work to do."""
        times = ((query.name, self._engine.awaits(query.name)) for query in self.layout.spec.queries)
        return {name: time for name, time in times if time is not None}

    def measure_memory(self) -> dict[str, int] | None:
        """The limit, what the engine holds, and what is on disk, in bytes; None without a limit."""
        if self._memory is None:
            return None
        memory = self._engine.metrics()["memory"]
        assert isinstance(memory, dict)
        return {key: int(memory[key]) for key in ("limit", "held", "spilled")}

    def close(self) -> None:
        """Free the engine and delete its files: it is not used again."""
        with self._engine:
            pass

    def metrics(self) -> dict[str, dict[str, float]]:
        """By query: the rows it holds, and those that were not probed under a budget."""
        return {query.name: _sum_metrics(self._engine.metrics(query.name)) for query in self.layout.spec.queries}

    def describe(self, results: Mapping[str, pa.Table]) -> dict[str, object] | None:
        """What the page shows of the cell after a micro-batch with these results; None most of the time."""
        self._observer.keep_latest(results)
        return self._observer.describe(self._engine, self.layout)

    def failures(self) -> dict[str, tuple[str, str]]:
        """The queries that have stopped in this cell: their text, and the error."""
        texts = {query.name: query.text for query in self.layout.spec.queries}
        return {name: (texts[name], str(error)) for name, error in self._engine.failures().items() if name in texts}


SUMMED_METRICS = (
    "bytes",
    "window_rows",
    "state_rows",
    "waiting",
    "living",
    "emitted",
    "unprobed",
    "stale",
    "built",
    "completed",
)
"""The figures of a query that are added up over cells."""


def _sum_metrics(metrics: Mapping[str, object]) -> dict[str, float]:
    """The figures of a query as numbers; those by stream or node are added up."""
    found: dict[str, float] = {}
    for key in (*SUMMED_METRICS, "completeness"):
        found[key] = _sum_figure(metrics.get(key, 0))
    return found if "completeness" in metrics else {**found, "completeness": 1.0}


def _sum_figure(value: object) -> float:
    """A figure as a number; a figure by stream or node is added up."""
    if isinstance(value, Mapping):
        return sum(map(_sum_figure, value.values()))
    if isinstance(value, int | float):
        return value
    raise InternalError("BAD_METRIC", f"a figure of a query is a number, not {value!r}")


def _as_time(tick: int, kind: pa.DataType) -> pa.Scalar:
    """A frontier as a value of a time column, limited to the range of its type."""
    if pa.types.is_integer(kind):
        most = 2 ** (kind.bit_width - 1) - 1
        tick = max(-most - 1, min(tick, most))
    return pa.scalar(tick, pa.int64()).cast(kind)
