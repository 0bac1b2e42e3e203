"""A sorted index: rows by a number, for joins without equality.

Law: `probe` returns every added row whose number lies in the probe's range and whose lifetime overlaps the probe's.
Rows without a number (NULL) are in no range. Rows may have a second number, the other end of an interval; then it must
also be at least the probe's. State: sorted runs of geometric sizes, and the maxima of second numbers by blocks of rows.
Runs are merged as rows are added, which also removes dead rows. Cost: O(log n) runs, each searched by bisection; blocks
of rows whose second numbers are all too small are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.state.kernels import I64, probe_sorted
from penstock.state.probe_blocks import PairBlock, ProbeBuffer, ProbeOut, ProbeTarget

F64 = NDArray[np.float64]
_ROUNDING_MARGIN = 2.0**-48
"""Numbers are converted to floats: bounds are widened by more than the largest rounding error."""


def to_floats(values: pa.Array) -> F64:
    """Values as floats in the same order; NULL becomes NaN, and NaN, the largest number, becomes infinity."""
    if pa.types.is_floating(values.type):
        floats = values.cast(pa.float64())
        out: F64 = floats.fill_null(0.0).to_numpy(zero_copy_only=False).copy()
        out[np.isnan(out)] = np.inf
    elif pa.types.is_decimal(values.type):
        out = values.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False).copy()
    else:
        out = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
    if values.null_count:
        out[values.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return out


def compute_ranges(at: F64, low: float, high: float) -> tuple[F64, F64]:
    """The ranges [at + low, at + high], slightly widened; an open end stays open. NaN has the empty range."""
    with np.errstate(invalid="ignore", over="ignore"):
        lows = np.where(low == -np.inf, -np.inf, at + low - _ROUNDING_MARGIN * (np.abs(at) + abs(low)))
        highs = np.where(high == np.inf, np.inf, at + high + _ROUNDING_MARGIN * (np.abs(at) + abs(high)))
    infinite = np.isinf(at)
    lows[infinite & (at < 0)] = -np.inf
    highs[infinite & (at > 0)] = np.inf
    unknown = np.isnan(at)
    lows[unknown], highs[unknown] = np.inf, -np.inf
    return np.nan_to_num(lows, nan=-np.inf, posinf=np.inf, neginf=-np.inf), np.nan_to_num(
        highs, nan=np.inf, posinf=np.inf, neginf=-np.inf
    )


@dataclass(frozen=True)
class _SortedRun:
    keys: F64
    rows: I64
    seconds: F64
    """The second numbers, then the maxima of every 16 of them, of every 256 and so on; empty if there are none."""
    levels: I64
    """Where the second numbers, their maxima, the maxima of those and so on begin."""


_NO_NUMBERS: F64 = np.empty(0, np.float64)
_BRANCHING = 16


def _build_maxima(seconds: F64) -> tuple[F64, I64]:
    """Second numbers with their maxima by blocks, and where each level begins."""
    levels, parts = [0], [seconds]
    while parts[-1].size > _BRANCHING:
        below = parts[-1]
        levels.append(levels[-1] + below.size)
        parts.append(np.maximum.reduceat(below, np.arange(0, below.size, _BRANCHING)))
    return np.concatenate(parts), np.array(levels)


class SortedIndex:
    """Rows in runs sorted by number."""

    def __init__(self) -> None:
        self._runs: list[_SortedRun] = []

    def add(
        self, keys: F64, rows: I64, is_alive: Callable[[I64], NDArray[np.bool_]], seconds: F64 = _NO_NUMBERS
    ) -> None:
        """Add rows by number. `seconds` are their second numbers: given for all rows of the index, or for none."""
        known = np.flatnonzero(~np.isnan(keys))
        if not known.size:
            return
        keys, rows = keys[known], rows[known]
        seconds = np.nan_to_num(seconds[known], nan=-np.inf, posinf=np.inf, neginf=-np.inf) if seconds.size else seconds
        order = np.argsort(keys)  # several times as fast as a stable order, unless the input consists of sorted runs
        keys, rows, seconds = keys[order], rows[order], seconds[order] if seconds.size else seconds
        while self._runs and self._runs[-1].rows.size <= 2 * rows.size:
            older = self._runs.pop()
            alive = np.flatnonzero(is_alive(older.rows))
            keys, rows = np.concatenate([older.keys[alive], keys]), np.concatenate([older.rows[alive], rows])
            if seconds.size:
                seconds = np.concatenate([older.seconds[alive], seconds])
        if keys.size > order.size:
            order = np.argsort(keys, kind="stable")
            keys, rows, seconds = keys[order], rows[order], seconds[order] if seconds.size else seconds
        maxima, levels = _build_maxima(seconds) if seconds.size else (seconds, np.zeros(1, np.int64))
        self._runs.append(_SortedRun(keys, rows, maxima, levels))

    def probe(
        self,
        lows: F64,
        highs: F64,
        born: I64,
        dies: I64,
        store: ProbeTarget,
        scratch: ProbeBuffer,
        least: F64 = _NO_NUMBERS,
    ) -> Iterator[PairBlock]:
        """`least`: the smallest second number of each probe's rows, if the rows have second numbers."""
        for run in self._runs:
            kernel = partial(_probe_run, run, lows, highs, least, born, dies, store)
            yield from scratch.iter_blocks(kernel, born.size)


def _probe_run(
    run: _SortedRun,
    lows: F64,
    highs: F64,
    least: F64,
    born: I64,
    dies: I64,
    store: ProbeTarget,
    at: int,
    place: int,
    out: ProbeOut,
) -> tuple[int, int, int]:
    pairs: tuple[int, int, int] = probe_sorted(
        lows, highs, born, dies, at, place, run.keys, run.rows, least, run.seconds, run.levels,
        store.mask, store.base, store.limit, store.born, store.dies, store.fresh, *out,
    )  # fmt: skip
    return pairs
