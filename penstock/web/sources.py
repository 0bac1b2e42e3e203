"""What the page can show: an engine, a run on Spark, or the folder of a run. One protocol for all three."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from penstock.engine import Engine, EngineStatus, QueryStatus, StreamStatus, convert_frontier
from penstock.errors import PenstockError, QueryError, UnsupportedError
from penstock.spark.requests import (
    AddOne,
    Alter,
    ChangeBudget,
    Drop,
    MigratePlan,
    Policy,
    Request,
    RequestClient,
    Schedule,
)
from penstock.spark.storage import Folder
from penstock.web.series import GraphEvent, SeriesPoint
from penstock.web.status_codec import decode_status

if TYPE_CHECKING:
    from penstock.spark.run import Run

_SHOWN_ROWS = 20
_WATCH_SECONDS = 30.0
_RECENT_PUSHES = 5
_SHOWN_FIGURES = ("placement", "emitted", "written", "window_rows", "state_rows", "bytes", "waiting", "budget")
RECORD_FILE = "observed.json"
"""The file of a checkpoint in which a run saves what the page shows."""


@dataclass(frozen=True)
class Reading:
    """A status with what belongs to it."""

    status: EngineStatus
    events: tuple[GraphEvent, ...] = ()
    """The decisions of the controller that are new since the last reading."""
    points: tuple[SeriesPoint, ...] = ()
    """Time lines that were saved; empty for a source that is measured now."""
    state: str = "running"
    past_events: tuple[GraphEvent, ...] = field(default=(), repr=False)


class PageSource(Protocol):
    """Something that the page shows. `execute` is called in a thread of its own."""

    kind: str
    """engine, run or folder."""
    title: str

    def read(self) -> Reading: ...
    def describe_query(self, name: str) -> dict[str, Any]: ...
    def execute(self, request: Request) -> Mapping[str, Any]: ...


def describe_decision(decision: Any, now: float) -> GraphEvent:
    """A decision of the controller as an event."""
    command, numbers = decision.command, dict(decision.numbers)
    if command is None or decision.error is not None:
        return GraphEvent(now, "decision", "", f"no change: {decision.error}", numbers=numbers)
    text = f"{command.query}: {command.do} {'lifted' if command.value is None else command.value}"
    return GraphEvent(now, "decision", command.query, text, numbers=numbers)


def format_rows(table: pa.Table) -> dict[str, Any]:
    """The last rows of a table as texts."""
    shown = table.slice(max(0, table.num_rows - _SHOWN_ROWS))
    rows = [[_format_value(value) for value in row.values()] for row in shown.to_pylist()]
    return {"columns": shown.column_names, "rows": rows}


def _format_value(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_format_value, value))
    return "" if value is None else str(value)


class EngineSource:
    """An engine in this process. Readings wait for running calls of the engine, as any other call does."""

    kind = "engine"

    def __init__(self, engine: Engine, title: str = "engine") -> None:
        self.title = title
        self._engine = engine
        self._seen_decisions = 0
        self._watched_until = 0.0
        self._recent: deque[Mapping[str, pa.Table]] = deque(maxlen=_RECENT_PUSHES)
        self._latest: dict[str, dict[str, Any]] = {}
        engine.watch_results(self._keep_recent)

    def read(self) -> Reading:
        status, decisions, now = self._engine.status(), self._engine.decisions(), time.time()
        new = decisions[self._seen_decisions :]
        self._seen_decisions = len(decisions)
        return Reading(status, tuple(describe_decision(each, now) for each in new))

    def close(self) -> None:
        self._engine.watch_results(None)

    def _keep_recent(self, results: Mapping[str, pa.Table]) -> None:
        """Keep what the last pushes returned while a page shows a query. Tables are built by the page's thread."""
        if time.monotonic() < self._watched_until:
            self._recent.append(results)
        elif self._recent:
            self._recent.clear()

    def _find_latest(self, name: str) -> dict[str, Any] | None:
        """The newest rows of a query."""
        for results in reversed(list(self._recent)):
            if name in results and results[name].num_rows:
                self._latest[name] = format_rows(results[name])
                break
        return self._latest.get(name)

    def describe_query(self, name: str) -> dict[str, Any]:
        self._watched_until = time.monotonic() + _WATCH_SECONDS
        description = self._engine.queries.get(name)
        if description is None:
            raise QueryError("UNKNOWN_QUERY", f"there is no query {name}", query=name)
        try:
            slices = format_rows(self._engine.slices(name))
        except PenstockError:  # a query without a join, or with several
            slices = None
        return {
            "name": description.name,
            "text": description.text,
            "plan": description.plan,
            "state": description.state,
            "explain": str(self._engine.explain(name)),
            "slices": slices,
            "latest": self._find_latest(name),
        }

    def execute(self, request: Request) -> Mapping[str, Any]:
        engine = self._engine
        match request:
            case AddOne(name=name, text=text, plan=plan):
                engine.query(name, text, plan)
            case Drop(name=name):
                engine.drop(name)
            case Alter(name=name, text=text, plan=plan):
                engine.alter(name, text, plan)
            case MigratePlan(name=name, plan=plan):
                engine.migrate(name, plan)
            case ChangeBudget(probes=probes, policy=policy, query=query):
                engine.budget(probes, policy or "steady", query)
            case Schedule(strategy=strategy):
                engine.schedule(strategy)
            case Policy(name=name, state=state):
                engine.policy(name, state)
            case _:
                raise UnsupportedError("NOT_ON_THE_PAGE", f"{request.key} is not a control of an engine's page")
        return {"done": request.key}


class RunSource:
    """A run on Spark: the graph of an engine with its queries, and the figures that its cells report."""

    kind = "run"

    def __init__(self, run: Run) -> None:
        self.title = f"run on {run.checkpointLocation}"
        self._run = run
        self._seen_decisions = 0
        self._graph: tuple[object, Engine, EngineStatus] | None = None
        """For a configuration, an engine with its queries but without data."""
        self._arrived: dict[str, int] = {}
        self._batches: dict[int, float] = {}

    def read(self) -> Reading:
        run, now = self._run, time.time()
        decisions = run.decisions()
        new = decisions[self._seen_decisions :]
        self._seen_decisions = len(decisions)
        self._count_batches(run.recentProgress)
        state = "running" if run.isActive else "stopped"
        return Reading(self._build_status(), tuple(describe_decision(each, now) for each in new), state=state)

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
            engine = _build_spec_engine(spec)
            self._graph = spec.config, engine, engine.status()
        return self._graph[1:]

    def _build_status(self) -> EngineStatus:
        spec, metrics = self._run.spec, self._run.metrics()
        _, graph = self._find_graph()
        sinks = self._run.sinks
        types = {stream.name: stream.time_type for stream in spec.streams}
        queries = tuple(_fill_query(each, metrics["queries"], sinks) for each in graph.queries)
        streams = tuple(
            StreamStatus(
                name,
                self._arrived.get(name, 0),
                each["late"],
                each["dead"],
                convert_frontier(each["frontier"], types[name]),
            )
            for name, each in metrics["streams"].items()
        )
        return replace(
            graph,
            pushes=len(self._batches),
            busy=sum(self._batches.values()),
            operators=_fill_operators(graph, metrics["queries"], self._arrived),
            queries=queries,
            streams=streams,
            notices=tuple(str(each) for each in self._run.status["notices"]),
        )

    def describe_query(self, name: str) -> dict[str, Any]:
        queries = self._run.metrics()["queries"]
        if name not in queries:
            raise QueryError("UNKNOWN_QUERY", f"there is no query {name}", query=name)
        found = queries[name]
        query = self._run.spec.config.find_query(name)
        explained = [str(self._find_graph()[0].explain(name)), f"sink: {self._run.sinks.get(name, 'none')}"]
        explained += [f"{key.replace('_', ' ')}: {found[key]}" for key in _SHOWN_FIGURES if found[key] is not None]
        return {
            "name": name, "text": query.text, "plan": query.plan, "state": query.state or self._run.spec.state,
            "explain": "\n".join(explained), "slices": None, "latest": None,
        }  # fmt: skip

    def execute(self, request: Request) -> Mapping[str, Any]:
        from penstock.spark.driver.request_server import execute_request  # noqa: PLC0415 - needs pyspark

        return execute_request(self._run, request)


def _fill_query(query: QueryStatus, metrics: Mapping[str, Any], sinks: Mapping[str, str]) -> QueryStatus:
    found = metrics.get(query.name)
    if found is None:
        return query
    return replace(
        query, emitted=int(found["emitted"]), completeness=float(found["completeness"]), stale=int(found["stale"]),
        budget=found["budget"], sink=sinks.get(query.name),
    )  # fmt: skip


def _fill_operators(graph: EngineStatus, metrics: Mapping[str, Any], arrived: Mapping[str, int]) -> tuple[Any, ...]:
    """The figures of the queries on the operators that have their results; the cells report no others."""
    best: dict[str, Mapping[str, Any]] = {}
    for query in graph.queries:
        found = metrics.get(query.name)
        if found is not None and found["emitted"] >= best.get(query.operator, {"emitted": -1})["emitted"]:
            best[query.operator] = found
    filled = []
    for each in graph.operators:
        if each.kind == "source":
            filled.append(replace(each, rows_out=arrived.get(each.title, 0)))
        elif each.id in best:
            found = best[each.id]
            rows = int(found["window_rows"] + found["state_rows"])
            filled.append(
                replace(
                    each,
                    rows_out=int(found["emitted"]),
                    state_rows=rows,
                    bytes=int(found["bytes"]),
                    waiting=int(found["waiting"]),
                )
            )
        else:
            filled.append(each)
    return tuple(filled)


def build_spec_status(spec: Any) -> EngineStatus:
    """The graph of a pipeline: that of an engine with its streams, tables and queries, without data."""
    return _build_spec_engine(spec).status()


def _build_spec_engine(spec: Any) -> Engine:
    engine = Engine(state=spec.state, warn=False)
    for stream in spec.streams:
        engine.declare(stream)
    for name, table in spec.tables.items():
        engine.table(name, table.schema.empty_table())
    for query in spec.queries:
        declare = engine.derive if query.name in spec.derived_streams else engine.query
        declare(query.name, query.text, query.plan, query.state)
    return engine


class FolderSource:
    """The folder of a run: what it saved last. While the run is active it also takes controls."""

    kind = "folder"

    def __init__(self, path: str, seconds: float = 30.0) -> None:
        self.title = f"run in {path}"
        self._folder = Folder(path)
        self._path = path
        self._seconds = seconds
        self._content: bytes | None = None
        self._reading: Reading | None = None
        self.read()

    def read(self) -> Reading:
        content = self._folder.read(RECORD_FILE)
        if content is None:
            raise QueryError(
                "NO_RUN_RECORD",
                f"{self._path} has no record of a run: name the checkpoint of `penstock run`, which it prints at its "
                "start, or start the page in the program with run.serve()",
                folder=self._path,
            )
        if self._reading is None or content != self._content:
            try:
                self._reading = decode_record(json.loads(content))
            except (ValueError, KeyError, TypeError) as error:
                message = f"{self._path}/{RECORD_FILE} is not a record of a run that this version reads: {error}"
                raise QueryError("BAD_RUN_RECORD", message, folder=self._path) from error
            self._content = content
        return self._reading

    def describe_query(self, name: str) -> dict[str, Any]:
        status = self.read().status
        found = next((each for each in status.queries if each.name == name), None)
        if found is None:
            raise QueryError("UNKNOWN_QUERY", f"there is no query {name}", query=name)
        explained = "\n".join(f"{key}: {value}" for key, value in asdict(found).items() if key != "text")
        return {
            "name": name, "text": found.text, "plan": found.plan, "state": found.state, "explain": explained,
            "slices": None, "latest": None,
        }  # fmt: skip

    def execute(self, request: Request) -> Mapping[str, Any]:
        return RequestClient(self._path).send(request, self._seconds)


def encode_record(reading: Reading) -> dict[str, Any]:
    """What a run saves for the page."""
    return {
        "format": 1,
        "state": reading.state,
        "status": asdict(reading.status),
        "points": [asdict(point) for point in reading.points],
        "events": [asdict(event) for event in reading.past_events],
    }


def decode_record(record: Mapping[str, Any]) -> Reading:
    if record["format"] != 1:
        raise ValueError(f"format {record['format']}")
    return Reading(
        decode_status(record["status"]),
        points=tuple(SeriesPoint(**point) for point in record["points"]),
        state=record["state"],
        past_events=tuple(GraphEvent(**event) for event in record["events"]),
    )
