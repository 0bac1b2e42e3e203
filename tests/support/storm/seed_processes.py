"""Seeds in child processes: a seed that crashes the interpreter is reported as a failure, and the next seeds still run.

A child runs a range of seeds of one kind and writes a JSON line before and after each seed. If it crashes, its current
seed is reported with the signal and the stack from faulthandler, and another child continues with the next seed.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "storm" / "seed_runner.py"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a seed; `fault` is None if it passed."""

    kind: str
    seed: int
    fault: str | None
    seconds: float = 0.0

    @property
    def command(self) -> str:
        """The command that runs this seed alone."""
        return f"python tests/storm/seed_runner.py {self.kind} {self.seed} {self.seed + 1}"


def run_seeds(kind: str, first: int, end: int, *, stop_at: float | None = None) -> Iterator[Outcome]:
    """Run seeds in child processes, a new one after each crash; no seed starts after `stop_at` (monotonic time)."""
    while first < end:
        command = [sys.executable, str(PROGRAM), kind, str(first), str(end), "--lines"]
        with (
            tempfile.TemporaryFile("w+") as errors,  # an unread pipe would block the child
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as child,
        ):
            begun: int | None = None
            assert child.stdout is not None
            try:
                for line in child.stdout:
                    report = json.loads(line)
                    if report["done"]:
                        begun, first = None, report["seed"] + 1
                        yield Outcome(kind, report["seed"], report["fault"], report["seconds"])
                        if stop_at is not None and time.monotonic() > stop_at:
                            return
                    else:
                        begun = report["seed"]
                child.wait()
            finally:
                if child.poll() is None:
                    child.terminate()
            errors.seek(0)
            trace = errors.read()
        if begun is None and child.returncode != 0:
            begun = first  # it crashed between two seeds, or did not start
        if begun is None:
            return
        yield Outcome(
            kind, begun, f"seed {begun} crashed the interpreter, {_format_exit(child.returncode)}\n{trace[-4000:]}"
        )
        first = begun + 1


def _format_exit(code: int) -> str:
    if code < 0:
        return f"signal {-code} ({signal.Signals(-code).name})"
    return f"exit code {code}"


def check_seed(kind: str, seed: int) -> str | None:
    """The fault of one seed, or None. Kinds are the keys of `seed_kinds.CHECKS`."""
    if kind == "crash":  # for the test of this module
        os.kill(os.getpid(), signal.SIGSEGV) if seed % 2 else None
        return None
    from storm.seed_kinds import find_check

    try:
        find_check(kind)(seed)
    except Exception as error:
        return f"{type(error).__name__}: {error}" if not isinstance(error, AssertionError) else str(error)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Run seeds of one kind in this process.")
    parser.add_argument("kind")
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--lines", action="store_true", help="write JSON lines, for the process that started this one")
    given = parser.parse_args()
    faulthandler.enable()
    failed = False
    for seed in range(given.first, given.end):
        if given.lines:
            print(json.dumps({"seed": seed, "done": False}), flush=True)
        begun = time.monotonic()
        fault = check_seed(given.kind, seed)
        failed = failed or fault is not None
        seconds = time.monotonic() - begun
        if given.lines:
            print(json.dumps({"seed": seed, "done": True, "fault": fault, "seconds": seconds}), flush=True)
        else:
            print(f"seed {seed}: {fault or 'ok'}", flush=True)
    return int(failed and not given.lines)
