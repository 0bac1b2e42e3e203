"""A sorted index: rows by a number, for joins without equality.

Law: `probe` returns every added row whose number lies in the probe's range and whose lifetime overlaps the probe's.
Rows without a number (NULL) are in no range. State: sorted runs of geometric sizes. Runs are merged as rows are added,
which also removes dead rows. Cost: O(log n) runs, each searched by bisection.
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
        slack = _ROUNDING_MARGIN * (np.abs(at) + min(abs(low), 1e300) + min(abs(high), 1e300))
        lows = np.where(low == -np.inf, -np.inf, at + low - slack)
        highs = np.where(high == np.inf, np.inf, at + high + slack)
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


class SortedIndex:
    """Rows in runs sorted by number."""

    def __init__(self) -> None:
        self._runs: list[_SortedRun] = []

    def add(self, keys: F64, rows: I64, is_alive: Callable[[I64], NDArray[np.bool_]]) -> None:
        known = ~np.isnan(keys)
        run = _SortedRun(keys[known], rows[known])
        if not run.rows.size:
            return
        while self._runs and self._runs[-1].rows.size <= 2 * run.rows.size:
            older = self._runs.pop()
            alive = is_alive(older.rows)
            run = _SortedRun(
                np.concatenate([older.keys[alive], run.keys]), np.concatenate([older.rows[alive], run.rows])
            )
        order = np.argsort(run.keys, kind="stable")
        self._runs.append(_SortedRun(run.keys[order], run.rows[order]))

    def probe(
        self, lows: F64, highs: F64, born: I64, dies: I64, store: ProbeTarget, scratch: ProbeBuffer
    ) -> Iterator[PairBlock]:
        for run in self._runs:
            kernel = partial(_probe_run, run, lows, highs, born, dies, store)
            yield from scratch.iter_blocks(kernel, born.size)


def _probe_run(
    run: _SortedRun, lows: F64, highs: F64, born: I64, dies: I64, store: ProbeTarget, at: int, place: int, out: ProbeOut
) -> tuple[int, int, int]:
    pairs: tuple[int, int, int] = probe_sorted(
        lows, highs, born, dies, at, place, run.keys, run.rows,
        store.mask, store.base, store.limit, store.born, store.dies, store.fresh, *out,
    )  # fmt: skip
    return pairs
