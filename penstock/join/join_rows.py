"""Rows of a join node: one leaf row id per alias, and the interval in which the combination lives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.state import I32, I64, RowLines, allocate, concat_arrays, gather, order_times, scan_times


@dataclass
class JoinRows:
    """`ids[i]` are the row ids in the i-th alias of the node; payload stays in the leaves until it is read."""

    ids: NDArray[np.int64]
    born: I64
    dies: I64
    interest: I32 | None = None
    """The codes of interest of the rows, where known: `dies` is when a row leaves the longest window of its groups."""

    def __len__(self) -> int:
        return self.born.size

    def take(self, chosen: NDArray[np.bool_] | NDArray[np.integer[Any]]) -> JoinRows:
        """The rows at positions, or under a mask."""
        places: NDArray[Any] = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        interest = None if self.interest is None else gather(self.interest, places)
        return JoinRows(gather(self.ids, places), gather(self.born, places), gather(self.dies, places), interest)


def make_rows(lines: RowLines) -> JoinRows:
    """Rows from lines of ids, births and deaths."""
    return JoinRows(lines[:-2], lines[-2], lines[-1])


@lru_cache
def empty_rows(width: int) -> JoinRows:
    return JoinRows(np.empty((width, 0), np.int64), np.empty(0, np.int64), np.empty(0, np.int64))


def concat_rows(parts: Sequence[JoinRows], width: int) -> JoinRows:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return empty_rows(width)
    interest = [part.interest for part in parts if part.interest is not None]
    return JoinRows(
        concat_arrays([part.ids for part in parts]),
        concat_arrays([part.born for part in parts]),
        concat_arrays([part.dies for part in parts]),
        concat_arrays(interest) if len(interest) == len(parts) else None,
    )


def sort_rows(rows: JoinRows) -> JoinRows:
    """The rows in the order of their births, those of one instant in the order given."""
    oldest, newest, ascending = scan_times(rows.born)
    if ascending:
        return rows
    if newest - oldest >= len(rows):
        return rows.take(np.argsort(rows.born, kind="stable"))
    order = allocate(len(rows), np.int64)
    order_times(rows.born, oldest, np.zeros(newest - oldest + 1, np.int64), order)
    return rows.take(order)
