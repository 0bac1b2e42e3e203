"""A running pipeline: it has the methods of Spark's StreamingQuery, and changes its continuous queries."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from penstock.adapt import AdaptCommand, AdvanceStream, Decision
from penstock.display import format_summary, render_block
from penstock.engine import Descriptions, QueryDescription
from penstock.errors import name_arguments
from penstock.spark.descriptions import describe_queries
from penstock.spark.driver.adaptive import AdaptiveRun
from penstock.spark.driver.batch_log import log_batch
from penstock.spark.driver.batch_sink import EffectCallback, Listener
from penstock.spark.driver.command_sender import ChangeablePipeline, CommandSender
from penstock.spark.driver.query_handle import QueryHandle
from penstock.spark.driver.request_server import RequestServer
from penstock.spark.driver.run_commands import RunCommands
from penstock.spark.driver.started_pipeline import StartedPipeline
from penstock.spark.heartbeat import Heartbeat, is_clocked
from penstock.spark.spec import PipelineSpec
from penstock.spark.waits import list_waits

_LOG = logging.getLogger(__name__)


@name_arguments
class Run(QueryHandle, RunCommands):
    """The handle of a started pipeline. Queries may be added, dropped and changed while it runs.

    All methods may be called from several threads. A sink or a listener, which the micro-batch calls, may give commands
    and does not wait for their effect; calls that would wait for the micro-batch itself are refused there.
    """

    def __init__(self, pipeline: ChangeablePipeline, started: StartedPipeline) -> None:
        QueryHandle.__init__(self, started.query, started.kafka.topics)
        RunCommands.__init__(self, started.batch_sink, CommandSender(pipeline, started))
        self._started = started
        started.batch_sink.listen(log_batch)
        _LOG.info("a run with %d cells begins on %s", started.cells, started.checkpoint)
        self._adaptive = _start_adaptive(started, self._sender)
        self._heartbeat = _start_heartbeat(started, self._sender)
        self._request_server: RequestServer | None = None

    def __enter__(self) -> Self:
        """Use the run in a `with` block. Its end stops the run, also after an exception.

        If the run has failed and the block has not, the failure is raised.
        """
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failure = None if kind is not None else self.exception()
        self.stop()
        if failure is not None:
            raise failure

    def __repr__(self) -> str:
        summary = format_summary(f"penstock.Run {self.name}", {"query": list(self.queries)})
        return f"{summary[:-1]}, {self.cells} cells, {self._describe_state()}>"

    def _repr_html_(self) -> str:
        return render_block(f"penstock.Run {self.name}: {self._describe_state()}", self.queries._repr_html_())

    def _describe_state(self) -> str:
        try:
            return "running" if self.isActive else "stopped"
        except (OSError, Py4JError):  # the Spark session has ended
            return "without its session"

    # ── as Spark's StreamingQuery ────────────────────────────────────────────────────────────────────────────────

    @property
    def status(self) -> dict[str, Any]:
        """Spark's status, and that of the pipeline.

        - `waiting`: a sentence for each broker of Kafka and server of a sink that does not answer now.
        - `budgets`: the queries that shed work.
        - `failures`: the queries that have stopped because a function or an aggregate failed: in which cells, and why.
        - `notices`: streams that hold others back, late rows, units of time; see docs/troubleshooting.md.
        - `evolved`: a sentence for each part of the checkpoint that this start did not continue as it was, and for
          each query that `alter` changed: whether it keeps its windows.
        - `heartbeat`: heartbeats sent, failed attempts and the last error; None if no stream is advanced by a clock.
        - `rejected_commands`: files in the checkpoint that were not commands when the run started.
        """
        found = super().status
        return {
            **found,
            "waiting": list_waits(str(found["message"]), self._started.kafka.brokers),
            "budgets": self._batch_sink.list_budgets(),
            "failures": self._batch_sink.list_failures(),
            "notices": self._batch_sink.list_notices(),
            "evolved": [*self._started.notes, *self._batch_sink.list_notes()],
            "heartbeat": None if self._heartbeat is None else self._heartbeat.report(),
            "rejected_commands": self._started.command_log.rejected,
        }

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802 - Spark's names
        self._sender.check_not_in_batch("awaitTermination")
        return super().awaitTermination(timeout)

    def processAllAvailable(self) -> None:  # noqa: N802
        self._sender.check_not_in_batch("processAllAvailable")
        super().processAllAvailable()

    def stop(self) -> None:
        self._sender.check_not_in_batch("stop")
        self._sender.close()
        if self.isActive:
            _LOG.info("the run on %s stops", self._started.checkpoint)
        if self._request_server is not None:
            self._request_server.close()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        super().stop()
        if self._adaptive is not None:
            self._adaptive.close()

    def serve_requests(self) -> None:
        """Take commands from other processes (`penstock ctl CHECKPOINT ...`) until the run is stopped."""
        if self._request_server is None:
            self._request_server = RequestServer(self)

    def serve(self, port: int = 0, *, interval: float = 1.0) -> Any:
        """Show the run on a page at 127.0.0.1 until the returned server is closed; needs `penstock[ui]`.

        `port` 0 takes a free one; `url` of the server has the token that changes of queries need. See docs/page.md.
        """
        return import_module("penstock.web").serve_run(self, port, interval)  # a higher package, and an extra

    # ── state and metrics ────────────────────────────────────────────────────────────────────────────────────────

    @property
    def spec(self) -> PipelineSpec:
        """The streams, tables and queries as they are now."""
        return self._batch_sink.layout.spec

    @property
    def queries(self) -> Descriptions[QueryDescription]:
        """The running queries by name, each with its text and columns, and its plan if one was given."""
        return describe_queries(lambda: self._batch_sink.layout.spec)

    @property
    def cells(self) -> int:
        """The number of parts of the work."""
        return self._started.cells

    @property
    def checkpointLocation(self) -> str:  # noqa: N802
        """The folder of the checkpoint."""
        return self._started.checkpoint

    @property
    def sinks(self) -> dict[str, str]:
        """Where the results of every query go, in words."""
        return self._batch_sink.describe_sinks()

    def metrics(self) -> dict[str, Any]:
        """Counts and sizes by stream, query and cell, as of the last micro-batch."""
        return self._batch_sink.metrics()

    def list_cell_statuses(self) -> list[Mapping[str, Any]]:
        """Operators, arcs, queries and slices of every cell that has described itself; the page adds them up."""
        return self._batch_sink.list_statuses()

    def get_latest(self, name: str) -> list[dict[str, Any]]:
        """The newest rows of a query by cell, as texts: `columns` and `rows`."""
        return self._batch_sink.get_latest(name)

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
