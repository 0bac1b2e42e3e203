"""The embedded engine compared with streaming engines other than Spark, each in a separate interpreter.

The dependencies of the peers conflict with those of Penstock. So each peer is installed in a venv that an environment
variable names, and a program of this folder, which does not import Penstock, runs there on the same rows. A peer only
counts its results, while the engine returns them. A peer also reads the rows while it runs; the time of a run that
only reads is in a separate column, so that it can be subtracted.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from penstock.engine import Engine
from penstock.errors import ResourceError
from penstock.lab.join_workloads import JoinWorkload
from penstock.lab.meters import create_temp_dir
from penstock.lab.report import Check, ReportRow, check_at_least, check_equals
from penstock.progress import ProgressStep

_TIMEOUT_SECONDS = 1800
GOALS = {"W3": 10.0}
"""The goals for the rows per second of the engine over those of each peer, by workload."""


@dataclass(frozen=True)
class PeerEngine:
    """Another engine: the package to install, the module to import, and the program of this folder that runs it."""

    name: str
    package: str
    module: str
    program: str

    @property
    def env_variable(self) -> str:
        return f"PENSTOCK_{self.name.upper()}_PYTHON"

    @property
    def install_hint(self) -> str:
        """How to install the peer, so that the lab measures it."""
        return (
            f"{self.package} was not measured: python3 -m venv VENV && VENV/bin/pip install {self.package}, "
            f"then {self.env_variable}=VENV/bin/python"
        )


PEERS = (
    PeerEngine("flink", "apache-flink", "pyflink", "flink_join.py"),
    PeerEngine("pathway", "pathway", "pathway", "pathway_join.py"),
)


def find_interpreters(peers: Sequence[PeerEngine] = PEERS) -> dict[PeerEngine, str]:
    """The peers whose variable names an interpreter. Raises if an interpreter cannot import its peer."""
    named = {peer: os.environ[peer.env_variable] for peer in peers if os.environ.get(peer.env_variable)}
    for peer, python in named.items():
        run_program(peer, [python, "-c", f"import {peer.module}"])
    return named


@dataclass(frozen=True)
class EngineRun:
    """Seconds of a run over all rows, seconds of a run that only reads them, and the results of each query."""

    seconds: float
    reading: float
    results: list[int]


def compare_engines(
    workload: JoinWorkload, pythons: dict[PeerEngine, str], step: ProgressStep
) -> tuple[list[ReportRow], list[Check]]:
    """Run a workload by the embedded engine and by the peers: the rows of a table, and the checks."""
    step(f"{workload.name}: embedded engine")
    run_embedded(workload)  # compiles the kernels
    found = {"penstock, embedded": run_embedded(workload)}
    for peer, python in pythons.items():
        step(f"{workload.name}: {peer.name}")
        found[peer.name] = run_peer(workload, peer, python)
    expected, rows = workload.count_results(), workload.rows_in_batch * workload.batches
    checks = []
    for engine, ran in found.items():
        wrong = count_wrong_results(ran.results, expected)
        name = f"{workload.name.lower()}_{engine.split(', ')[-1]}_wrong_counts"
        checks.append(check_equals(name, wrong, 0, "rows"))
    if workload.name in GOALS:
        own = found["penstock, embedded"].seconds
        checks += [
            check_at_least(f"{workload.name.lower()}_embedded_rows_vs_{peer.name}", found[peer.name].seconds / own,
                     GOALS[workload.name], "times")
            for peer in pythons
        ]  # fmt: skip
    table = [
        {"load": workload.name, "engine": engine, "rows_s": rows / ran.seconds, "seconds": ran.seconds,
         "reading_only_seconds": ran.reading, "results": sum(ran.results)}
        for engine, ran in found.items()
    ]  # fmt: skip
    return table, checks


def count_wrong_results(counts: Sequence[int], expected: Sequence[int]) -> int:
    """By how many results the queries differ from the expected counts, in sum."""
    return sum(abs(count - right) for count, right in zip(counts, expected, strict=True))


def run_embedded(workload: JoinWorkload) -> EngineRun:
    """The rows are in memory as Arrow tables, so the engine reads no files."""
    engine = Engine()
    for name in workload.names:
        engine.stream(name, workload.schema(name), time="ts")
    queries = [f"q{number}" for number in range(len(workload.queries))]
    for name, query in zip(queries, workload.queries, strict=True):
        engine.query(name, workload.build_cql(query))
    pushes = [
        {name: workload.generate_table(name, batch) for name in workload.names} for batch in range(workload.batches)
    ]
    results = dict.fromkeys(queries, 0)
    begun = perf_counter()
    for push in pushes:
        for name, answer in engine.push(push).items():
            results[name] += answer.num_rows
    for name, answer in engine.flush().items():
        results[name] += answer.num_rows
    return EngineRun(perf_counter() - begun, 0.0, [results[name] for name in queries])


def run_peer(workload: JoinWorkload, peer: PeerEngine, python: str) -> EngineRun:
    """Run the program of a peer. The workload has one key, `k`."""
    program = Path(__file__).parent / peer.program
    queries = [{"micros": query.millis * 1000, "below": query.below} for query in workload.queries]
    with create_temp_dir() as folder:
        workload.write(Path(folder))
        request = json.dumps({"folder": folder, "streams": workload.names, "queries": queries})
        answer = json.loads(run_program(peer, [python, str(program), request]).splitlines()[-1])
    return EngineRun(answer["seconds"], answer["reading"], answer["results"])


def run_program(peer: PeerEngine, command: Sequence[str]) -> str:
    """The output of a command of a peer's interpreter; ResourceError if it fails."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
        errors = ended.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        ended, errors = None, str(error)
    if ended is None or ended.returncode:
        lines = [line for line in errors.splitlines() if line.strip() and not line[0].isspace()]
        reason = lines[-1] if lines else "no message"
        raise ResourceError("PEER_FAILED", f"{command[0]} ({peer.env_variable}) did not run {peer.module}: {reason}")
    return ended.stdout
