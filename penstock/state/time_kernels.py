"""Compiled loops over times. Each has a Python twin in the tests."""

from __future__ import annotations

from typing import Any

from penstock.state.compiled import compile_kernel
from penstock.state.kernels import ALWAYS, FOREVER, I64


@compile_kernel
def scan_times(times: I64) -> Any:
    """The oldest and the newest of some times, and whether they ascend; (FOREVER, ALWAYS, True) for none."""
    oldest, newest, ascending = FOREVER, ALWAYS, True
    last = ALWAYS
    for i in range(times.size):
        time = times[i]
        ascending = ascending and time >= last
        last = time
        oldest, newest = min(oldest, time), max(newest, time)
    return oldest, newest, ascending


@compile_kernel
def add_lifetime(times: I64, length: int, out: I64) -> None:
    """Each time plus a length, at most FOREVER."""
    for i in range(times.size):
        time = times[i] + length
        out[i] = FOREVER if times[i] > FOREVER - length else time


@compile_kernel
def order_times(times: I64, oldest: int, starts: I64, order: I64) -> None:
    """The places of some times in ascending order, equal ones in their own; `starts` has a zero for each instant."""
    for i in range(times.size):
        starts[times[i] - oldest] += 1
    before = 0
    for at in range(starts.size):
        before, starts[at] = before + starts[at], before
    for i in range(times.size):
        at = times[i] - oldest
        order[starts[at]] = i
        starts[at] += 1
