"""Heartbeats: an idle stream's frontier is raised by the clock, on demand.

A stream may declare SKEW or IDLE AFTER, or be stamped here (INTERNAL, LATENT). When rows of its own or of a stream it
is joined with wait for its frontier, or a cell has something to do at a time that has come, the driver promises what
that declaration allows at the current time, as a command of the control stream: so the promise is part of the
checkpointed input. Nothing is promised while nothing waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from time import time_ns

from penstock.cql.catalog import Stream
from penstock.ops.source import promise
from penstock.spark.layout import ALWAYS

_SHORTEST = 0.2
_LONGEST = 5.0


def clocked(stream: Stream) -> bool:
    return bool(stream.skew) or stream.idle_after is not None or stamped(stream)


def stamped(stream: Stream) -> bool:
    """Whether its rows have the time at which they come, whatever stands in them."""
    return stream.timestamps != "external"


Reading = tuple[frozenset[str], int | None]
"""The streams of a query, and the first time at which a cell has something to do for it; None if it has nothing."""


def promises(
    streams: Sequence[Stream],
    queries: Sequence[Reading],
    frontiers: Mapping[str, int],
    heard: Mapping[str, int],
    now: int,
) -> dict[str, int]:
    """New frontiers for streams on which a query waits. `heard`: the last arrivals."""
    newest = {stream.name: frontiers[stream.name] + stream.lateness for stream in streams if stream.name in frontiers}
    found = {}
    for stream in streams:
        if not clocked(stream):
            continue
        frontier = frontiers.get(stream.name, ALWAYS)
        readers = [(query, awaited) for query, awaited in queries if stream.name in query]
        able = promise(stream, now, heard.get(stream.name, now))
        waits = any(newest.get(name, ALWAYS) > frontier for query, _ in readers for name in query)
        due = any(awaited is not None and frontier <= awaited < able for _, awaited in readers)
        if (waits or due) and able > frontier:
            found[stream.name] = able
    return found


class Heart:
    """A thread that looks from time to time and gives commands."""

    def __init__(
        self,
        streams: Sequence[Stream],
        due: Callable[[int], tuple[Mapping[str, int], Mapping[str, int]]],
        give: Callable[[str, int], object],
    ) -> None:
        """`due`: the frontiers, and what to promise at a time (see `promises`); `give`: how."""
        spans = [span for stream in streams for span in (stream.skew, stream.idle_after) if span]
        self._pause = min(max(min(spans, default=0) / 2e6, _SHORTEST), _LONGEST)
        self._due = due
        self._give = give
        self._given: dict[str, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="penstock-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()

    def _beat(self) -> None:
        while not self._over.wait(self._pause):
            self.look(time_ns() // 1000)

    def look(self, now: int) -> None:
        """Give what is due; a stream's next promise only when its last one has taken effect."""
        frontiers, due = self._due(now)
        for stream, frontier in due.items():
            if frontiers.get(stream, ALWAYS) >= self._given.get(stream, ALWAYS):
                self._give(stream, frontier)
                self._given[stream] = frontier
