"""What a measurement counts of processes that have ended."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.lab.meters import Meter

WORKS = "import time\nwhile time.process_time() < 0.4: pass\nprint(flush=True)\ntime.sleep(60)"
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


@pytest.mark.parametrize("ignores", [True, False])
def test_what_a_worker_used_is_counted_once_when_it_has_ended(ignores: bool) -> None:
    """Spark's daemon ignores the ends of its workers: what they used was lost, and a cost could be negative."""
    program = PARENT.format(ignores=ignores, works=WORKS)
    meter = Meter()
    start = meter.usage().seconds
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdout.readline()
        working = meter.usage().seconds - start
        parent.stdin.write("\n")
        parent.stdin.flush()
        parent.stdout.readline()
        ended = meter.usage().seconds - start
        parent.kill()
    assert working >= 0.4
    assert working <= ended < working + 0.3
