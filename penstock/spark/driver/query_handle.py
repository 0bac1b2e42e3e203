"""The part of a run that is Spark's StreamingQuery, with the errors of this package."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import PenstockError
from penstock.spark.driver.failures import translate_error

_POLL_SECONDS = 0.05


class QueryHandle:
    """A Spark streaming query under Spark's own names."""

    def __init__(self, query: StreamingQuery, topics: Collection[str] = ()) -> None:
        """`topics`: those that it reads from Kafka, for errors."""
        self._query = query
        self._topics = topics

    @property
    def id(self) -> str:
        """The id of the query; a restart from the checkpoint keeps it."""
        return self._query.id

    @property
    def runId(self) -> str:  # noqa: N802 - Spark's names here and below
        """The id of this start."""
        return self._query.runId

    @property
    def name(self) -> str:
        """The name of Spark's streaming query."""
        return self._query.name

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether the run has not ended."""
        return self._query.isActive

    @property
    def status(self) -> dict[str, Any]:
        """What the run does now."""
        return dict(self._query.status)

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        """Spark's report of the last micro-batch; None before the first one."""
        return self._query.lastProgress

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802
        """Spark's reports of the last micro-batches."""
        return list(self._query.recentProgress)

    def exception(self) -> PenstockError | None:
        """Why the run failed; its `__cause__` is Spark's own exception."""
        failure = self._query.exception()
        return None if failure is None else translate_error(failure, self._topics)

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802
        """Wait for the end of the run, at most `timeout` seconds; True if it has ended. Raises its failure."""
        try:
            return self._query.awaitTermination(timeout)
        except StreamingQueryException as error:
            raise translate_error(error, self._topics) from error

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until all data that are available now have been processed."""
        try:
            self._query.processAllAvailable()
        except StreamingQueryException as error:
            raise translate_error(error, self._topics) from error

    def stop(self) -> None:
        """Stop the run; it can be started again from its checkpoint."""
        self._query.stop()

    def stop_after_batch(self) -> None:
        """Let the micro-batch that runs now end, then stop: a later start repeats no work."""
        before = self._read_progress_time()
        while self.isActive and self.status["isTriggerActive"] and self._read_progress_time() == before:
            time.sleep(_POLL_SECONDS)
        self.stop()

    def _read_progress_time(self) -> str | None:
        """The start of the last micro-batch that was committed."""
        progress = self._query.lastProgress
        return None if progress is None else str(progress["timestamp"])
