"""A run on Spark as the page shows it: the descriptions of its cells, added up."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.engine import (
    ArcStatus,
    Engine,
    EngineStatus,
    OperatorStatus,
    QueryStatus,
    StreamStatus,
    convert_frontier,
    describe_source,
    split_queries,
)
from penstock.errors import QueryError
from penstock.spark.requests import Request
from penstock.web.sources import STARTING, Reading, describe_decision

if TYPE_CHECKING:
    from penstock.spark.run import Run

_SHOWN_FIGURES = ("placement", "emitted", "written", "window_rows", "state_rows", "bytes", "waiting", "budget")
_SHOWN_ROWS = 20
_SUMMED = ("rows_out", "state_rows", "bytes", "waiting", "suppressed")

CellStatus = Mapping[str, Any]
"""The description of a cell; see `penstock.spark.worker.cell_status`."""


class RunSource:
    """A run of this process. Its figures are those of the last micro-batch, or of the last second."""

    kind = "run"

    def __init__(self, run: Run) -> None:
        self.title = f"run on {run.checkpointLocation}"
        self._run = run
        self._seen_decisions = 0
        self._graph: tuple[object, Engine, EngineStatus] | None = None
        """For a configuration, an engine with its queries but without rows."""
        self._arrived: dict[str, int] = {}
        self._batches: dict[int, float] = {}

    def read(self) -> Reading:
        run, now = self._run, time.time()
        decisions = run.decisions()
        new = decisions[self._seen_decisions :]
        self._seen_decisions = len(decisions)
        self._count_batches(run.recentProgress)
        status = self._build_status()
        state = "stopped" if not run.isActive else "running" if run.list_cell_statuses() else STARTING
        return Reading(status, tuple(describe_decision(each, now) for each in new), state=state)

    def _count_batches(self, reports: Sequence[Any]) -> None:
        names = [stream.name for stream in self._run.spec.streams]
        for report in reports:
            if report["batchId"] in self._batches or "addBatch" not in report["durationMs"]:
                continue
            self._batches[report["batchId"]] = report["durationMs"].get("triggerExecution", 0) / 1000
            for name, source in zip(names, report["sources"], strict=False):
                self._arrived[name] = self._arrived.get(name, 0) + source["numInputRows"]

    def _find_graph(self) -> tuple[Engine, EngineStatus]:
        spec = self._run.spec
        if self._graph is None or self._graph[0] != spec.config:
            engine = _build_spec_engine(spec, with_rows=True)
            self._graph = spec.config, engine, engine.status()
        return self._graph[1:]

    def _build_status(self) -> EngineStatus:
        run = self._run
        spec, metrics, sinks = run.spec, run.metrics(), run.sinks
        # Queries may filter rows out before cells count them; a row of a packed stream has many tuples.
        arrived = {name: max(each["read"], self._arrived.get(name, 0)) for name, each in metrics["streams"].items()}
        cells = run.list_cell_statuses()
        graph = merge_cells(spec, cells, arrived) if cells else self._find_graph()[1]
        texts = {query.name: query.text for query in spec.queries}
        declared = {stream.name: stream for stream in spec.streams}
        streams = tuple(
            StreamStatus(
                name,
                arrived[name],
                each["late"],
                each["dead"],
                convert_frontier(each["frontier"], declared[name].time_type),
                in_seconds=pa.types.is_timestamp(declared[name].time_type),
                source=describe_source(declared[name]),
            )
            for name, each in metrics["streams"].items()
        )
        facts, counts = split_queries(
            _fill_query(replace(each, text=texts[each.name]), metrics["queries"][each.name], sinks)
            for each in graph.queries
            if each.name in texts and each.name in metrics["queries"]
        )
        return replace(
            graph,
            pushes=len(self._batches),
            busy=sum(self._batches.values()),
            facts=facts,
            counts=counts,
            streams=streams,
            notices=tuple(str(each) for each in run.status["notices"]),
        )

    def describe_query(self, name: str) -> dict[str, Any]:
        run = self._run
        queries = run.metrics()["queries"]
        if name not in queries:
            raise QueryError("UNKNOWN_QUERY", f"there is no query {name}", query=name)
        found = queries[name]
        query = run.spec.config.find_query(name)
        explained = [str(self._find_graph()[0].explain(name)), f"sink: {run.sinks.get(name, 'none')}"]
        explained += [f"{key.replace('_', ' ')}: {found[key]}" for key in _SHOWN_FIGURES if found[key] is not None]
        return {
            "name": name, "text": query.text, "plan": query.plan, "state": query.state or run.spec.state,
            "explain": "\n".join(explained), "slices": merge_slices(run.list_cell_statuses(), name),
            "latest": merge_latest(run.get_latest(name)),
        }  # fmt: skip

    def execute(self, request: Request) -> Mapping[str, Any]:
        from penstock.spark.driver.request_server import execute_request  # noqa: PLC0415 - needs pyspark

        return execute_request(self._run, request)


def _fill_query(query: QueryStatus, found: Mapping[str, Any], sinks: Mapping[str, str]) -> QueryStatus:
    return replace(
        query, emitted=int(found["emitted"]), completeness=float(found["completeness"]), stale=int(found["stale"]),
        budget=found["budget"], error=found["error"], sink=sinks.get(query.name),
    )  # fmt: skip


# ── descriptions of cells, added up ──────────────────────────────────────────────────────────────────────────────


def merge_cells(spec: Any, cells: Sequence[CellStatus], arrived: Mapping[str, int]) -> EngineStatus:
    """The graph of the cells with the sums of their figures. Cells that have other queries than most do not count."""
    names = {query.name for query in spec.queries}
    base = max(cells, key=lambda cell: len(names & {query["name"] for query in cell["queries"]}))
    alike = [cell for cell in cells if _list_names(cell) == _list_names(base)]
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for cell in alike:
        for each in cell["operators"]:
            parts.setdefault(each["id"], []).append(each)
    streams = [OperatorStatus(f"source {name}", "source", name, rows_out=count) for name, count in arrived.items()]
    arcs = dict.fromkeys(ArcStatus(**arc) for arc in base["arcs"])
    return EngineStatus(
        0, 0.0, (*streams, *(_merge_operator(found) for found in parts.values())), tuple(arcs),
        *split_queries(QueryStatus(text="", **query) for query in base["queries"]), (),
    )  # fmt: skip


def _list_names(cell: CellStatus) -> list[tuple[str, str]]:
    return [(query["name"], query["operator"]) for query in cell["queries"]]


def _merge_operator(parts: Sequence[Mapping[str, Any]]) -> OperatorStatus:
    """One operator over several cells. A share is that of all rows; a state is as complete as in the worst cell."""
    sums = {key: sum(part[key] for part in parts) for key in _SUMMED}
    complete = [part["complete"] for part in parts if part["complete"] is not None]
    gated = any(part["demanded"] is not None for part in parts)
    return OperatorStatus(
        **{
            **parts[0],
            **sums,
            "demanded": sums["rows_out"] / max(1, sums["rows_out"] + sums["suppressed"]) if gated else None,
            "complete": min(complete, default=None),
        }
    )


def merge_slices(cells: Sequence[CellStatus], name: str) -> dict[str, Any] | None:
    """The slices of the join of a query, with the sums of their numbers; None if it shares none."""
    columns: list[str] = []
    found: dict[tuple[str, str], list[Any]] = {}
    for cell in cells:
        operators = {query["name"]: query["operator"] for query in cell["queries"]}
        tables = [each for other, each in cell["slices"].items() if operators[other] == operators.get(name)]
        for table in tables:
            columns = table["columns"]
            for row in table["rows"]:
                begin, end, *_ = row
                old = found.get((begin, end))
                found[begin, end] = row if old is None else [_add(a, b) for a, b in zip(old, row, strict=True)]
    return {"columns": columns, "rows": [list(map(str, row)) for row in found.values()]} if found else None


def _add(one: Any, other: Any) -> Any:
    return one + other if isinstance(one, int) and isinstance(other, int) else one


def merge_latest(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The newest rows of all cells."""
    rows = [row for cell in cells for row in cell["rows"]]
    return {"columns": cells[0]["columns"], "rows": rows[-_SHOWN_ROWS:]} if rows else None


# ── a pipeline without rows ──────────────────────────────────────────────────────────────────────────────────────


def build_spec_status(spec: Any) -> EngineStatus:
    """The graph of a pipeline: that of an engine with its streams, tables and queries, without data."""
    return _build_spec_engine(spec).status()


def _build_spec_engine(spec: Any, *, with_rows: bool = False) -> Engine:
    """`with_rows`: with the rows of its tables, on which the choice of a plan depends."""
    engine = Engine(state=spec.state, warn=False)
    for function in spec.functions:
        engine.function(function.name, *function.as_spec())
    for stream in spec.streams:
        engine.declare(stream)
    for name, table in spec.tables.items():
        engine.table(name, table.read() if with_rows else table.schema.empty_table())
    for query in spec.queries:
        declare = engine.derive if query.name in spec.derived_streams else engine.query
        declare(query.name, query.text, query.plan, query.state)
    return engine
