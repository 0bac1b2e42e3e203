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
from penstock.lab.join_workloads import JoinWorkload
from penstock.lab.meters import create_temp_dir
from penstock.lab.report import Check, check_at_least, check_equals
from penstock.progress import ProgressStep

_TIMEOUT_SECONDS = 1800
GOALS = {"W3": 10.0}
"""How many times the rows per second of every peer."""


@dataclass(frozen=True)
class PeerEngine:
    """Another engine: the package to install, the module it is imported as, and our program for it."""

    name: str
    package: str
    module: str
    program: str

    @property
    def env_variable(self) -> str:
        return f"PENSTOCK_{self.name.upper()}_PYTHON"

    @property
    def install_hint(self) -> str:
        """What to do so that the peer is measured too."""
        return (
            f"{self.package} was not measured: python3 -m venv VENV && VENV/bin/pip install {self.package}, "
            f"then {self.env_variable}=VENV/bin/python"
        )


PEERS = (
    PeerEngine("flink", "apache-flink", "pyflink", "flink_join.py"),
    PeerEngine("pathway", "pathway", "pathway", "pathway_join.py"),
)


def find_interpreters() -> dict[PeerEngine, str]:
    """The peers whose variable names an interpreter; one that cannot import its peer is an error now, not later."""
    named = {peer: os.environ[peer.env_variable] for peer in PEERS if os.environ.get(peer.env_variable)}
    for peer, python in named.items():
        _run_command(peer, [python, "-c", f"import {peer.module}"])
    return named


@dataclass(frozen=True)
class EngineRun:
    """Seconds of a run over all rows, seconds of one that only reads them, results of each query."""

    seconds: float
    reading: float
    results: list[int]


def compare_engines(
    load: JoinWorkload, pythons: dict[PeerEngine, str], step: ProgressStep
) -> tuple[list[dict[str, Any]], list[Check]]:
    """All queries of a load by the embedded engine and by the peers: rows of a table, and what they show."""
    step(f"{load.name}: embedded engine")
    run_embedded(load)  # its loops are compiled now
    found = {"penstock, embedded": run_embedded(load)}
    for peer, python in pythons.items():
        step(f"{load.name}: {peer.name}")
        found[peer.name] = run_peer(load, peer, python)
    wanted, rows = load.count_results(), load.rows_in_batch * load.batches
    checks = []
    for engine, ran in found.items():
        wrong = sum(abs(count - right) for count, right in zip(ran.results, wanted, strict=True))
        name = f"{load.name.lower()}_{engine.split(', ')[-1]}_wrong_counts"
        checks.append(check_equals(name, wrong, 0, "rows"))
    if load.name in GOALS:
        own = found["penstock, embedded"].seconds
        checks += [
            check_at_least(f"{load.name.lower()}_embedded_rows_vs_{peer.name}", found[peer.name].seconds / own,
                     GOALS[load.name], "times")
            for peer in pythons
        ]  # fmt: skip
    table = [
        {"load": load.name, "engine": engine, "rows_s": rows / ran.seconds, "seconds": ran.seconds,
         "reading_only_seconds": ran.reading, "results": sum(ran.results)}
        for engine, ran in found.items()
    ]  # fmt: skip
    return table, checks


def run_embedded(load: JoinWorkload) -> EngineRun:
    """The rows are there as Arrow tables: the engine reads nothing."""
    engine = Engine()
    for name in load.names:
        engine.stream(name, load.schema(name), time="ts")
    queries = [f"q{number}" for number in range(len(load.queries))]
    for query, asked in zip(queries, load.queries, strict=True):
        engine.query(query, load.build_cql(asked))
    pushes = [{name: load.generate_table(name, batch) for name in load.names} for batch in range(load.batches)]
    results = dict.fromkeys(queries, 0)
    begun = perf_counter()
    for push in pushes:
        for query, answer in engine.push(push).items():
            results[query] += answer.num_rows
    for query, answer in engine.flush().items():
        results[query] += answer.num_rows
    return EngineRun(perf_counter() - begun, 0.0, [results[query] for query in queries])


def run_peer(load: JoinWorkload, peer: PeerEngine, python: str) -> EngineRun:
    """The loads of one common key, `k`."""
    program = Path(__file__).parent / peer.program
    queries = [{"micros": asked.millis * 1000, "below": asked.below} for asked in load.queries]
    with create_temp_dir() as place:
        load.write(Path(place))
        asked = json.dumps({"folder": place, "streams": load.names, "queries": queries})
        said = json.loads(_run_command(peer, [python, str(program), asked]).splitlines()[-1])
    return EngineRun(said["seconds"], said["reading"], said["results"])


def _run_command(peer: PeerEngine, command: Sequence[str]) -> str:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
        said = ended.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        ended, said = None, str(error)
    if ended is None or ended.returncode:
        told = [line for line in said.splitlines() if line.strip() and not line[0].isspace()]
        reason = told[-1] if told else "no message"
        raise ResourceError("PEER_FAILED", f"{command[0]} ({peer.env_variable}) did not run {peer.module}: {reason}")
    return ended.stdout
