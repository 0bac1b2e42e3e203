"""A computation in a thread of its own, whose result is taken later.

The thread is new for each computation, so nothing is left behind in a process that is forked, and it never keeps the
program from ending. An error is raised where the result is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundResult(Generic[T]):
    """The result of a function that runs in a thread."""

    def __init__(self, function: Callable[[], T], name: str) -> None:
        self._function = function
        self._found: list[T] = []
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found.append(self._function())
        except BaseException as error:
            self._error = error

    def wait(self) -> T:
        """The result, when it is there."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        (found,) = self._found
        return found
