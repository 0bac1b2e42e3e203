"""Ctrl-C and SIGTERM. The first one ends the work in order, the second one ends the process at once.

The exit code is that of a shell: 128 and the number of the signal, 130 for Ctrl-C and 143 for SIGTERM.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """The process got a signal to end."""

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(number)
        self.exit_code = 128 + number
        self._message = message

    def add_message(self, message: str) -> None:
        self._message = message

    def __str__(self) -> str:
        return f"interrupted; {self._message}" if self._message else "interrupted"


class StopRequest:
    """Signals of a command that ends its work by itself: the first one is noted, the second one ends the process."""

    def __init__(self) -> None:
        self._number: int | None = None  # not an Event: a handler that takes a lock could block its own thread

    @property
    def is_set(self) -> bool:
        return self._number is not None

    @property
    def exit_code(self) -> int:
        """The exit code after the signal; 0 without one."""
        return 0 if self._number is None else 128 + self._number

    def sleep(self, seconds: float) -> bool:
        """Sleep, unless there was a signal; returns whether there was one."""
        if not self.is_set:
            time.sleep(seconds)
        return self.is_set

    def handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.is_set:
            _end_process(number)
        self._number = number


@contextmanager
def note_signals() -> Iterator[StopRequest]:
    """Signals are noted and do not interrupt the work inside."""
    request = StopRequest()
    with _handle_signals(request.handle):
        yield request


@contextmanager
def convert_signals() -> Iterator[None]:
    """A signal raises `Interrupted` inside. The next one ends the process: cleaning up may take long.

    Spark replaces the handler of SIGINT by one that raises KeyboardInterrupt.
    """
    interrupted = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        del frame
        if interrupted:
            _end_process(number)
        interrupted = True
        raise Interrupted(number)

    try:
        with _handle_signals(handle):
            yield
    except Interrupted:
        raise
    except KeyboardInterrupt as error:
        raise Interrupted(signal.SIGINT) from error


@contextmanager
def explain_interrupt(message: str) -> Iterator[None]:
    """Add to an interrupt what it left behind."""
    try:
        yield
    except Interrupted as error:
        error.add_message(message)
        raise
    except KeyboardInterrupt as error:
        raise Interrupted(signal.SIGINT, message) from error


@contextmanager
def _handle_signals(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only the main thread can set handlers
        yield
        return
    before = {number: signal.signal(number, handle) or signal.SIG_DFL for number in SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _end_process(number: int) -> NoReturn:
    """End at once: no handler, no clean-up. Java ends when its standard input is closed."""
    os.write(2, b"\nstopped at once\n")
    os._exit(128 + number)
