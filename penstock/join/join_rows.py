"""Rows of a join node: one leaf row id per alias, and the interval in which the combination lives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.state.alloc import joined, taken
from penstock.state.kernels import I32, I64


@dataclass(frozen=True)
class Rows:
    """`ids[i]` are the row ids in the i-th alias of the node; payload stays in the leaves until it is shown."""

    ids: NDArray[np.int64]
    born: I64
    dies: I64
    wanted: I32 | None = None
    """Who wants the row, where that is known: `dies` is when it leaves the longest of their windows then."""

    def __len__(self) -> int:
        return self.born.size

    def take(self, chosen: NDArray[np.bool_] | NDArray[np.integer[Any]]) -> Rows:
        """The rows at positions, or under a mask."""
        places: NDArray[Any] = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        wanted = None if self.wanted is None else taken(self.wanted, places)
        return Rows(taken(self.ids, places), taken(self.born, places), taken(self.dies, places), wanted)


def no_rows(width: int) -> Rows:
    return Rows(np.empty((width, 0), np.int64), np.empty(0, np.int64), np.empty(0, np.int64))


def concat(parts: Sequence[Rows], width: int) -> Rows:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return no_rows(width)
    wanted = [part.wanted for part in parts if part.wanted is not None]
    return Rows(
        joined([part.ids for part in parts]),
        joined([part.born for part in parts]),
        joined([part.dies for part in parts]),
        joined(wanted) if len(wanted) == len(parts) else None,
    )
