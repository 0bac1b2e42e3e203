"""Lateness: which rows of a stream are late, and how its frontier follows the rows.

Law: a row is late exactly if its time is before the frontier that its stream had at the start of the push or
micro-batch that brings the row. So the order of rows inside a push, and the number of cells, do not matter. The
frontier rises to the newest time less the declared lateness. A row that the engine stamps is never late.
"""

from __future__ import annotations

import numpy as np

from penstock.cql import Stream
from penstock.state import I64, Mask


def mark_late(times: I64, frontier: int) -> Mask:
    """Which rows are late, given the frontier before the push."""
    return times < frontier


def find_frontier(stream: Stream, newest: int) -> int:
    """The frontier of a stream after a row of the time `newest`."""
    return newest - stream.lateness


def stamp_times(clock: I64, frontier: int) -> I64:
    """The times of rows that are stamped by a clock. A clock that goes back is not followed."""
    return np.maximum(clock, frontier)
