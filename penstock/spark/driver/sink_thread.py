"""The thread of a sink: sinks of a micro-batch are written at the same time, each by a thread of its own.

A sink is always called by the same thread, so it may use what is bound to a thread, such as a database connection.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

_Job = tuple[Callable[[], object], "Future[object]"]


class SinkThread:
    """A daemon thread that calls functions one by one. It ends when this object is no longer used."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        thread = threading.Thread(target=_run_jobs, args=(self._jobs,), name=name, daemon=True)
        thread.start()
        self._ident = thread.ident
        weakref.finalize(self, self._jobs.put, None)

    def submit(self, function: Callable[[], object]) -> Future[object]:
        """Call a function in the thread."""
        future: Future[object] = Future()
        self._jobs.put((function, future))
        return future

    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.get_ident() == self._ident


def _run_jobs(jobs: SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        function, future = job
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)
        del job, function, future  # the thread keeps nothing while it waits
