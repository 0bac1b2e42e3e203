"""Arcs: what one operator wrote and others have not read yet.

Law: every reader gets every batch written after it was opened, once, in order. A batch is stored once for all readers
and freed when the last of them has passed it.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from penstock.ops.operator import Batch, concat
from penstock.state.kernels import ALWAYS, I64


class Buffer:
    """The arcs out of one operator: a queue with one writer and any number of readers."""

    def __init__(self) -> None:
        self.frontier = int(ALWAYS)
        self._batches: deque[Batch] = deque()
        self._first = 0  # the number of the oldest batch still held
        self._readers: list[Reader] = []

    def write(self, batch: Batch) -> None:
        if len(batch) and self._readers:
            self._batches.append(batch)

    def advance(self, frontier: int) -> None:
        self.frontier = max(self.frontier, frontier)

    def open(self) -> Reader:
        """A reader that sees what is written from now on."""
        reader = Reader(self, self._first + len(self._batches))
        self._readers.append(reader)
        return reader

    def close(self, reader: Reader) -> None:
        self._readers.remove(reader)
        self._free()

    def unread(self) -> Batch | None:
        """The tuples some reader has not read, in order."""
        most = max((reader.waiting() for reader in self._readers), default=0)
        if not most:
            return None
        rest = concat(list(self._batches))
        return rest.slice(len(rest) - most, len(rest))

    def restock(self, batch: Batch) -> None:
        """Hold tuples again that were unread in an earlier life; readers go back to them with `rewind`."""
        self._batches.append(batch)

    @property
    def end(self) -> int:
        return self._first + len(self._batches)

    def __getitem__(self, number: int) -> Batch:
        return self._batches[number - self._first]

    def _free(self) -> None:
        passed = min((reader.batch for reader in self._readers), default=self.end)
        while self._first < passed:
            self._batches.popleft()
            self._first += 1

    def passed(self) -> None:
        """A reader moved on."""
        self._free()


class Reader:
    """A reader's place in a buffer: the batch it is in and how many rows of it were consumed."""

    def __init__(self, buffer: Buffer, batch: int) -> None:
        self.buffer = buffer
        self.batch = batch
        self._row = 0

    @property
    def frontier(self) -> int:
        return self.buffer.frontier

    def rewind(self, rows: int) -> None:
        """Stand so that the last `rows` tuples written are not read."""
        self.batch, self._row = self.buffer.end, 0
        while rows > 0:
            self.batch -= 1
            size = len(self.buffer[self.batch])
            self._row = max(0, size - rows)
            rows -= size

    def waiting(self) -> int:
        return sum(len(self.buffer[number]) for number in range(self.batch, self.buffer.end)) - self._row

    def next_time(self) -> int | None:
        return None if self.batch == self.buffer.end else int(self.buffer[self.batch].times[self._row])

    def times(self, limit: int) -> I64:
        parts: list[I64] = []
        row = self._row
        for number in range(self.batch, self.buffer.end):
            parts.append(self.buffer[number].times[row : row + limit])
            limit -= parts[-1].size
            row = 0
            if limit <= 0:
                break
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def read(self, until: int) -> list[Batch]:
        out = []
        while self.batch < self.buffer.end:
            batch = self.buffer[self.batch]
            stop = int(np.searchsorted(batch.times, until, side="right"))
            if stop > self._row:
                out.append(batch if stop - self._row == len(batch) else batch.slice(self._row, stop))
            self._row = max(self._row, stop)
            if self._row < len(batch):
                break
            self.batch += 1
            self._row = 0
        self.buffer.passed()
        return out
