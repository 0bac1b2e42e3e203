"""The CPU time of processes that have ended."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.lab.meters import measure_batches

WORKS = "import time\nwhile time.process_time() < 1: pass\nprint(flush=True)\ntime.sleep(600)"
PARENT = """
import signal, subprocess, sys
if {ignores}: signal.signal(signal.SIGCHLD, signal.SIG_IGN)
worker = subprocess.Popen([sys.executable, "-c", {works!r}], stdout=subprocess.PIPE)
worker.stdout.readline()
print(flush=True)
sys.stdin.readline()
worker.kill()
worker.wait()
print(flush=True)
sys.stdin.readline()
"""
MEASURES = """
import json, subprocess, sys
from penstock.lab.meters import Meter
meter = Meter()
start = meter.read_usage().seconds
with subprocess.Popen([sys.executable, "-c", {parent!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
    parent.stdout.readline()
    working = meter.read_usage().seconds - start
    parent.stdin.write(b"\\n")
    parent.stdin.flush()
    parent.stdout.readline()
    ended = meter.read_usage().seconds - start
    parent.kill()
print(json.dumps([working, ended]))
"""


@pytest.mark.parametrize("ignores", [True, False])
def test_cpu_of_ended_worker_counted_once(ignores: bool) -> None:
    """The time of workers whose parent ignores their end is not lost, so that no cost is negative.

    Spark's daemon is such a parent. A separate process measures, because it has no other descendants, such as the Java
    process of an earlier test. The worker's second must count once, not twice and not never; the system rounds down.
    """
    program = MEASURES.format(parent=PARENT.format(ignores=ignores, works=WORKS))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    working, ended = json.loads(done.stdout)
    assert working > 0.9
    assert working - 0.02 <= ended < working + 0.9  # the system counts in ticks of 0.01 s


def test_batches_counted_after_spark_removed_old_files(tmp_path: Path) -> None:
    """Spark keeps the files of the last hundred micro-batches."""
    commits = tmp_path / "commits"
    commits.mkdir()
    for name in ("148", "149", ".149.crc"):
        (commits / name).touch()
    assert measure_batches([], [tmp_path], 150, 50).batches == 100


class FailedQuery:
    """A streaming query that has failed."""

    isActive = False  # noqa: N815 - Spark's name

    def exception(self) -> Exception:
        return ValueError("no such column")


def test_failed_query_ends_the_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries are asked for errors from time to time, so that a measurement does not wait for its time limit."""
    monkeypatch.setattr("penstock.lab.meters._CHECK_SECONDS", 0.0)
    with pytest.raises(ValueError, match="no such column"):
        measure_batches([FailedQuery()], [tmp_path], 1, 1)
