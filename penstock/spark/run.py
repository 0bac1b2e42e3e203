"""A running pipeline: feels like Spark's StreamingQuery, and knows its continuous queries."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import DataError, PenstockError, QueryError, UnsupportedError
from penstock.spark.control import Desk
from penstock.spark.failures import translated
from penstock.spark.heartbeat import Heart, clocked
from penstock.spark.outlets import Outlets
from penstock.spark.sinks import Sink


@dataclass(frozen=True)
class Launched:
    """A Spark streaming query and what it writes through."""

    query: StreamingQuery
    outlets: Outlets
    desk: Desk
    checkpoint: str


class Changeable(Protocol):
    """What a run asks of its pipeline."""

    def query(self, name: str, text: str, sink: Sink | None = None, plan: str | None = None) -> None: ...
    def drop(self, name: str) -> None: ...
    def migrate(self, name: str, plan: str) -> None: ...


class Run:
    """The handle of a started pipeline.

    The set of queries may change under way: the Spark query is stopped at the end of a micro-batch and goes on from its
    checkpoint with the new plan. A query that is added sees the rows that come from then on; the others lose nothing.
    """

    def __init__(self, pipeline: Changeable, launch: Callable[[Outlets | None], Launched]) -> None:
        self._pipeline = pipeline
        self._launch = launch
        self._changing = threading.RLock()
        self._now = launch(None)
        self._stopped = False
        streams = self._now.outlets.layout.spec.streams
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
        return self._now.query.status

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
        while True:
            waited = self._now
            try:
                over = waited.query.awaitTermination(timeout)
            except StreamingQueryException as error:
                raise translated(error) from error
            with self._changing:
                if waited is self._now or over is False:
                    return over

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until all data that are there now have been worked on."""
        try:
            self._now.query.processAllAvailable()
        except StreamingQueryException as error:
            raise translated(error) from error

    def stop(self) -> None:
        with self._changing:
            self._stopped = True
            if self._heart is not None:
                self._heart.stop()
            self._now.query.stop()

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

    def add(self, name: str, text: str, sink: Sink | None = None, plan: str | None = None) -> None:
        """Start another query: it sees the rows that come from now on."""
        self._change(lambda: self._pipeline.query(name, text, sink, plan))

    def drop(self, name: str) -> None:
        """Stop a query and forget what it remembers."""
        self._change(lambda: self._pipeline.drop(name))

    def migrate(self, name: str, plan: str) -> None:
        """Go on with another plan, without losing or repeating a result."""
        self._change(lambda: self._pipeline.migrate(name, plan))

    def budget(self, probes: float | None, policy: str = "jaqpot") -> None:
        """Limit the probes per second of event time (not on Spark yet)."""
        if probes is not None:
            raise UnsupportedError(
                "NOT_ON_SPARK_YET", f"a probe budget ({probes}, {policy}) is not enforced on Spark yet"
            )

    def _due(self, now: int) -> tuple[dict[str, int], dict[str, int]]:
        return self._now.outlets.due(now) if self._now.query.isActive else ({}, {})

    def _promise(self, stream: str, frontier: int) -> None:
        self._now.desk.give("advance", stream, frontier)

    def _change(self, change: Callable[[], None]) -> None:
        with self._changing:
            if self._stopped or not self._now.query.isActive:
                raise QueryError("RUN_ENDED", "the run has ended; change the pipeline and start it again")
            change()
            self._now.outlets.close()
            self._now.query.stop()
            self._now = self._launch(self._now.outlets)

    def advance(self, name: str, time: int | datetime | pa.Scalar) -> None:
        """No row of the stream before `time` will come: takes effect with the next micro-batch, after its rows."""
        streams = self._now.outlets.layout.spec.streams
        stream = next((s for s in streams if s.name.casefold() == name.casefold()), None)
        if stream is None:
            known = ", ".join(s.name for s in streams)
            raise DataError("UNKNOWN_STREAM", f"there is no stream {name}; declared: {known}", stream=name)
        try:
            scalar = time if isinstance(time, pa.Scalar) else pa.scalar(time, stream.time_type)
            tick = int(scalar.cast(stream.time_type).cast(pa.int64()).as_py())
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DataError("TIME_TYPE", f"{time!r} is not a time of {stream.name}: {stream.time_type}") from error
        self._now.desk.give("advance", stream.name, tick)

    def finish(self) -> None:
        """The end of every stream: what waits for more becomes certain, with the next micro-batch."""
        self._now.desk.give("end")
