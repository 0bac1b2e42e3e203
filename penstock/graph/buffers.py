"""Arcs: the rows that one operator wrote and others have not read yet.

Law: every reader gets every batch written after it was opened, once, in order. A batch is stored once for all readers
and freed when the last of them has read it (the paper's Fork: each reader is one of its dummy buffers).

The frontier of a buffer is the time-stamp memory (TSM) of its arcs. An ETS arc bypasses an operator that does not merge
by time: while no row waits there, a rise of the frontier is written straight to the outlet of that operator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from penstock.ops import Batch, Outlet, concat
from penstock.state import ALWAYS, I64


class Buffer:
    """The arcs out of one operator: a queue with one writer and any number of readers."""

    def __init__(self) -> None:
        self.frontier = int(ALWAYS)
        self.next_number = 0  # the number the next batch will have
        self.on_write: Callable[[], object] | None = None
        """Called when rows are written."""
        self.held_batches: deque[Batch] = deque()
        """The batches that some reader has not read to its end."""
        self._first_number = 0  # the number of the oldest batch still held
        self._readers: list[Reader] = []

    def write(self, batch: Batch) -> None:
        if self._readers and batch.times.size:
            self.append(batch)

    def advance(self, frontier: int) -> None:
        if frontier > self.frontier:
            self.frontier = frontier
            for reader in self._readers:
                reader.follow_frontier(frontier)

    def open(self) -> Reader:
        """A reader that sees what is written from now on."""
        reader = Reader(self, self.next_number)
        self._readers.append(reader)
        return reader

    def close(self, reader: Reader) -> None:
        self._readers.remove(reader)
        self.free_read()

    def unread(self) -> Batch | None:
        """The rows that some reader has not read, in order."""
        most = max((reader.waiting() for reader in self._readers), default=0)
        if not most:
            return None
        held = concat(list(self.held_batches))
        return held.slice(len(held) - most, len(held))

    def append(self, batch: Batch) -> None:
        """Hold rows, also unread rows of a snapshot: readers go back to them with `rewind`."""
        self.held_batches.append(batch)
        self.next_number += 1
        if self.on_write is not None:
            self.on_write()

    def __getitem__(self, number: int) -> Batch:
        return self.held_batches[number - self._first_number]

    def free_read(self) -> None:
        """Free the batches that all readers have read."""
        readers = self._readers
        if len(readers) == 1:
            passed = readers[0].batch
        else:
            passed = min([reader.batch for reader in readers]) if readers else self.next_number
        while self._first_number < passed:
            self.held_batches.popleft()
            self._first_number += 1


class Reader:
    """A position in a buffer: a batch, and how many rows of it were consumed."""

    def __init__(self, buffer: Buffer, batch: int) -> None:
        self.buffer = buffer
        self.batch = batch
        self.frontier = buffer.frontier
        self._row = 0
        self._bypass_outlet: Buffer | None = None

    def follow_frontier(self, frontier: int) -> None:
        """The frontier of the buffer has risen."""
        self.frontier = frontier
        if self._bypass_outlet is not None:
            self.forward_frontier()

    def bypass(self, outlet: Buffer) -> None:
        """Pass frontiers on to the outlet of the operator that reads here: it does not merge by time."""
        self._bypass_outlet = outlet
        self.forward_frontier()

    def cut_bypass(self) -> None:
        """Pass frontiers on no more."""
        self._bypass_outlet = None

    def forward_frontier(self) -> None:
        if self._bypass_outlet is not None and self.batch == self.buffer.next_number:
            self._bypass_outlet.advance(self.buffer.frontier)

    def rewind(self, rows: int) -> None:
        """Move to before the last `rows` rows that were written."""
        self.batch, self._row = self.buffer.next_number, 0
        while rows > 0:
            self.batch -= 1
            size = len(self.buffer[self.batch])
            self._row = max(0, size - rows)
            rows -= size

    def fork(self) -> Reader:
        """A second reader at the same position."""
        other = self.buffer.open()
        other.batch, other._row = self.batch, self._row
        return other

    def close(self) -> None:
        self.buffer.close(self)

    def waiting(self) -> int:
        buffer = self.buffer
        unread = buffer.next_number - self.batch
        if unread <= 1:
            return buffer.held_batches[-1].times.size - self._row if unread else 0
        return sum(len(buffer[number]) for number in range(self.batch, buffer.next_number)) - self._row

    def reads(self, outlet: Outlet) -> bool:
        """Whether this is the buffer that it reads."""
        return self.buffer is outlet

    def unread(self) -> Batch | None:
        """The rows that it has not read, in order; None if there are none."""
        held = [self.buffer[number] for number in range(self.batch, self.buffer.next_number)]
        if not held:
            return None
        rows = concat(held)
        return rows.slice(self._row, len(rows))

    def next_time(self) -> int | None:
        return None if self.batch == self.buffer.next_number else int(self.buffer[self.batch].times[self._row])

    def times(self, limit: int) -> I64:
        parts: list[I64] = []
        row = self._row
        for number in range(self.batch, self.buffer.next_number):
            parts.append(self.buffer[number].times[row : row + limit])
            limit -= parts[-1].size
            row = 0
            if limit <= 0:
                break
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def read(self, until: int) -> list[Batch]:
        buffer, number = self.buffer, self.batch
        if number + 1 == buffer.next_number and not self._row:  # most often one batch waits, and all of it is read
            batch = buffer.held_batches[-1]
            if batch.times[-1] <= until:
                self.batch += 1
                buffer.free_read()
                return [batch]
        return self._consume(lambda batch: _count_until(batch.times, until))

    def take(self, limit: int) -> list[Batch]:
        left = limit

        def stop(batch: Batch) -> int:
            nonlocal left
            end = min(self._row + left, len(batch))
            left -= end - self._row
            return end

        return self._consume(stop)

    def take_batches(self, limit: int) -> list[Batch]:
        left, last = limit, int(ALWAYS)

        def stop(batch: Batch) -> int:
            nonlocal left, last
            if left <= 0 and int(batch.times[self._row]) != last:
                return self._row
            left -= len(batch) - self._row
            last = int(batch.times[-1])
            return len(batch)

        return self._consume(stop)

    def _consume(self, stop_in: Callable[[Batch], int]) -> list[Batch]:
        """Read batch by batch, each up to the row that `stop_in` returns, until a batch is not read to its end."""
        out: list[Batch] = []
        if self.batch == self.buffer.next_number:
            return out
        while self.batch < self.buffer.next_number:
            batch = self.buffer[self.batch]
            size, stop = len(batch), stop_in(batch)
            if stop > self._row:
                out.append(batch if stop - self._row == size else batch.slice(self._row, stop))
                self._row = stop
            if self._row < size:
                break
            self.batch += 1
            self._row = 0
        self.buffer.free_read()
        return out


def _count_until(times: I64, until: int) -> int:
    """How many of some ascending times are at most `until`."""
    return times.size if times[-1] <= until else int(np.searchsorted(times, until, side="right"))
