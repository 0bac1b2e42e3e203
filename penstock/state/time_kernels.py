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
