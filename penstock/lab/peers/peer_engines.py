"""The embedded engine beside streaming engines other than Spark, each in an interpreter of its own.

Their dependencies and those of Penstock do not go together: each peer lives in a venv, named by a variable of the
environment, and a program of this folder, which knows nothing of Penstock, is run there on the same rows. A peer only
counts its results, while the engine hands them out. A peer also reads the rows while it runs; what a run takes that
reads and joins nothing is shown beside, for readers who want to take it off.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from penstock.engine import Engine
from penstock.errors import ResourceError
from penstock.lab.join_workloads import Load
from penstock.lab.meters import scratch
from penstock.lab.report import Check, at_least, equals
from penstock.progress import Step

_PATIENCE = 1800
GOALS = {"W3": 10.0}
"""How many times the rows per second of every peer."""


@dataclass(frozen=True)
class Peer:
    """Another engine: the package to install, the module it is imported as, and our program for it."""

    name: str
    package: str
    module: str
    program: str

    @property
    def variable(self) -> str:
        return f"PENSTOCK_{self.name.upper()}_PYTHON"

    @property
    def missing(self) -> str:
        """What to do so that the peer is measured too."""
        return (
            f"{self.package} was not measured: python3 -m venv VENV && VENV/bin/pip install {self.package}, "
            f"then {self.variable}=VENV/bin/python"
        )


PEERS = (
    Peer("flink", "apache-flink", "pyflink", "flink_join.py"),
    Peer("pathway", "pathway", "pathway", "pathway_join.py"),
)


def interpreters() -> dict[Peer, str]:
    """The peers whose variable names an interpreter; one that cannot import its peer is an error now, not later."""
    named = {peer: os.environ[peer.variable] for peer in PEERS if os.environ.get(peer.variable)}
    for peer, python in named.items():
        _run(peer, [python, "-c", f"import {peer.module}"])
    return named


@dataclass(frozen=True)
class Ran:
    """Seconds of a run over all rows, seconds of one that only reads them, results of each query."""

    seconds: float
    reading: float
    results: list[int]


def compared(load: Load, pythons: dict[Peer, str], step: Step) -> tuple[list[dict[str, Any]], list[Check]]:
    """All queries of a load by the embedded engine and by the peers: rows of a table, and what they show."""
    step(f"{load.name}: embedded engine")
    embedded(load)  # its loops are compiled now
    found = {"penstock, embedded": embedded(load)}
    for peer, python in pythons.items():
        step(f"{load.name}: {peer.name}")
        found[peer.name] = with_peer(load, peer, python)
    wanted, rows = load.counts(), load.rows_in_batch * load.batches
    checks = []
    for engine, ran in found.items():
        wrong = sum(abs(count - right) for count, right in zip(ran.results, wanted, strict=True))
        name = f"{load.name.lower()}_{engine.split(', ')[-1]}_wrong_counts"
        checks.append(equals(name, wrong, 0, "rows"))
    if load.name in GOALS:
        own = found["penstock, embedded"].seconds
        checks += [
            at_least(f"{load.name.lower()}_embedded_rows_vs_{peer.name}", found[peer.name].seconds / own,
                     GOALS[load.name], "times")
            for peer in pythons
        ]  # fmt: skip
    table = [
        {"load": load.name, "engine": engine, "rows_s": rows / ran.seconds, "seconds": ran.seconds,
         "reading_only_seconds": ran.reading, "results": sum(ran.results)}
        for engine, ran in found.items()
    ]  # fmt: skip
    return table, checks


def embedded(load: Load) -> Ran:
    """The rows are there as Arrow tables: the engine reads nothing."""
    engine = Engine()
    for name in load.names:
        engine.stream(name, load.schema(name), time="ts")
    queries = [f"q{number}" for number in range(len(load.asked))]
    for query, asked in zip(queries, load.asked, strict=True):
        engine.query(query, load.cql(asked))
    pushes = [{name: load.table(name, batch) for name in load.names} for batch in range(load.batches)]
    results = dict.fromkeys(queries, 0)
    begun = perf_counter()
    for push in pushes:
        for query, answer in engine.push(push).items():
            results[query] += answer.num_rows
    for query, answer in engine.flush().items():
        results[query] += answer.num_rows
    return Ran(perf_counter() - begun, 0.0, [results[query] for query in queries])


def with_peer(load: Load, peer: Peer, python: str) -> Ran:
    """The loads of one common key, `k`."""
    program = Path(__file__).parent / peer.program
    queries = [{"micros": asked.millis * 1000, "below": asked.below} for asked in load.asked]
    with scratch() as place:
        load.write(Path(place))
        asked = json.dumps({"folder": place, "streams": load.names, "queries": queries})
        said = json.loads(_run(peer, [python, str(program), asked]).splitlines()[-1])
    return Ran(said["seconds"], said["reading"], said["results"])


def _run(peer: Peer, command: Sequence[str]) -> str:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
        said = ended.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        ended, said = None, str(error)
    if ended is None or ended.returncode:
        told = [line for line in said.splitlines() if line.strip() and not line[0].isspace()]
        reason = told[-1] if told else "no message"
        raise ResourceError("PEER_FAILED", f"{command[0]} ({peer.variable}) did not run {peer.module}: {reason}")
    return ended.stdout
