"""A running pipeline: it has the methods of Spark's StreamingQuery, and changes its continuous queries."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa

from penstock.adapt import (
    AdaptCommand,
    AddQuery,
    AdvanceStream,
    Decision,
    DropQuery,
    EndStreams,
    Migrate,
    SetBudget,
    SetPolicy,
    SetSchedule,
    decode_order,
)
from penstock.cql import bind_query
from penstock.errors import DataError, UnsupportedError, name_arguments
from penstock.ops import to_tick
from penstock.spark.driver.adaptive import AdaptiveRun
from penstock.spark.driver.batch_sink import EffectCallback, Listener
from penstock.spark.driver.command_sender import ChangeablePipeline, CommandSender
from penstock.spark.driver.query_handle import QueryHandle
from penstock.spark.driver.started_pipeline import StartedPipeline
from penstock.spark.heartbeat import Heartbeat, is_clocked
from penstock.spark.query_warnings import warn_of_query
from penstock.spark.sinks import ConsoleSink, Sink, as_sink


@name_arguments
class Run(QueryHandle):
    """The handle of a started pipeline.

    Queries may be added, dropped and changed while it runs: a command goes with the next micro-batch and takes effect
    with the one after it. The methods return when it has taken effect.

    All methods may be called from several threads. A sink or a listener, which the micro-batch calls, may give commands
    and does not wait for their effect; calls that would wait for the micro-batch itself are refused there.
    """

    def __init__(self, pipeline: ChangeablePipeline, started: StartedPipeline) -> None:
        super().__init__(started.query)
        self._started = started
        self._batch_sink = started.batch_sink
        self._sender = CommandSender(pipeline, started)
        self._adaptive = _start_adaptive(started, self._sender)
        self._heartbeat = _start_heartbeat(started, self._sender)

    # ── as Spark's StreamingQuery ────────────────────────────────────────────────────────────────────────────────

    @property
    def status(self) -> dict[str, Any]:
        """Spark's status, under `budgets` the queries that shed work, and under `notices` what needs attention.

        Notices are about streams that hold others back, late rows and units of time; see docs/troubleshooting.md.
        """
        sink = self._batch_sink
        return {**super().status, "budgets": sink.list_budgets(), "notices": sink.list_notices()}

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802 - Spark's names
        self._sender.check_not_in_batch("awaitTermination")
        return super().awaitTermination(timeout)

    def processAllAvailable(self) -> None:  # noqa: N802
        self._sender.check_not_in_batch("processAllAvailable")
        super().processAllAvailable()

    def stop(self) -> None:
        self._sender.check_not_in_batch("stop")
        self._sender.close()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        super().stop()
        if self._adaptive is not None:
            self._adaptive.close()

    # ── state and metrics ────────────────────────────────────────────────────────────────────────────────────────

    @property
    def cells(self) -> int:
        return self._started.cells

    @property
    def checkpointLocation(self) -> str:  # noqa: N802
        return self._started.checkpoint

    def metrics(self) -> dict[str, Any]:
        """Counts and sizes by stream, query and cell, as of the last micro-batch."""
        return self._batch_sink.metrics()

    def explain(self) -> str:
        """How the queries are placed on the cells, and which cells get much more than their share, by which key."""
        return self._batch_sink.explain()

    def decisions(self) -> list[Decision]:
        """The newest 10,000 decisions of the pipeline since this start, with the numbers that led to them.

        `push` is the micro-batch from which on one takes effect. A decision that failed has an `error`.
        """
        return self._adaptive.decisions() if self._adaptive is not None else []

    def listen(self, listener: Listener) -> None:
        """Call a function after every micro-batch with its number and the cells' reports.

        It is called in the thread of the micro-batch: be quick there, and do not wait for commands.
        """
        self._batch_sink.listen(listener)

    # ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, name: str, text: str, sink: Sink | None = None, plan: str | None = None) -> None:
        """Start another query: it sees the rows that come from now on. It cannot read derived streams."""
        spec = self._batch_sink.layout.spec
        query = bind_query(text, spec.catalog)
        read = {source.relation.name for source in query.body.inputs} & spec.derived_streams
        if read:
            message = f"{name} reads {', '.join(sorted(read))}: queries over derived streams are declared with them"
            raise UnsupportedError("DERIVED_EARLIER", message, query=name)
        into = ConsoleSink() if sink is None else as_sink(sink)
        self._sender.send_and_wait(AddQuery(name, text, plan), into)
        warn_of_query(name, query, spec.tables)

    def drop(self, name: str) -> None:
        """Stop a query and free its state."""
        self._sender.send_and_wait(DropQuery(name))

    def migrate(self, name: str, plan: str) -> None:
        """Continue with another plan, without losing or repeating a result."""
        self._sender.send_and_wait(Migrate(name, plan))

    def schedule(self, strategy: str) -> None:
        """Set the strategy by which the cells' engines select their next operator: "dfs", "bfs" or "rr"."""
        self._sender.send_and_wait(SetSchedule(strategy))

    def budget(self, probes: float | str | None, policy: str | None = None, query: str | None = None) -> None:
        """Limit the probes per second of event time, every cell having an equal share; None lifts the limit.

        A time such as "500 ms" is what a cell's engine may take for a micro-batch. With `query` it binds that one only.
        """
        share = probes / self.cells if isinstance(probes, int | float) and not isinstance(probes, bool) else probes
        chosen = SetBudget(share, query=query) if policy is None else SetBudget(share, policy, query)
        self._sender.send_and_wait(chosen)

    def policy(self, name: str, state: str) -> None:
        """Change the state policy of a query."""
        self._sender.send_and_wait(SetPolicy(name, state))

    def order(self, do: str, **arguments: Any) -> None:
        """Call a method of every cell's engine: schedule, budget or reslice, with the arguments it takes."""
        self._sender.send_and_wait(decode_order(do, arguments))

    def advance(self, name: str, time: int | datetime | pa.Scalar) -> None:
        """No row of the stream before `time` will come: takes effect with the next micro-batch, after its rows."""
        streams = self._batch_sink.layout.spec.streams
        stream = next((s for s in streams if s.name.casefold() == name.casefold()), None)
        if stream is None:
            known = ", ".join(s.name for s in streams)
            raise DataError("UNKNOWN_STREAM", f"there is no stream {name}; declared: {known}", stream=name)
        self._sender.send_time(AdvanceStream(stream.name, to_tick(time, stream)))

    def finish(self) -> None:
        """End every stream: results that wait for more rows become certain with the next micro-batch."""
        self._sender.send_time(EndStreams())


def _start_adaptive(started: StartedPipeline, sender: CommandSender) -> AdaptiveRun | None:
    settings = started.adapt_settings
    if settings is None:
        return None

    def send(command: AdaptCommand, done: EffectCallback) -> None:
        sender.send(command, done=done)

    def read_progress() -> Any:
        return started.query.lastProgress

    adaptive = AdaptiveRun(settings.rules, settings.actions, started.cells, settings.timing, read_progress, send)
    started.batch_sink.observe(adaptive.observe)
    return adaptive


def _start_heartbeat(started: StartedPipeline, sender: CommandSender) -> Heartbeat | None:
    streams = started.batch_sink.layout.spec.streams
    if not any(map(is_clocked, streams)):
        return None

    def find_due_frontiers(now: int) -> tuple[dict[str, int], dict[str, int]]:
        return started.batch_sink.find_due_frontiers(now) if started.query.isActive else ({}, {})

    def send(stream: str, frontier: int) -> None:
        sender.send_time(AdvanceStream(stream, frontier))

    return Heartbeat(streams, find_due_frontiers, send)
