"""What operators that compute an answer from batches have in common: how they read, write and restart.

Law: an operator with one inlet reads batches as they were written. A merge reads all inputs up to their lowest
frontier, whole instants if it is told so, and then passes this instant on. An operator whose state follows from the
current rows of its inputs restarts with them: they enter before all other rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.ops.protocol import (
    Batch,
    Changes,
    FrontierBypass,
    Inlet,
    Outlet,
    QueryOperator,
    SavedState,
    as_changes,
    concat,
)
from penstock.ops.row_groups import make_empty_changes
from penstock.ops.time_merge import compute_bound, find_cut, has_ready, pass_frontier
from penstock.state import ALWAYS

ReadBatches = Sequence[Sequence[Batch]]
"""What was read from each input."""


class ChangeOperator(QueryOperator, FrontierBypass):
    """Reads changes of one input and writes changes; its state follows from the current rows of the input."""

    def __init__(self, id_: str, inlet: Inlet, outlet: Outlet, columns: Mapping[str, pa.DataType]) -> None:
        self.id = id_
        self._inlet = inlet
        self._outlet = outlet
        self._types = dict(columns)
        self._emitted = 0

    def has_work(self) -> bool:
        return self._inlet.next_time() is not None

    def run(self, budget: int) -> int:
        batches = self._inlet.take_batches(budget)
        changed = self._apply_changes(as_changes(concat(batches))) if batches else None
        if changed is not None:
            self._emitted += len(changed)
            self._outlet.write(changed)
        pass_frontier(self._inlet, self._outlet)
        return sum([len(batch) for batch in batches])

    def metrics(self) -> dict[str, object]:
        return {"rows": self._count_rows(), "emitted": self._emitted}

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        if current is None:
            return None
        (rows,) = current
        changed = self._apply_changes(_enter_first(rows))
        return make_empty_changes(self._types) if changed is None else changed

    @abstractmethod
    def _apply_changes(self, changes: Changes) -> Changes | None:
        """The changes of the answer, given those of the input."""

    @abstractmethod
    def _count_rows(self) -> int:
        """How many rows the operator holds."""


class MergeOperator(QueryOperator):
    """Reads several inputs, merged by time. `whole`: it reads an instant when all of its rows have arrived."""

    cuts_backlog = True
    """Whether a turn reads about as many rows as its budget; else it reads all that it may."""

    def __init__(self, id_: str, inlets: Sequence[Inlet], outlet: Outlet, *, whole: bool = True) -> None:
        self.id = id_
        self.inlets = tuple(inlets)
        self._outlet = outlet
        self._whole_instants = whole
        self._done = int(ALWAYS)
        self._emitted = 0

    def has_work(self) -> bool:
        bound = compute_bound(self.inlets, whole=self._whole_instants)
        return bound > self._done or has_ready(self.inlets, bound)

    def run(self, budget: int) -> int:
        until = compute_bound(self.inlets, whole=self._whole_instants)
        if self.cuts_backlog:
            until = find_cut(self.inlets, until, budget)
        read = [inlet.read(until) for inlet in self.inlets]
        found = self._merge(read, until)
        if found is not None and len(found):
            self._emitted += len(found)
            self._outlet.write(found)
        self._done = until
        self._outlet.advance(until + 1 if self._whole_instants else until)
        return sum([len(batch) for batches in read for batch in batches])

    def metrics(self) -> dict[str, object]:
        waiting = [inlet.waiting() for inlet in self.inlets]
        return {**self._describe_state(), "waiting": waiting, "emitted": self._emitted}

    @abstractmethod
    def _merge(self, read: ReadBatches, until: int) -> Batch | None:
        """What leaves up to an instant, given what was read from each input."""

    def _describe_state(self) -> Mapping[str, object]:
        """What `metrics` says about the state."""
        return {}

    def _restart(self, current: Sequence[Changes] | None, columns: Mapping[str, pa.DataType]) -> Changes | None:
        """The current rows of the answer, whose state follows from the current rows of the inputs."""
        if current is None:
            return None
        found = self._merge([[_enter_first(each)] for each in current], int(ALWAYS) + 1)
        return make_empty_changes(columns) if found is None else as_changes(found)


def _enter_first(rows: Changes) -> Changes:
    """Rows that enter before all others."""
    return replace(rows, times=np.full(len(rows), ALWAYS + 1))
