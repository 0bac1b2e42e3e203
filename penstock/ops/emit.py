"""From a changing answer to a stream: DSTREAM and RSTREAM (ISTREAM is what the join writes without ends).

Law: DSTREAM writes each row when it leaves the answer. RSTREAM writes, at every instant at which a row enters or
leaves, all rows of the answer at that instant. Both read changes (signs and numbers) in temporal order; RSTREAM needs whole
instants. State: RSTREAM keeps the answer. Cost: DSTREAM O(changes), RSTREAM O(output).
"""

from __future__ import annotations

import numpy as np

from penstock.ops.operator import Batch, Inlet, Outlet, concat
from penstock.state.kernels import FOREVER


def _plain(batch: Batch) -> Batch:
    """The rows without what tells changes apart."""
    return Batch(batch.times, batch.columns)


class DStreamOperator:
    """Rows that leave the answer."""

    def __init__(self, id_: str, inlet: Inlet, outlet: Outlet) -> None:
        self.id = id_
        self._inlet = inlet
        self._outlet = outlet
        self._emitted = 0

    def more(self) -> bool:
        return self._inlet.next_time() is not None

    def run(self, budget: int) -> int:  # noqa: ARG002 - a batch is filtered as it came
        done = 0
        for batch in self._inlet.read(int(FOREVER)):
            assert batch.signs is not None
            self._outlet.write(_plain(batch.take(np.flatnonzero(batch.signs < 0))))
            done += len(batch)
        self._outlet.advance(self._inlet.frontier)
        return done

    def metrics(self) -> dict[str, object]:
        return {}

    def revive(self, living: Batch) -> None:
        """Nothing to remember: the join reports the ends."""


class RStreamOperator:
    """The whole answer whenever it changes."""

    def __init__(self, id_: str, inlet: Inlet, outlet: Outlet) -> None:
        self.id = id_
        self._inlet = inlet
        self._outlet = outlet
        self._answer: Batch | None = None

    def more(self) -> bool:
        return self._inlet.next_time() is not None

    def run(self, budget: int) -> int:  # noqa: ARG002 - an answer is written as a whole
        done = 0
        for batch in self._inlet.read(int(FOREVER)):
            self._report(batch)
            done += len(batch)
        self._outlet.advance(self._inlet.frontier)
        return done

    def metrics(self) -> dict[str, object]:
        return {"answer_rows": 0 if self._answer is None else len(self._answer)}

    def revive(self, living: Batch) -> None:
        self._answer = living

    def _report(self, changes: Batch) -> None:
        assert changes.signs is not None
        assert changes.numbers is not None
        rows = changes.take(np.flatnonzero(changes.signs > 0))
        if self._answer is not None:
            rows = concat([self._answer, rows])
        leaving = np.flatnonzero(changes.signs < 0)
        instants = np.unique(changes.times)
        first = np.searchsorted(instants, rows.times)
        last = np.full(len(rows), instants.size)
        assert rows.numbers is not None
        places = np.searchsorted(rows.numbers, changes.numbers[leaving])
        last[places] = np.searchsorted(instants, changes.times[leaving])
        spans = last - first
        chosen = np.repeat(np.arange(len(rows)), spans)
        within = np.arange(chosen.size) - np.repeat(np.cumsum(spans) - spans, spans)
        at = first[chosen] + within
        order = np.argsort(at, kind="stable")
        answer = rows.take(chosen[order])
        self._outlet.write(Batch(instants[at[order]], answer.columns))
        staying = np.ones(len(rows), np.bool_)
        staying[places] = False
        self._answer = rows.take(np.flatnonzero(staying))
