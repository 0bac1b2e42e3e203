"""Rows that wait until their frames are complete: those of OVER with FOLLOWING, and of LEAD.

Law: a row whose frame ends n rows behind it is complete at the time of the n-th later row of its partition, and one
whose frame ends n units of time behind it at its time + n. When the stream has ended, all rows are complete; those
that lack later rows are so at AFTER_END.

State: the waiting rows, at most n of each partition, or those of the last n units of time. Cost: O(1) a row, amortised.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.ops.changelog import as_batch, as_table
from penstock.ops.frame.kernels import complete_rows, link_rows
from penstock.ops.frame.rows import FrameRows, Partitions
from penstock.ops.protocol import Batch, concat
from penstock.ops.time_merge import clamp_time
from penstock.state import I64, Maintenance, flatten_table, ring_take

_TIME = "time"


class RowsWaitingForRows:
    """Rows that wait for the `count`-th later row of their partition."""

    def __init__(
        self, keys: Sequence[str], types: Mapping[str, pa.DataType], count: int, maintenance: Maintenance
    ) -> None:
        self._keys, self._count = list(keys), count
        self._partitions = Partitions([types[name] for name in self._keys], maintenance)
        self._rows = FrameRows(types, maintenance, ages=False)

    def __len__(self) -> int:
        return len(self._rows)

    def exchange(self, times: I64, columns: Mapping[str, pa.Array]) -> tuple[I64, dict[str, pa.Array]]:
        """Add rows; the columns of those that they complete, and the positions of the rows that do."""
        rows, parts = self._rows, self._partitions
        codes = parts.encode([columns[name] for name in self._keys], times.size)
        order = np.argsort(codes, kind="stable")
        codes, indices = codes[order], pa.array(order)
        taken = {name: columns[name].take(indices) for name in rows.names}
        first = rows.append(parts, codes.astype(np.int64), times[order], np.zeros(times.size, np.int64), taken)
        completed, at = np.empty(times.size, np.int64), np.empty(times.size, np.int64)
        count = complete_rows(
            codes, first, self._count, parts.heads, parts.entries, parts.tails, parts.counts, rows.links, rows.alive,
            completed, at,
        )  # fmt: skip
        return order[at[:count]], {name: rows.take(name, completed[:count]) for name in rows.names}

    def end(self) -> tuple[int, dict[str, pa.Array]]:
        """The number and the columns of all rows, those of a partition in their order; none waits any more."""
        living = self._rows.list_living()
        columns = {name: self._rows.take(name, living) for name in self._rows.names}
        self._rows.alive[:] = 0
        self._rows.free_until(self._rows.end)
        self._partitions.empty()
        return living.size, columns

    def next_time(self) -> int | None:
        """The instant at which a row is complete, if that is known."""
        return None

    def dump(self) -> pa.Table:
        living = self._rows.list_living()
        columns = {f"column {name}": self._rows.take(name, living) for name in self._rows.names}
        return pa.table({_TIME: ring_take(self._rows.places, living), **columns})

    def restore(self, saved: pa.Table) -> None:
        rows, parts, columns = self._rows, self._partitions, flatten_table(saved)
        read = {name: columns[f"column {name}"] for name in rows.names}
        codes = parts.encode([read[name] for name in self._keys], saved.num_rows).astype(np.int64)
        times = columns[_TIME].to_numpy()
        first = rows.append(parts, codes, times, np.zeros(times.size, np.int64), read)
        link_rows(
            codes, np.zeros(times.size, np.uint8), first,
            parts.heads, parts.entries, parts.tails, parts.lasts, parts.counts, rows.links,
        )  # fmt: skip


class RowsWaitingForTime:
    """Rows that wait until time has passed theirs by `delay`."""

    def __init__(self, delay: int) -> None:
        self._delay = delay
        self._batches: deque[Batch] = deque()

    def __len__(self) -> int:
        return sum(map(len, self._batches))

    def add(self, times: I64, columns: Mapping[str, pa.Array]) -> None:
        if times.size:
            self._batches.append(Batch(times, columns))

    def pop_due(self, bound: int) -> Batch | None:
        """The rows that are complete at `bound`, None if there is none. Times are those of the rows."""
        due, limit = [], clamp_time(bound - self._delay)
        while self._batches and self._batches[0].times[0] <= limit:
            batch = self._batches.popleft()
            count = int(np.searchsorted(batch.times, limit, side="right"))
            due.append(batch.slice(0, count))
            if count < len(batch):
                self._batches.appendleft(batch.slice(count, len(batch)))
        return concat(due) if due else None

    def next_time(self) -> int | None:
        """The instant at which the next row is complete."""
        return clamp_time(int(self._batches[0].times[0]) + self._delay) if self._batches else None

    def dump(self) -> pa.Table | None:
        return as_table(concat(list(self._batches))) if self._batches else None

    def restore(self, saved: pa.Table) -> None:
        batch = as_batch(saved)
        self.add(batch.times, batch.columns)
