"""Meters for CPU time and memory of processes, and for the micro-batches of streaming queries on local Spark.

Spark works in a Java process and in Python workers. They are descendants of this process, and /proc shows what each
has used. A micro-batch has ended when its file is in the `commits` folder of the checkpoint, at the time of that file.
What the measuring thread itself uses does not count.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

_PROC = Path("/proc")
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_POLL_SECONDS = 0.02
_CHECK_SECONDS = 1.0
"""How often memory is read, and queries are asked for errors, which takes some milliseconds of Java and of Python."""
_TIMEOUT_SECONDS = 900
_EXECUTOR_ID = b"--executor-id"


class MeteredQuery(Protocol):
    """A streaming query, Spark's or Penstock's."""

    @property
    def isActive(self) -> bool: ...  # noqa: N802 - Spark's name
    def exception(self) -> Exception | None: ...


@dataclass(frozen=True)
class Usage:
    """CPU seconds so far and resident bytes now, of this process and its descendants."""

    seconds: float
    resident_bytes: int


@dataclass(frozen=True)
class _Process:
    """A process as /proc shows it."""

    seconds: float
    """CPU seconds of the process and of the ended children it waited for."""
    resident_bytes: int
    parent: int
    waits_for_children: bool
    """Whether the system adds the time of ended children to this process."""


class Meter:
    """Sums the usage of this process and its descendants, including processes that end between two readings.

    When a process ends, the system adds its time to the parent, except if the parent ignores SIGCHLD, as the daemon of
    Spark's Python workers does, or has ended. In these cases the meter keeps the last reading of the ended process.
    """

    def __init__(self) -> None:
        self._seen: dict[int, _Process] = {}
        self._ended_seconds = 0.0

    def read_usage(self) -> Usage:
        """The usage so far, without that of the calling thread."""
        now = _list_descendants()
        for pid, before in self._seen.items():
            parent = now.get(before.parent)
            if pid not in now and (parent is None or not parent.waits_for_children):
                self._ended_seconds += before.seconds
        self._seen = now
        running = sum(process.seconds for process in now.values()) - time.thread_time()
        return Usage(self._ended_seconds + running, sum(process.resident_bytes for process in now.values()))


def read_status_kib(name: str) -> int | None:
    """A size of this process in KiB by its name in /proc/self/status, such as VmRSS; None on other systems."""
    status = _PROC / "self" / "status"
    if not status.exists():
        return None
    line = next(line for line in status.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1])


def create_temp_dir() -> TemporaryDirectory[str]:
    """A folder for one run. Spark's stores may still write there after a query has stopped; cleanup ignores that."""
    return TemporaryDirectory(prefix="penstock-lab-", ignore_cleanup_errors=True)


def kill_workers() -> None:
    """Kill the Python workers that run tasks of this process's Spark. Their state in memory is lost."""
    for pid in _list_descendants():
        try:
            command = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
            if {b"pyspark.daemon", b"pyspark.worker"} <= set(command):
                os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def kill_executor() -> int:
    """Kill the executor with the smallest id of this process's local cluster, which starts another; returns its id."""
    found: dict[int, int] = {}
    for pid in _list_descendants():
        try:
            command = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if _EXECUTOR_ID in command:
            found[int(command[command.index(_EXECUTOR_ID) + 1])] = pid
    number = min(found)
    os.kill(found[number], signal.SIGKILL)
    return number


def _list_descendants() -> dict[int, _Process]:
    """This process and its descendants."""
    children: dict[int, list[int]] = {}
    known: dict[int, _Process] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                text, status = (entry / "stat").read_text(), (entry / "status").read_text()
            except OSError:  # the process has ended
                continue
            fields = text[text.rindex(")") + 2 :].split()
            pid, parent = int(entry.name), int(fields[1])
            children.setdefault(parent, []).append(pid)
            seconds, resident = sum(map(int, fields[11:15])) / _TICK, int(fields[21]) * _PAGE
            known[pid] = _Process(seconds, resident, parent, not _ignores_children(status))
    found, todo = {}, [os.getpid()]
    while todo:
        pid = todo.pop()
        todo += children.get(pid, [])
        if pid in known:
            found[pid] = known[pid]
    return found


def _ignores_children(status: str) -> bool:
    ignored = next((line for line in status.splitlines() if line.startswith("SigIgn:")), "SigIgn: 0")
    return bool(int(ignored.split()[1], 16) >> (signal.SIGCHLD - 1) & 1)


@dataclass(frozen=True)
class BatchCosts:
    """The cost of the micro-batches after the warm-up."""

    batches: int
    wall: float
    cpu: float
    peak_mib: float
    median_ms: float
    checkpoint_bytes: int


def measure_batches(
    queries: Sequence[MeteredQuery], checkpoints: Sequence[Path], batches: int, warm_batches: int
) -> BatchCosts:
    """Wait until every checkpoint has `batches` micro-batches; the first `warm_batches` of them do not count."""
    times: list[float] = []
    meter = Meter()
    usage = warm = meter.read_usage()
    peak = 0
    begun = checked = time.perf_counter()
    while len(times) < batches:
        known, done = len(times), min(_count_commits(place) for place in checkpoints)
        times += [_find_commit_time(checkpoints, batch) for batch in range(known, done)]
        ends = known < warm_batches <= done or done >= batches
        if ends or time.perf_counter() - checked > _CHECK_SECONDS:
            checked, usage = time.perf_counter(), meter.read_usage()
            warm = usage if known < warm_batches else warm
            peak = max(peak, usage.resident_bytes)
            failed = [error for query in queries if (error := query.exception()) is not None]
            if failed:
                raise failed[0]
        if time.perf_counter() - begun > _TIMEOUT_SECONDS:
            raise TimeoutError(f"only {len(times)} of {batches} micro-batches in {_TIMEOUT_SECONDS} s")
        time.sleep(_POLL_SECONDS)
    times = times[warm_batches - 1 : batches]
    steps = sorted(after - before for before, after in pairwise(times))
    return BatchCosts(
        batches - warm_batches,
        times[-1] - times[0],
        usage.seconds - warm.seconds,
        peak / 2**20,
        1000 * steps[len(steps) // 2],
        sum(measure_folder_bytes(place) for place in checkpoints),
    )


def _count_commits(checkpoint: Path) -> int:
    """The number of micro-batches: Spark numbers them from 0, and removes the files of old ones."""
    folder = checkpoint / "commits"
    names = os.listdir(folder) if folder.exists() else ()
    return max((int(name) + 1 for name in names if name.isdigit()), default=0)


def _find_commit_time(checkpoints: Sequence[Path], batch: int) -> float:
    """When the last of some queries had committed a micro-batch, or the oldest one since whose file is still there."""
    return max(min(_list_commit_times(place, batch)) for place in checkpoints)


def _list_commit_times(checkpoint: Path, first: int) -> Iterator[float]:
    for path in (checkpoint / "commits").iterdir():
        if path.name.isdigit() and int(path.name) >= first:
            yield path.stat().st_mtime


def measure_folder_bytes(folder: Path) -> int:
    """The bytes of all files below a folder. A file that disappears while this runs counts as none."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total
