"""How a run gives commands: each is checked against the pipeline, written to the control stream, and awaited.

Law: a command that is refused has changed neither the pipeline nor the control stream. Commands of several threads are
sent one at a time. The thread of a micro-batch, which calls sinks and listeners, never waits for the micro-batch.
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from penstock.adapt import AddQuery, DropQuery, QueryCommand, TimeCommand
from penstock.cql import Query
from penstock.errors import PenstockError, QueryError
from penstock.spark.driver.batch_sink import EffectCallback
from penstock.spark.driver.failures import translate_error
from penstock.spark.driver.started_pipeline import StartedPipeline
from penstock.spark.sinks import Sink

_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 1.0


class ChangeablePipeline(Protocol):
    """A pipeline, as far as a run changes it: it checks a command and keeps its effect for the next start.

    It returns the command with its query spelled as declared.
    """

    def change(self, given: QueryCommand, sink: Sink | None = None, cells: int = 1) -> QueryCommand: ...

    def bind(self, text: str) -> Query: ...


class CommandSender:
    """Sends the commands of one run."""

    def __init__(self, pipeline: ChangeablePipeline, started: StartedPipeline) -> None:
        self._pipeline = pipeline
        self._started = started
        self._lock = threading.Lock()
        self._sending_thread: int | None = None
        """The thread that sends a command now."""
        self._closed = False

    def bind(self, text: str) -> Query:
        """A query text with its names resolved."""
        return self._pipeline.bind(text)

    def close(self) -> None:
        """Refuse commands from now on: the run is being stopped."""
        self._closed = True

    def send_and_wait(self, command: QueryCommand, sink: Sink | None = None) -> None:
        """Send a command and wait until it has taken effect."""
        number = self.send(command, sink)
        while not self._started.batch_sink.wait(number, _POLL_SECONDS):
            self._check_running()

    def send(self, command: QueryCommand, sink: Sink | None = None, done: EffectCallback | None = None) -> int:
        """Send a command and return its number. `done` is called with the micro-batch from which on it takes effect."""
        self._check_not_opening(command.key)
        with self._lock:
            self._sending_thread = threading.get_ident()
            try:
                self._check_running()
                resolved = self._pipeline.change(command, sink, self._started.cells)
                if isinstance(resolved, AddQuery) and sink is not None:
                    self._open_sink(resolved, sink)
                number = self._started.batch_sink.submit(resolved, self._started.command_log, sink, done)
                _LOG.info("command %d: %s", number, resolved)
                return number
            finally:
                self._sending_thread = None

    def send_time(self, command: TimeCommand) -> None:
        """Send a command about event time, which changes no query."""
        self._started.command_log.append(command)

    def check_not_in_batch(self, call: str) -> None:
        """Refuse a call that would wait for the micro-batch that makes it."""
        self._check_not_opening(call)
        if self._started.batch_sink.is_in_batch:
            message = (
                f"{call} was called by a sink or a listener: it would wait for the micro-batch that calls it; "
                "call it from another thread, and do not wait for that one"
            )
            raise QueryError("REENTRANT_CALL", message, call=call)

    def _open_sink(self, command: AddQuery, sink: Sink) -> None:
        try:
            self._started.batch_sink.open(command.name, command.text, sink)
        except PenstockError:
            self._pipeline.change(DropQuery(command.name), None, self._started.cells)
            raise

    def _check_running(self) -> None:
        if self._closed or not self._started.query.isActive:
            failure = self._started.query.exception()
            if failure is not None:
                raise translate_error(failure)
            raise QueryError("RUN_ENDED", "the run has ended; change the pipeline and start it again")

    def _check_not_opening(self, call: str) -> None:
        """Refuse a call by a sink while it is opened for an added query."""
        if self._sending_thread == threading.get_ident():
            message = f"{call} was called by a sink that is being opened; call it when the sink's query was added"
            raise QueryError("REENTRANT_CALL", message, call=call)
