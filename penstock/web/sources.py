"""What the page can show: an engine, a run on Spark, or the folder of a run. One protocol for all three."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from penstock.display import format_rows
from penstock.engine import Engine, EngineStatus
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
from penstock.web.status_codec import decode_status, encode_status

_SHOWN_ROWS = 20
_WATCH_SECONDS = 30.0
_RECENT_PUSHES = 5
STARTING = "starting"
"""The state of a run before the end of its first micro-batch: its plans are not known yet."""
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


_NUMBER_NAMES = {
    "busy": "% of the available time used", "demanded": "% of the budget needed", "milliseconds": "ms available a push",
    "cost": "cost of the plan now", "proposed": "cost of the new plan", "spared": "saved in a window",
    "made_up": "rows to rebuild", "state_rows": "rows in states", "unused": "rows a second without use",
    "gates": "cost of gates a second", "now": "cost now", "cpu_opt": "cost of CPU-Opt", "mem_opt": "cost of Mem-Opt",
    "tuples": "tuples kept now", "fewest_tuples": "tuples kept by Mem-Opt",
}  # fmt: skip
"""The numbers of decisions, in the words of the page."""


def describe_decision(decision: Any, now: float) -> GraphEvent:
    """A decision of the controller as an event."""
    command = decision.command
    numbers = {
        _NUMBER_NAMES.get(key, key): 100 * value if _NUMBER_NAMES.get(key, key).startswith("%") else value
        for key, value in decision.numbers.items()
    }
    if command is None or decision.error is not None:
        return GraphEvent(now, "decision", "", f"no change: {decision.error}", numbers=numbers)
    text = f"{command.query}: {command.do} {'lifted' if command.value is None else command.value}"
    return GraphEvent(now, "decision", command.query, text, numbers=numbers)


def _format_newest(table: pa.Table) -> dict[str, Any]:
    """The last rows of a table as texts."""
    return format_rows(table.slice(max(0, table.num_rows - _SHOWN_ROWS)))


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
                self._latest[name] = _format_newest(results[name])
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
        figures: dict[str, object] = {
            "plan": found.plan,
            "state": found.state,
            "results": f"{found.emitted:,}",
            "budget": found.budget,
        }
        figures |= {"completeness": f"{found.completeness:.1%}"} if found.completeness < 1 else {}
        figures |= {"stale": found.stale or None, "sink": found.sink, "error": found.error}
        explained = "\n".join(f"{key}: {value}" for key, value in figures.items() if value is not None)
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
        "status": encode_status(reading.status),
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
