"""What a streaming query on local Spark costs: processor time and memory of its processes, time of each micro-batch.

Spark's work is spread over a Java process and Python workers; they are the descendants of this process, and the system
knows what each has used. A micro-batch has ended when its file stands in the checkpoint's `commits`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

_PROC = Path("/proc")
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PAUSE = 0.02
_PATIENCE = 900


class Query(Protocol):
    """A streaming query, Spark's or Penstock's."""

    @property
    def isActive(self) -> bool: ...  # noqa: N802 - Spark's name
    def exception(self) -> Exception | None: ...


@dataclass(frozen=True)
class Usage:
    """Processor seconds so far and resident bytes now, of this process and all that descend from it."""

    seconds: float
    resident: int


def usage() -> Usage:
    own = _descendants()
    return Usage(sum(seconds for seconds, _ in own.values()), sum(held for _, held in own.values()))


def kill_workers() -> None:
    """Kill the Python workers of this process's Spark, with all they hold in memory."""
    for pid in _descendants():
        try:
            if b"pyspark.daemon" in (_PROC / str(pid) / "cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def _descendants() -> dict[int, tuple[float, int]]:
    """Processor seconds and resident bytes of this process and all that descend from it."""
    parents: dict[int, list[int]] = {}
    own: dict[int, tuple[float, int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:  # it has ended meanwhile; its parent has taken over what it used
                continue
            fields = text[text.rindex(")") + 2 :].split()
            pid = int(entry.name)
            parents.setdefault(int(fields[1]), []).append(pid)
            own[pid] = sum(map(int, fields[11:15])) / _TICK, int(fields[21]) * _PAGE
    found, todo = {}, [os.getpid()]
    while todo:
        pid = todo.pop()
        todo += parents.get(pid, [])
        if pid in own:
            found[pid] = own[pid]
    return found


@dataclass(frozen=True)
class Metered:
    """The cost of the micro-batches after the first few, in which Spark and the workers warm up."""

    batches: int
    wall: float
    cpu: float
    peak_mib: float
    median_ms: float
    checkpoint_bytes: int


def metered(queries: Sequence[Query], checkpoints: Sequence[Path], batches: int, warm: int) -> Metered:
    """Wait until every checkpoint has so many micro-batches; those before `warm` are not counted."""
    marks: list[tuple[float, Usage]] = []
    peak = 0
    begun = time.perf_counter()
    while len(marks) < batches:
        done = min(_committed(place) for place in checkpoints)
        if done > len(marks):
            now = time.perf_counter(), usage()
            marks += [now] * (done - len(marks))
            peak = max(peak, now[1].resident)
        failed = [error for query in queries if (error := query.exception()) is not None]
        if failed:
            raise failed[0]
        if time.perf_counter() - begun > _PATIENCE:
            raise TimeoutError(f"only {len(marks)} of {batches} micro-batches in {_PATIENCE} s")
        time.sleep(_PAUSE)
    times = [mark[0] for mark in marks[warm - 1 : batches]]
    steps = sorted(after - before for before, after in pairwise(times))
    return Metered(
        batches - warm,
        times[-1] - times[0],
        marks[batches - 1][1].seconds - marks[warm - 1][1].seconds,
        peak / 2**20,
        1000 * steps[len(steps) // 2],
        sum(size(place) for place in checkpoints),
    )


def _committed(checkpoint: Path) -> int:
    folder = checkpoint / "commits"
    return sum(name.isdigit() for name in os.listdir(folder)) if folder.exists() else 0


def size(folder: Path) -> int:
    """The bytes of all files below a folder; one that is replaced meanwhile counts as none."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total
