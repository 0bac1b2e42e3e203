"""The monitor: reads a source at an interval in a thread, and keeps time lines and events of bounded length.

Law: reading and sending take at most `SHARE` of the processor time of the process that they watch, on a machine with
other work too, so a run is hardly slower with a page than without one. A reading that took long is followed by a long
pause: the interval is a lower bound. While no page is open, readings are at least a second apart. Messages are encoded
once for all pages.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from penstock.engine import EngineStatus
from penstock.errors import PenstockError
from penstock.web.graph import GraphPicture, build_graph
from penstock.web.series import GraphEvent, SeriesPoint, list_changes, measure_point
from penstock.web.sources import STARTING, PageSource, Reading, encode_record
from penstock.web.status_codec import encode_figures, encode_graph, encode_queries, is_same_structure

SHARE = 0.01
"""The part of the processor time that readings may take, and sending them to pages."""
UNSEEN_SECONDS = 1.0
"""The shortest time between two readings while no page is open: they draw the beginning of time lines."""
LEAST_SPAN = 0.05
"""The shortest time of a point of the time lines, in seconds."""
SAVE_SECONDS = 5.0
"""The time between two records."""
MOST_POINTS = 900
MOST_EVENTS = 300
_LOG = logging.getLogger(__name__)

Message = tuple[str, str]
"""The name of an event and its JSON."""


class PageMonitor:
    """Reads one source. All methods may be called from several threads."""

    def __init__(self, source: PageSource, interval: float, save: Callable[[bytes], object] | None = None) -> None:
        """`save` is called with a record for `penstock ui`, every few seconds and at the end."""
        self.source = source
        self._interval = interval
        self._save = save
        self._saved_at = time.monotonic() - SAVE_SECONDS
        self._lock = threading.Lock()
        self._points: deque[SeriesPoint] = deque(maxlen=MOST_POINTS)
        self._events: deque[GraphEvent] = deque(maxlen=MOST_EVENTS)
        self._reading: Reading | None = None
        self._measured: tuple[EngineStatus, float] | None = None
        """The status at the newest point, and the clock then."""
        self._version = 0
        self._structure: Message = ("structure", "{}")
        self._sample: Message = ("sample", "{}")
        self._listeners: list[Callable[[Message], None]] = []
        self._sending = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-page", daemon=True)
        self.problem: str | None = None

    def start(self) -> None:
        """Read once, so that an error reaches the caller, then read in a thread."""
        self.read_now()
        self._thread.start()

    def close(self) -> None:
        if self._stopped.is_set():
            return
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._save is not None:
            self._saved_at = -SAVE_SECONDS
            try:
                self.read_now()
            except Exception as error:  # Spark may have ended; the record of a few seconds ago stays
                _LOG.warning("the last figures of the run cannot be saved: %s", error)

    def _run(self) -> None:
        cost = spent = 0.0
        while not self._stopped.wait(self._find_pause(cost)):
            try:
                self.read_now()
                self.problem = None
            except PenstockError as error:
                self._report(error.condition, str(error))
            except Exception as error:  # the source may have ended; the page says so and goes on
                _LOG.debug("the page cannot read its source", exc_info=True)
                self._report("SOURCE_ENDED", f"{type(error).__name__}: {error}")
            before, spent = spent, time.thread_time() + self._sending
            cost = spent - before

    def _find_pause(self, cost: float) -> float:
        """The seconds until another reading of this cost keeps the share.

        On a machine with other work a process has less than a core: a share of the clock's time would be more of its
        own time.
        """
        interval = self._interval if self._listeners else max(self._interval, UNSEEN_SECONDS)
        return max(interval, cost / SHARE * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))

    def _report(self, condition: str, text: str) -> None:
        if self.problem != text:
            self.problem = text
            self._send(("problem", json.dumps({"condition": condition, "message": text})))

    def read_now(self) -> None:
        """Take a reading, and send what changed to the pages."""
        reading, clock, now = self.source.read(), time.perf_counter(), time.time()
        with self._lock:
            before = self._reading
            changes: list[GraphEvent] = []
            point: SeriesPoint | None = None
            if reading.points:
                self._points = deque(reading.points, MOST_POINTS)
                changes = list(reading.past_events[len(self._events) :]) if before is not None else []
                self._events = deque(reading.past_events, MOST_EVENTS)
                point = reading.points[-1]
            elif before is not None:
                point = self._measure(reading.status, clock, now)
                known = [] if before.state == STARTING else list_changes(before.status, reading.status, now)
                changes = [*known, *reading.events]
                self._events.extend(changes)
            is_new = before is None or not is_same_structure(before.status, reading.status)
            if before is None:
                self._measured = reading.status, clock
            self._reading = reading
            if is_new:
                self._version += 1
                self._structure = "structure", json.dumps(self._encode_structure(reading.status))
            self._sample = "sample", json.dumps(self._encode_sample(reading, point, changes, now))
            messages = [self._structure, self._sample] if is_new else [self._sample]
        for message in messages:
            self._send(message)
        if self._save is not None and time.monotonic() - self._saved_at > SAVE_SECONDS:
            self._saved_at = time.monotonic()
            self._save(self.build_record())

    def _measure(self, status: EngineStatus, clock: float, now: float) -> SeriesPoint | None:
        """The newest point. A reading just after a control comes too soon for a rate, and makes none."""
        assert self._measured is not None
        before, at = self._measured
        if clock - at >= min(LEAST_SPAN, self._interval / 2):
            self._measured = status, clock
            self._points.append(measure_point(before, status, clock - at, now))
        return self._points[-1] if self._points else None

    def _encode_structure(self, status: EngineStatus) -> dict[str, Any]:
        return {
            "version": self._version,
            "kind": self.source.kind,
            "title": self.source.title,
            "operators": [[each.id, each.kind, each.title] for each in status.operators],
            "queries": encode_queries(status),
            "graph": encode_graph(self._draw(status, None)),
        }

    def _draw(self, status: EngineStatus, query: str | None) -> GraphPicture:
        return build_graph(status, query, {each.name: each.sink for each in status.queries if each.sink})

    def _encode_sample(
        self, reading: Reading, point: SeriesPoint | None, events: list[GraphEvent], now: float
    ) -> dict[str, Any]:
        return {
            "version": self._version,
            "time": now,
            "state": reading.state,
            "point": None if point is None else asdict(point),
            "events": [asdict(event) for event in events],
            **encode_figures(reading.status),
        }

    # ── what pages ask for ───────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, listener: Callable[[Message], None]) -> list[Message]:
        """Call a function with every message; returns those that a new page needs first."""
        with self._lock:
            self._listeners.append(listener)
            history = {"points": [asdict(p) for p in self._points], "events": [asdict(e) for e in self._events]}
            return [self._structure, ("history", json.dumps(history)), self._sample]

    def add_sending(self, seconds: float) -> None:
        """Sending a message to a page took so much processor time; called by one thread."""
        self._sending += seconds

    def unsubscribe(self, listener: Callable[[Message], None]) -> None:
        with self._lock:
            self._listeners.remove(listener)

    def _send(self, message: Message) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener(message)

    @property
    def status(self) -> EngineStatus:
        """The last status."""
        with self._lock:
            if self._reading is None:
                raise PenstockError("NO_READING", "the page has not read its source yet")
            return self._reading.status

    def encode_query_graph(self, query: str) -> dict[str, Any]:
        """The graph of one query."""
        return encode_graph(self._draw(self.status, query))

    def build_record(self) -> bytes:
        """What the page shows now, to be shown later by `penstock ui`."""
        with self._lock:
            if self._reading is None:
                return b""
            points = tuple(self._points) or (measure_point(self._reading.status, self._reading.status, 1, time.time()),)
            reading = replace(self._reading, points=points, past_events=tuple(self._events))
        return json.dumps(encode_record(reading)).encode()
