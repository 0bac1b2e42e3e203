"""What this process waits for: servers that do not answer now. `run.status["waiting"]` shows it.

Brokers are asked for a connection when the status is read, and only while Spark asks them for their newest records:
Spark itself says nothing while it tries again. Other servers are noted by those who try again.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

_ASKING = "Getting offsets from Kafka"
"""The beginning of Spark's message while it asks for the newest records."""
_CONNECT_SECONDS = 0.5
_lock = threading.Lock()
_servers: dict[object, tuple[str, float]] = {}


@contextmanager
def watch_server(what: str) -> Iterator[Callable[[], None]]:
    """For a block that tries to reach a server. It calls the function when an attempt fails: then it waits."""
    key = object()

    def begin() -> None:
        with _lock:
            _servers.setdefault(key, (what, time.monotonic()))

    try:
        yield begin
    finally:
        with _lock:
            _servers.pop(key, None)


def list_waits(message: str, brokers: Collection[str]) -> list[str]:
    """A sentence for each server that is waited for. `message`: what Spark says that it does."""
    with _lock:
        found = list(_servers.values())
    now = time.monotonic()
    told = [f"{what} has not answered for {now - begun:.0f} s; it is tried again" for what, begun in found]
    if brokers and message.startswith(_ASKING) and not any(map(_answers, sorted(brokers))):
        told.append(f"no broker of Kafka answers at {', '.join(sorted(brokers))}; Spark tries again")
    return told


def _answers(address: str) -> bool:
    host, _, port = address.strip().rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS):
            return True
    except (OSError, ValueError):
        return False
