"""A thread that executes the requests of other processes to a run; see `penstock.spark.requests`."""

from __future__ import annotations

import datetime
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from penstock.cql import BareQuery, InsertInto, Script, bind_script
from penstock.errors import InternalError, PenstockError, UnsupportedError
from penstock.spark.requests import (
    Add,
    AddOne,
    Alter,
    ChangeBudget,
    Drop,
    MigratePlan,
    PendingRequest,
    Policy,
    Request,
    RequestFolder,
    Schedule,
    Status,
    Stop,
)
from penstock.spark.sinks import Sink, from_connector
from penstock.spark.spec import PipelineSpec
from penstock.spark.storage import Folder

_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 0.3
_RENEW_SECONDS = 3.0
_FILE_FORMATS = ("parquet", "csv", "json")


class RequestedRun(Protocol):
    """A run, as far as requests use it."""

    @property
    def status(self) -> dict[str, Any]: ...
    @property
    def sinks(self) -> dict[str, str]: ...
    @property
    def lastProgress(self) -> Any: ...  # noqa: N802 - Spark's name
    @property
    def checkpointLocation(self) -> str: ...  # noqa: N802
    @property
    def spec(self) -> PipelineSpec: ...
    def metrics(self) -> dict[str, Any]: ...
    def add(self, name: str, text: str, sink: Sink | None = None, plan: str | None = None) -> None: ...
    def drop(self, name: str) -> None: ...
    def alter(self, name: str, text: str, plan: str | None = None) -> None: ...
    def migrate(self, name: str, plan: str) -> None: ...
    def schedule(self, strategy: str) -> None: ...
    def budget(self, probes: float | str | None, policy: str | None = None, query: str | None = None) -> None: ...
    def policy(self, name: str, state: str) -> None: ...
    def stop_after_batch(self) -> None: ...


class RequestServer:
    """Executes requests one after the other while a run lasts."""

    def __init__(self, run: RequestedRun) -> None:
        self._run = run
        self._folder = RequestFolder(Folder(run.checkpointLocation))
        self._folder.begin()
        self._stopped = threading.Event()
        self._executor = ThreadPoolExecutor(1, "penstock-request")
        self._thread = threading.Thread(target=self._serve, name="penstock-requests", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more requests and end the lease."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._thread.join()
        self._executor.shutdown(wait=False)
        try:
            self._folder.end()
        except Exception as error:
            _LOG.warning("the lease of requests cannot be removed: %s", error)

    def _serve(self) -> None:
        rounds = 0
        while not self._stopped.wait(_POLL_SECONDS):
            rounds += 1
            try:
                if rounds % round(_RENEW_SECONDS / _POLL_SECONDS) == 0:
                    self._folder.renew_lease()
                for pending in self._folder.take():
                    self._executor.submit(self._execute, pending)
            except Exception as error:  # the storage may be back in the next round
                _LOG.warning("requests cannot be read: %s", error)

    def _execute(self, pending: PendingRequest) -> None:
        if pending.request is None:
            self._refuse(pending.id, pending.error or InternalError("BAD_REQUEST", "the request was lost"))
            return
        _LOG.info("request %s", pending.request)
        try:
            result = execute_request(self._run, pending.request)
        except PenstockError as error:
            self._refuse(pending.id, error)
        except Exception as error:  # an answer is due in any case
            _LOG.exception("request %s failed", pending.request.key)
            self._refuse(pending.id, InternalError("REQUEST_FAILED", f"{type(error).__name__}: {error}"))
        else:
            self._folder.answer(pending.id, result)
            if isinstance(pending.request, Stop):
                self._run.stop_after_batch()

    def _refuse(self, number: str, error: PenstockError) -> None:
        _LOG.info("request refused: %s", error)
        self._folder.answer_error(number, error)


def execute_request(run: RequestedRun, request: Request) -> Mapping[str, Any]:
    """Execute a request with the methods of a run, which check it; returns its result."""
    match request:
        case Add():
            return {"added": _add_script(run, request)}
        case AddOne(name=name, text=text, plan=plan):
            options = {} if request.path is None else {"path": request.path}
            run.add(name, text, _make_sink(name, request.sink, options, request.mode), plan)
            return {"added": [name]}
        case Drop(name=name):
            run.drop(name)
            return {"dropped": name}
        case Alter(name=name, text=text, plan=plan):
            run.alter(name, text, plan)
            return {"altered": name}
        case MigratePlan(name=name, plan=plan):
            run.migrate(name, plan)
            return {"migrated": name, "plan": plan}
        case ChangeBudget(probes=probes, policy=policy, query=query):
            run.budget(probes, policy, query)
            return {"budgets": run.status["budgets"]}
        case Schedule(strategy=strategy):
            run.schedule(strategy)
            return {"schedule": strategy}
        case Policy(name=name, state=state):
            run.policy(name, state)
            return {"query": name, "policy": state}
        case Status():
            return describe_run(run)
        case Stop():
            return {"stopping": run.checkpointLocation}


def _add_script(run: RequestedRun, request: Add) -> list[str]:
    """Add the queries of a script: all of them, or none if one is refused."""
    statements = tuple(bind_script(request.script, replace(run.spec).catalog))
    script = Script(statements, request.script)
    if script.streams or script.tables or script.derived_streams or script.views:
        message = (
            "streams, tables and views cannot be added to a run; a script for it has CREATE SINK, INSERT INTO and "
            "SELECT"
        )
        raise UnsupportedError("STATEMENT_NOT_ALLOWED", message)
    sinks = _make_sinks(script, request.mode)
    added: list[str] = []
    try:
        for (name, query), sink in zip(script.queries.items(), sinks, strict=True):
            run.add(name, query.text, sink)
            added.append(name)
    except PenstockError:
        for name in added:
            run.drop(name)
        raise
    return added


def _make_sinks(script: Script, mode: str | None) -> list[Sink]:
    """A sink for every query of a script; a sink of its own for each query that writes to a named one."""
    declared = {sink.name.casefold(): sink for sink in script.sinks}
    sinks = []
    for statement in script.statements:
        if isinstance(statement, BareQuery):
            sinks.append(from_connector("query", "console", {}))
        elif isinstance(statement, InsertInto):
            sink = declared[statement.sink.casefold()]
            try:
                sinks.append(_make_sink(sink.name, sink.connector.format, dict(sink.connector.options), mode))
            except PenstockError as error:
                raise script.locate_error(sink, error) from error
    return sinks


def _make_sink(name: str, format_: str, options: dict[str, str], mode: str | None) -> Sink:
    given = {**options, "mode": mode} if mode is not None and format_.casefold() in _FILE_FORMATS else options
    return from_connector(name, format_, given)


# ── status ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def describe_run(run: RequestedRun) -> dict[str, Any]:
    """The state of a run for another process: its queries, streams and rates."""
    status, metrics, progress = run.status, run.metrics(), run.lastProgress
    types = {stream.name: stream.time_type for stream in run.spec.streams}
    return {
        "checkpoint": run.checkpointLocation,
        "message": "; ".join([status["message"], *status["waiting"]]),
        "batch": metrics["batch"],
        "cells": run.spec.cells,
        "inputRowsPerSecond": None if progress is None else progress["inputRowsPerSecond"],
        "processedRowsPerSecond": None if progress is None else progress["processedRowsPerSecond"],
        "batchSeconds": None if progress is None else progress["durationMs"].get("triggerExecution", 0) / 1000,
        "queries": {
            name: {
                "rows": query["emitted"],
                "windowRows": query["window_rows"],
                "completeness": query["completeness"],
                "budget": query["budget"],
                "sink": run.sinks.get(name),
                "text": run.spec.config.find_query(name).text,
            }
            for name, query in metrics["queries"].items()
        },
        "streams": {name: _describe_stream(stream, types[name]) for name, stream in metrics["streams"].items()},
    }


def _describe_stream(metrics: Mapping[str, Any], time_type: pa.DataType) -> dict[str, Any]:
    """The rejected rows of a stream, its frontier, and how many seconds the frontier is behind the clock."""
    frontier = metrics["frontier"]
    lag = None
    if frontier is not None and pa.types.is_timestamp(time_type):
        try:
            time = datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(microseconds=frontier)
        except OverflowError:  # the stream has ended
            frontier = None
        else:
            lag = round((datetime.datetime.now(datetime.UTC) - time).total_seconds(), 3)
            frontier = time.isoformat()
    return {"late": metrics["late"], "dead": metrics["dead"], "frontier": frontier, "lagSeconds": lag}
