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
from penstock.adapt.decide import Command as Decided
from penstock.cql import bind_query
from penstock.engine.ingest import tick
from penstock.errors import DataError, PenstockError, QueryError, UnsupportedError
from penstock.spark.driver.adaptive import Pace, Steering
from penstock.spark.driver.batch_sink import Done, Listener, Outlets
from penstock.spark.driver.control import Command, Desk
from penstock.spark.driver.failures import translated
from penstock.spark.heartbeat import Heart, clocked
from penstock.spark.pipeline_config import ORDERS
from penstock.spark.sinks import Console, Sink, as_sink

_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Adapting:
    """What a pipeline may decide by itself, and when."""

    rules: Rules
    matters: Collection[Action]
    pace: Pace


@dataclass(frozen=True)
class Launched:
    """A Spark streaming query, what it writes through, and how it is told what to do."""

    query: StreamingQuery
    outlets: Outlets
    desk: Desk
    checkpoint: str
    adapting: Adapting | None


class Changeable(Protocol):
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

    def __init__(self, pipeline: Changeable, launched: Launched) -> None:
        self._pipeline = pipeline
        self._now = launched
        self._changing = threading.Lock()
        self._changer: int | None = None
        """The thread that gives a command now."""
        self._stopped = False
        self._steering = self._steered(launched)
        streams = launched.outlets.layout.spec.streams
        self._heart = Heart(streams, self._due, self._promise) if any(map(clocked, streams)) else None

    # ── as Spark's StreamingQuery ────────────────────────────────────────────────────────────────────────────────

    @property
    def id(self) -> str:
        return self._now.query.id

    @property
    def runId(self) -> str:  # noqa: N802 - Spark's names here and below
        return self._now.query.runId

    @property
    def name(self) -> str:
        return self._now.query.name

    @property
    def isActive(self) -> bool:  # noqa: N802
        return self._now.query.isActive

    @property
    def status(self) -> dict[str, Any]:
        """Spark's status, and under `budgets` the queries that shed work, with their budgets."""
        return {**self._now.query.status, "budgets": self._now.outlets.budgets()}

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        return self._now.query.lastProgress

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802
        return list(self._now.query.recentProgress)

    def exception(self) -> PenstockError | None:
        """Why the run failed; its `__cause__` is Spark's own exception."""
        failure = self._now.query.exception()
        return None if failure is None else translated(failure)

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802
        """Wait for the end of the run, or so many seconds; True if it has ended. What failed is raised."""
        self._check_outside("awaitTermination")
        try:
            return self._now.query.awaitTermination(timeout)
        except StreamingQueryException as error:
            raise translated(error) from error

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until all data that are there now have been worked on."""
        self._check_outside("processAllAvailable")
        try:
            self._now.query.processAllAvailable()
        except StreamingQueryException as error:
            raise translated(error) from error

    def stop(self) -> None:
        """Stop the run; it can be started again from its checkpoint."""
        self._check_outside("stop")
        self._stopped = True
        if self._heart is not None:
            self._heart.stop()
        self._now.query.stop()
        if self._steering is not None:
            self._steering.close()

    def _steered(self, launched: Launched) -> Steering | None:
        adapting = launched.adapting
        if adapting is None:
            return None
        cells = launched.outlets.layout.spec.cells
        steering = Steering(
            adapting.rules, adapting.matters, cells, adapting.pace, lambda: launched.query.lastProgress, self._adapt
        )
        launched.outlets.steering = steering
        return steering

    # ── while running ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def cells(self) -> int:
        return self._now.outlets.layout.spec.cells

    @property
    def checkpointLocation(self) -> str:  # noqa: N802
        return self._now.checkpoint

    def metrics(self) -> dict[str, Any]:
        """Counts and sizes by stream, query and cell, as of the last micro-batch."""
        return self._now.outlets.metrics()

    def explain(self) -> str:
        """How the queries are placed on the cells, and which cells get much more than their share, by which key."""
        return self._now.outlets.explain()

    def add(self, name: str, text: str, sink: Sink | None = None, plan: str | None = None) -> None:
        """Start another query: it sees the rows that come from now on. It cannot read derived streams."""
        spec = self._now.outlets.layout.spec
        read = {source.relation.name for source in bind_query(text, spec.catalog).body.inputs} & spec.derived
        if read:
            message = f"{name} reads {', '.join(sorted(read))}: queries over derived streams are declared with them"
            raise UnsupportedError("DERIVED_EARLIER", message, query=name)
        into = Console() if sink is None else as_sink(sink)
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
        if do not in ORDERS:
            raise QueryError("UNKNOWN_ORDER", f"the orders are {', '.join(ORDERS)}, not {do!r}")
        self._change(do, arguments)

    def decisions(self) -> list[Decision]:
        """What the pipeline decided by itself since this start, with the numbers that led to it: the newest 10,000.

        `push` is the micro-batch from which on it counts. What could not be carried out has an `error`.
        """
        return self._steering.decisions() if self._steering is not None else []

    def listen(self, listener: Listener) -> None:
        """Call a function after every micro-batch with its number and what the cells reported, by cell.

        It is called in the thread of the micro-batch: be quick there, and do not wait for commands.
        """
        self._now.outlets.listen(listener)

    def _change(self, do: str, arguments: Mapping[str, Any], sink: Sink | None = None) -> None:
        """Check a command here, write it, and wait until it has taken effect."""
        command = self._give(do, arguments, sink)
        while not self._now.outlets.wait(command.number, _POLL_SECONDS):
            self._check_running()

    def _give(
        self, do: str, arguments: Mapping[str, Any], sink: Sink | None = None, done: Done | None = None
    ) -> Command:
        self._check_unchanging(do)
        with self._changing:
            self._changer = threading.get_ident()
            try:
                self._check_running()
                spelled = self._pipeline.change(do, arguments, sink, self.cells)
                if sink is not None:
                    self._opened(arguments, sink)
                return self._now.outlets.given(partial(self._now.desk.give, do, **spelled), sink, done)
            finally:
                self._changer = None

    def _opened(self, arguments: Mapping[str, Any], sink: Sink) -> None:
        try:
            self._now.outlets.open(arguments["name"], arguments["text"], sink)
        except PenstockError:
            self._pipeline.change("drop", {"name": arguments["name"]}, None, self.cells)
            raise

    def _adapt(self, command: Decided, done: Done) -> None:
        """Give what the pipeline has decided by itself."""
        if command.do == "budget":
            self._give("shed", {"name": command.query, "limit": command.value}, done=done)
        elif command.do == "policy":
            self._give("policy", {"name": command.query, "state": command.value}, done=done)
        elif command.do == "reslice":
            self._give("reslice", {"slicing": command.value, "query": command.query}, done=done)
        else:
            self._give("migrate", {"name": command.query, "plan": command.value}, done=done)

    def _check_running(self) -> None:
        if self._stopped or not self._now.query.isActive:
            failure = self.exception()
            if failure is not None:
                raise failure
            raise QueryError("RUN_ENDED", "the run has ended; change the pipeline and start it again")

    def _check_unchanging(self, call: str) -> None:
        """Refuse a command that the sink of another one gives while it is opened."""
        if self._changer == threading.get_ident():
            message = f"{call} was called by a sink that is being opened; call it when the sink's query was added"
            raise QueryError("REENTRANT_CALL", message, call=call)

    def _check_outside(self, call: str) -> None:
        """Refuse what would wait for the micro-batch that is calling."""
        self._check_unchanging(call)
        if self._now.outlets.inside:
            message = (
                f"{call} was called by a sink or a listener: it would wait for the micro-batch that calls it; "
                "call it from another thread, and do not wait for that one"
            )
            raise QueryError("REENTRANT_CALL", message, call=call)

    def _due(self, now: int) -> tuple[dict[str, int], dict[str, int]]:
        return self._now.outlets.due(now) if self._now.query.isActive else ({}, {})

    def _promise(self, stream: str, frontier: int) -> None:
        self._now.desk.give("advance", stream=stream, time=frontier)

    def advance(self, name: str, time: int | datetime | pa.Scalar) -> None:
        """No row of the stream before `time` will come: takes effect with the next micro-batch, after its rows."""
        streams = self._now.outlets.layout.spec.streams
        stream = next((s for s in streams if s.name.casefold() == name.casefold()), None)
        if stream is None:
            known = ", ".join(s.name for s in streams)
            raise DataError("UNKNOWN_STREAM", f"there is no stream {name}; declared: {known}", stream=name)
        self._now.desk.give("advance", stream=stream.name, time=tick(time, stream))

    def finish(self) -> None:
        """The end of every stream: what waits for more becomes certain, with the next micro-batch."""
        self._now.desk.give("end")
