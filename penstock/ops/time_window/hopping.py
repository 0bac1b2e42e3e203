"""TUMBLE and HOP: every row of a stream in all windows that contain it.

Law: the windows are [b, b + size) for all multiples b of the slide, from 0, the epoch. A row of time t is in the answer
once for each window with b <= t < b + size, from t until b + size. A window is the same whichever rows it has.

The rows of the last `size` are current in the input, so all state follows from them. State: the rows of open windows;
they are freed at the end of their window. Cost: O(size / slide) a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from penstock.ops.protocol import Changes, SavedState, as_changes, concat
from penstock.ops.row_groups import make_empty_changes
from penstock.ops.time_window.rows import WindowedRowsOperator
from penstock.plan import EVENT_TIME
from penstock.state import ALWAYS, I64, to_ticks


class WindowOperator(WindowedRowsOperator):
    """TUMBLE(s, ts, size) and HOP(s, ts, slide, size)."""

    def run(self, budget: int) -> int:  # noqa: ARG002 - the changes of an instant stay together
        bound = self._find_bound()
        batches = [as_changes(batch) for batch in self._inlet.read(bound)]
        self._write(self._enter(concat(batches)) if batches else None, bound)
        return sum(len(batch) for batch in batches)

    def next_timer(self) -> int | None:
        due = self._current.next_due()
        return None if due is None else due + 1

    def dump(self) -> SavedState:
        return SavedState({"done": self._done})

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:
        """The windows that were open follow from the current rows of the stream."""
        self._done = saved.values["done"]
        if current is None:
            return None
        entered = self._enter(current[0])
        ended = self._current.pop_due(self._done)
        if entered is None:
            return make_empty_changes(self.types)
        if ended is not None:
            entered = entered.take(np.flatnonzero(~np.isin(entered.numbers, ended.numbers)))
        return replace(entered, times=np.full(len(entered), ALWAYS + 1))

    def _enter(self, changes: Changes) -> Changes | None:
        rows = changes.take(np.flatnonzero(changes.signs > 0))
        if not len(rows):
            return None
        times = to_ticks(rows.columns[EVENT_TIME])
        chosen, starts = self._assign_windows(times)
        ends = starts + self._part.window.size
        return self._add_rows(rows.take(chosen), times[chosen], starts, ends, ends)

    def _assign_windows(self, times: I64) -> tuple[I64, I64]:
        """The rows, each as often as it has windows, and the starts of these windows."""
        size, slide = self._part.window.size, self._part.window.slide
        last = times // slide * slide
        count = -(-size // slide)
        starts = (last[:, np.newaxis] - slide * np.arange(count)[::-1]).ravel()
        chosen = np.repeat(np.arange(times.size), count)
        inside = starts + size > times[chosen]
        return chosen[inside], starts[inside]
