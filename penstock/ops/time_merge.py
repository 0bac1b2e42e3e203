"""Merging inputs by time: up to which time an operator with several inlets may read, and how much it reads per turn.

Law: a row may be read when no inlet can bring an earlier one, that is up to the lowest frontier of the inlets (their
time-stamp memory registers). With `whole` an instant is read only when all of its rows have arrived. After each turn
the frontier of the output is the time up to which rows were read, so that readers need not wait for a whole backlog.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.ops.protocol import Inlet, Outlet
from penstock.state import ALWAYS, FOREVER

_FIRST_INSTANT = int(ALWAYS) + 1
LAST_INSTANT = int(FOREVER) - 1


def compute_bound(inlets: Sequence[Inlet], *, whole: bool) -> int:
    """The last instant that may be read."""
    frontier = min([inlet.frontier for inlet in inlets])
    if whole:
        frontier -= 1
    return frontier if _FIRST_INSTANT <= frontier <= LAST_INSTANT else clamp_time(frontier)


def clamp_time(instant: int) -> int:
    """The instant, clamped to the first and the last one."""
    return max(min(instant, LAST_INSTANT), _FIRST_INSTANT)


def has_ready(inlets: Sequence[Inlet], bound: int) -> bool:
    """Whether a row waits that may be read."""
    for inlet in inlets:
        time = inlet.next_time()
        if time is not None and time <= bound:
            return True
    return False


def find_cut(inlets: Sequence[Inlet], bound: int, budget: int) -> int:
    """An instant up to which about `budget` rows wait, `bound` if there are fewer."""
    if sum([inlet.waiting() for inlet in inlets]) <= budget:
        return bound
    times = np.concatenate([inlet.times(budget + 1) for inlet in inlets])
    times = times[times <= bound]
    if times.size <= budget:
        return bound
    return int(np.partition(times, budget - 1)[budget - 1])


def pass_frontier(inlet: Inlet, outlet: Outlet) -> None:
    """Write a frontier to the outlet of an operator that does not merge by time, after a turn."""
    time = inlet.next_time()
    outlet.advance(inlet.frontier if time is None else min(inlet.frontier, time))
