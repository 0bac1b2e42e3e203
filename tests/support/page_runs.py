"""An engine that a page shows: two streams that go on, some queries, and a push on demand."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import penstock as ps

PAIRS = "SELECT a.k, b.v FROM A [RANGE 50] AS a, B [RANGE 50] AS b WHERE a.k = b.k"
TRIPLES = "SELECT a.k FROM A [RANGE 50] AS a, B [RANGE 50] AS b, C [RANGE 50] AS c WHERE a.k = b.k AND b.k = c.k"


def build_engine(queries: int = 0) -> ps.Engine:
    """An engine with the streams A, B and C, two joins, an aggregate over a derived stream, and more queries."""
    engine = ps.Engine(warn=False)
    for name in ("A", "B", "C"):
        engine.stream(name, {"ts": "bigint", "k": "bigint", "v": "bigint"}, time="ts")
    engine.query("pairs", PAIRS)
    engine.query("triples", TRIPLES, plan="((a b) c)")
    engine.derive("large", "SELECT k, v FROM A WHERE v > 5")
    engine.query("counts", "SELECT k, COUNT(*) AS n FROM large [RANGE 20] GROUP BY k")
    for number in range(queries):
        text = f"SELECT a.k FROM A [RANGE {number % 40 + 1}] AS a, B [RANGE {number % 40 + 1}] AS b WHERE a.k = b.k"
        engine.query(f"q{number:04}", f"{text} AND a.v > {number % 7}")
    return engine


def push(engine: ps.Engine, number: int) -> None:
    """Push twenty ticks of every stream; C is behind."""
    ticks = range(20 * number, 20 * number + 20)
    rows = {"ts": list(ticks), "k": [tick % 5 for tick in ticks], "v": [tick % 10 for tick in ticks]}
    late = {**rows, "ts": [max(0, tick - 20) for tick in ticks]}
    engine.push({"A": rows, "B": rows, "C": late})


@contextmanager
def keep_pushing(engine: ps.Engine, first: int = 0, pause: float = 0.05) -> Iterator[None]:
    """Push in a thread until the end of the block."""
    stopped, failures = threading.Event(), list[BaseException]()

    def work() -> None:
        number = first
        try:
            while not stopped.wait(pause):
                push(engine, number)
                number += 1
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
    assert not failures, failures


def fetch(url: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    """Status, text and headers of an answer."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


def control(server: Any, do: str, token: str | None = None, **arguments: Any) -> dict[str, Any]:
    """Send a control to a page; returns its answer."""
    body = json.dumps({"do": do, "arguments": arguments}).encode()
    headers = {"x-penstock-token": server.token if token is None else token}
    request = urllib.request.Request(f"{server.address}api/control", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return dict(json.loads(answer.read()))
    except urllib.error.HTTPError as error:
        return dict(json.loads(error.read()))


def read_events(server: Any, count: int) -> list[tuple[str, dict[str, Any]]]:
    """The first events that a new page gets."""
    found: list[tuple[str, dict[str, Any]]] = []
    with urllib.request.urlopen(f"{server.address}api/events", timeout=10) as answer:
        name = ""
        while len(found) < count:
            line = answer.readline().decode().rstrip("\n")
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                found.append((name, json.loads(line.removeprefix("data: "))))
    return found
