"""The process of Java: it has a session of its own, so that signals of the terminal do not reach it.

A terminal sends Ctrl-C to all processes of the foreground group. Spark's Python workers would end with a traceback, and
the micro-batch with them. The driver gets the signal alone and decides what to stop. Java ends with the driver, because
its standard input is a pipe from there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

JAVA_ENDED: tuple[type[Exception], ...] = (Py4JError, OSError)
"""What a call to Spark raises if the process of Java has ended."""
_detaching = False
_registered = False


@contextmanager
def detach_child_processes() -> Iterator[None]:
    """Processes that PySpark starts inside get a session of their own.

    PySpark starts Java with a `preexec_fn`, which runs the hooks of `os.register_at_fork`. Hooks cannot be removed.
    """
    global _detaching, _registered  # noqa: PLW0603 - hooks belong to the process
    if not hasattr(os, "register_at_fork"):
        yield
        return
    if not _registered:
        os.register_at_fork(after_in_child=_detach)
        _registered = True
    _detaching = True
    try:
        yield
    finally:
        _detaching = False


def _detach() -> None:
    if _detaching:
        os.setsid()
