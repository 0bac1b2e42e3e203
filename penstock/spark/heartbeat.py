"""Heartbeats: the clock advances the frontier of an idle stream, on demand.

A stream may declare SKEW or IDLE AFTER, or get its times on arrival (INTERNAL, LATENT). If rows of it or of a stream it
is joined with wait for its frontier, or a cell has work to do at a time that has passed, the driver advances the
frontier as far as the declaration allows, by a command of the control stream. So heartbeats are part of the
checkpointed input. There are none while no query waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from time import time_ns

from penstock.cql import Stream
from penstock.ops import compute_clock_frontier
from penstock.spark.layout import ALWAYS

_MIN_INTERVAL = 0.2
_MAX_INTERVAL = 5.0
_MAX_PAUSE = 30.0
"""The longest pause in seconds between two attempts to send heartbeats while they fail."""


def is_clocked(stream: Stream) -> bool:
    return bool(stream.skew) or stream.idle_after is not None or is_stamped(stream)


def is_stamped(stream: Stream) -> bool:
    """Whether its rows get the time of their arrival, whatever their time column contains."""
    return stream.timestamps != "external"


WaitingQuery = tuple[frozenset[str], int | None]
"""The streams of a query, and the first time at which a cell has work to do for it; None if there is none."""


def compute_heartbeats(
    streams: Sequence[Stream],
    queries: Sequence[WaitingQuery],
    frontiers: Mapping[str, int],
    last_arrivals: Mapping[str, int],
    now: int,
) -> dict[str, int]:
    """New frontiers for streams that a query waits for."""
    newest = {stream.name: frontiers[stream.name] + stream.lateness for stream in streams if stream.name in frontiers}
    found = {}
    for stream in streams:
        if not is_clocked(stream):
            continue
        frontier = frontiers.get(stream.name, ALWAYS)
        readers = [(query, awaited) for query, awaited in queries if stream.name in query]
        possible = compute_clock_frontier(stream, now, last_arrivals.get(stream.name, now))
        waits = any(newest.get(name, ALWAYS) > frontier for query, _ in readers for name in query)
        due = any(awaited is not None and frontier <= awaited < possible for _, awaited in readers)
        if (waits or due) and possible > frontier:
            found[stream.name] = possible
    return found


class Heartbeat:
    """A thread that checks periodically and sends heartbeats."""

    def __init__(
        self,
        streams: Sequence[Stream],
        find_due: Callable[[int], tuple[Mapping[str, int], Mapping[str, int]]],
        send: Callable[[str, int], object],
    ) -> None:
        """`find_due` returns the frontiers and the heartbeats due at a time (see `compute_heartbeats`)."""
        spans = [span for stream in streams for span in (stream.skew, stream.idle_after) if span]
        self._interval = min(max(min(spans, default=0) / 2e6, _MIN_INTERVAL), _MAX_INTERVAL)
        self._find_due = find_due
        self._send = send
        self._sent: dict[str, int] = {}
        self._sent_count = 0
        self._errors = 0
        self._last_error: str | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def report(self) -> dict[str, object]:
        """The heartbeats sent, the attempts that failed, and the last error; None after an attempt that succeeded."""
        return {"sent": self._sent_count, "errors": self._errors, "last_error": self._last_error}

    def _run(self) -> None:
        """Send what is due until the end of the run. After an error the next attempt waits longer."""
        pause = self._interval
        while not self._stopped.wait(pause):
            try:
                self.send_due(time_ns() // 1000)
            except Exception as error:  # the storage of commands: without heartbeats queries would wait for ever
                self._errors += 1
                self._last_error = f"{type(error).__name__}: {error}"
                pause = min(2 * pause, max(_MAX_PAUSE, self._interval))
            else:
                self._last_error = None
                pause = self._interval

    def send_due(self, now: int) -> None:
        """Send the heartbeats that are due; the next one of a stream only when its last one has taken effect."""
        frontiers, due = self._find_due(now)
        for stream, frontier in due.items():
            if frontiers.get(stream, ALWAYS) >= self._sent.get(stream, ALWAYS):
                self._send(stream, frontier)
                self._sent[stream] = frontier
                self._sent_count += 1
