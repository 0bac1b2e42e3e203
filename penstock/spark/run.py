"""A running pipeline: feels like Spark's StreamingQuery, and knows its continuous queries."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from penstock.adapt.decide import Action, Decision, Rules
from penstock.adapt.decide import AdaptCommand as Decided
from penstock.cql import bind_query
from penstock.engine.ingest import to_tick
from penstock.errors import DataError, PenstockError, QueryError, UnsupportedError
from penstock.spark.driver.adaptive import AdaptiveRun, BatchTiming
from penstock.spark.driver.batch_sink import BatchSink, EffectCallback, Listener
from penstock.spark.driver.control import CommandLog, ControlCommand
from penstock.spark.driver.failures import translate_error
from penstock.spark.heartbeat import Heartbeat, is_clocked
from penstock.spark.pipeline_config import ENGINE_ORDERS
from penstock.spark.sinks import ConsoleSink, Sink, as_sink

_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class AdaptSettings:
    """What a pipeline may decide by itself, and when."""

    rules: Rules
    actions: Collection[Action]
    timing: BatchTiming


@dataclass(frozen=True)
class StartedPipeline:
    """A Spark streaming query, what it writes through, and how it is told what to do."""

    query: StreamingQuery
    batch_sink: BatchSink
    command_log: CommandLog
    checkpoint: str
    adapt_settings: AdaptSettings | None


class ChangeablePipeline(Protocol):
    """What a run asks of its pipeline: to check a change, and to remember it for the next start.

    It hands back the arguments with names as they were declared.
    """

    def change(self, do: str, given: Mapping[str, Any], sink: Sink | None, cells: int) -> Mapping[str, Any]: ...


class Run:
    """The handle of a started pipeline.

    Queries may be added, dropped and changed while it runs: a command goes with the next micro-batch and takes effect
    with the one after it. The methods return when it has.

    All methods may be called from several threads. A sink or a listener, which the micro-batch calls, may give commands
    and does not wait for their effect; what would wait for the micro-batch itself is refused there.
    """

    def __init__(self, pipeline: ChangeablePipeline, launched: StartedPipeline) -> None:
        self._pipeline = pipeline
        self._started = launched
        self._lock = threading.Lock()
        self._changing_thread: int | None = None
        """The thread that gives a command now."""
        self._stopped = False
        self._adaptive = self._start_adaptive(launched)
        streams = launched.batch_sink.layout.spec.streams
        self._heartbeat = (
            Heartbeat(streams, self._find_due_frontiers, self._send_heartbeat)
            if any(map(is_clocked, streams))
            else None
        )

    # ── as Spark's StreamingQuery ────────────────────────────────────────────────────────────────────────────────

    @property
    def id(self) -> str:
        return self._started.query.id

    @property
    def runId(self) -> str:  # noqa: N802 - Spark's names here and below
        return self._started.query.runId

    @property
    def name(self) -> str:
        return self._started.query.name

    @property
    def isActive(self) -> bool:  # noqa: N802
        return self._started.query.isActive

    @property
    def status(self) -> dict[str, Any]:
        """Spark's status, and under `budgets` the queries that shed work, with their budgets."""
        return {**self._started.query.status, "budgets": self._started.batch_sink.list_budgets()}

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        return self._started.query.lastProgress

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802
        return list(self._started.query.recentProgress)

    def exception(self) -> PenstockError | None:
        """Why the run failed; its `__cause__` is Spark's own exception."""
        failure = self._started.query.exception()
        return None if failure is None else translate_error(failure)

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802
        """Wait for the end of the run, or so many seconds; True if it has ended. What failed is raised."""
        self._check_not_in_batch("awaitTermination")
        try:
            return self._started.query.awaitTermination(timeout)
        except StreamingQueryException as error:
            raise translate_error(error) from error

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until all data that are there now have been worked on."""
        self._check_not_in_batch("processAllAvailable")
        try:
            self._started.query.processAllAvailable()
        except StreamingQueryException as error:
            raise translate_error(error) from error

    def stop(self) -> None:
        """Stop the run; it can be started again from its checkpoint."""
        self._check_not_in_batch("stop")
        self._stopped = True
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self._started.query.stop()
        if self._adaptive is not None:
            self._adaptive.close()

    def _start_adaptive(self, launched: StartedPipeline) -> AdaptiveRun | None:
        adapting = launched.adapt_settings
        if adapting is None:
            return None
        cells = launched.batch_sink.layout.spec.cells
        steering = AdaptiveRun(
            adapting.rules,
            adapting.actions,
            cells,
            adapting.timing,
            lambda: launched.query.lastProgress,
            self._send_decision,
        )
        launched.batch_sink.adaptive = steering
        return steering

    # ── while running ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def cells(self) -> int:
        return self._started.batch_sink.layout.spec.cells

    @property
    def checkpointLocation(self) -> str:  # noqa: N802
        return self._started.checkpoint

    def metrics(self) -> dict[str, Any]:
        """Counts and sizes by stream, query and cell, as of the last micro-batch."""
        return self._started.batch_sink.metrics()

    def explain(self) -> str:
        """How the queries are placed on the cells, and which cells get much more than their share, by which key."""
        return self._started.batch_sink.explain()

    def add(self, name: str, text: str, sink: Sink | None = None, plan: str | None = None) -> None:
        """Start another query: it sees the rows that come from now on. It cannot read derived streams."""
        spec = self._started.batch_sink.layout.spec
        read = {source.relation.name for source in bind_query(text, spec.catalog).body.inputs} & spec.derived_streams
        if read:
            message = f"{name} reads {', '.join(sorted(read))}: queries over derived streams are declared with them"
            raise UnsupportedError("DERIVED_EARLIER", message, query=name)
        into = ConsoleSink() if sink is None else as_sink(sink)
        self._change("add", {"name": name, "text": text, "plan": plan}, into)

    def drop(self, name: str) -> None:
        """Stop a query and forget what it remembers."""
        self._change("drop", {"name": name})

    def migrate(self, name: str, plan: str) -> None:
        """Go on with another plan, without losing or repeating a result."""
        self._change("migrate", {"name": name, "plan": plan})

    def schedule(self, strategy: str) -> None:
        """The strategy by which the cells' engines select their next operator: "dfs", "bfs" or "rr"."""
        self._change("schedule", {"strategy": strategy})

    def budget(self, probes: float | str | None, policy: str | None = None, query: str | None = None) -> None:
        """Limit the probes per second of event time, every cell having an equal share; None lifts the limit.

        A time such as "500 ms" is what a cell's engine may take for a micro-batch. With `query` it binds that one only.
        """
        share = probes / self.cells if isinstance(probes, int | float) and not isinstance(probes, bool) else probes
        others = {"policy": policy, "query": query}
        self._change("budget", {"probes": share, **{key: value for key, value in others.items() if value is not None}})

    def policy(self, name: str, state: str) -> None:
        """Change the state policy of a query."""
        self._change("policy", {"name": name, "state": state})

    def order(self, do: str, **arguments: Any) -> None:
        """Call a method of every cell's engine: schedule, budget or reslice, with the arguments it takes."""
        if do not in ENGINE_ORDERS:
            raise QueryError("UNKNOWN_ORDER", f"the orders are {', '.join(ENGINE_ORDERS)}, not {do!r}")
        self._change(do, arguments)

    def decisions(self) -> list[Decision]:
        """What the pipeline decided by itself since this start, with the numbers that led to it: the newest 10,000.

        `push` is the micro-batch from which on it counts. What could not be carried out has an `error`.
        """
        return self._adaptive.decisions() if self._adaptive is not None else []

    def listen(self, listener: Listener) -> None:
        """Call a function after every micro-batch with its number and what the cells reported, by cell.

        It is called in the thread of the micro-batch: be quick there, and do not wait for commands.
        """
        self._started.batch_sink.listen(listener)

    def _change(self, do: str, arguments: Mapping[str, Any], sink: Sink | None = None) -> None:
        """Check a command here, write it, and wait until it has taken effect."""
        command = self._send(do, arguments, sink)
        while not self._started.batch_sink.wait(command.number, _POLL_SECONDS):
            self._check_running()

    def _send(
        self, do: str, arguments: Mapping[str, Any], sink: Sink | None = None, done: EffectCallback | None = None
    ) -> ControlCommand:
        self._check_not_opening(do)
        with self._lock:
            self._changing_thread = threading.get_ident()
            try:
                self._check_running()
                spelled = self._pipeline.change(do, arguments, sink, self.cells)
                if sink is not None:
                    self._open_sink(arguments, sink)
                return self._started.batch_sink.submit(
                    partial(self._started.command_log.append, do, **spelled), sink, done
                )
            finally:
                self._changing_thread = None

    def _open_sink(self, arguments: Mapping[str, Any], sink: Sink) -> None:
        try:
            self._started.batch_sink.open(arguments["name"], arguments["text"], sink)
        except PenstockError:
            self._pipeline.change("drop", {"name": arguments["name"]}, None, self.cells)
            raise

    def _send_decision(self, command: Decided, done: EffectCallback) -> None:
        """Give what the pipeline has decided by itself."""
        if command.do == "budget":
            self._send("shed", {"name": command.query, "limit": command.value}, done=done)
        elif command.do == "policy":
            self._send("policy", {"name": command.query, "state": command.value}, done=done)
        elif command.do == "reslice":
            self._send("reslice", {"slicing": command.value, "query": command.query}, done=done)
        else:
            self._send("migrate", {"name": command.query, "plan": command.value}, done=done)

    def _check_running(self) -> None:
        if self._stopped or not self._started.query.isActive:
            failure = self.exception()
            if failure is not None:
                raise failure
            raise QueryError("RUN_ENDED", "the run has ended; change the pipeline and start it again")

    def _check_not_opening(self, call: str) -> None:
        """Refuse a command that the sink of another one gives while it is opened."""
        if self._changing_thread == threading.get_ident():
            message = f"{call} was called by a sink that is being opened; call it when the sink's query was added"
            raise QueryError("REENTRANT_CALL", message, call=call)

    def _check_not_in_batch(self, call: str) -> None:
        """Refuse what would wait for the micro-batch that is calling."""
        self._check_not_opening(call)
        if self._started.batch_sink.is_in_batch:
            message = (
                f"{call} was called by a sink or a listener: it would wait for the micro-batch that calls it; "
                "call it from another thread, and do not wait for that one"
            )
            raise QueryError("REENTRANT_CALL", message, call=call)

    def _find_due_frontiers(self, now: int) -> tuple[dict[str, int], dict[str, int]]:
        return self._started.batch_sink.find_due_frontiers(now) if self._started.query.isActive else ({}, {})

    def _send_heartbeat(self, stream: str, frontier: int) -> None:
        self._started.command_log.append("advance", stream=stream, time=frontier)

    def advance(self, name: str, time: int | datetime | pa.Scalar) -> None:
        """No row of the stream before `time` will come: takes effect with the next micro-batch, after its rows."""
        streams = self._started.batch_sink.layout.spec.streams
        stream = next((s for s in streams if s.name.casefold() == name.casefold()), None)
        if stream is None:
            known = ", ".join(s.name for s in streams)
            raise DataError("UNKNOWN_STREAM", f"there is no stream {name}; declared: {known}", stream=name)
        self._started.command_log.append("advance", stream=stream.name, time=to_tick(time, stream))

    def finish(self) -> None:
        """The end of every stream: what waits for more becomes certain, with the next micro-batch."""
        self._started.command_log.append("end")
