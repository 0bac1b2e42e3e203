"""An iterator over the results of a query, for a thread or a task beside the one that pushes.

Law: tables come out in the order in which they were put in, each one once, also if a task that waits is cancelled.

The buffer holds `capacity` tables. If it is full, the next push waits until a table has been read, so that a slow
reader slows the producer down and memory stays bounded. A push from the thread of the reader would wait forever; it is
refused instead (RESULTS_NOT_READ) and changes nothing. A flush does not wait.

The iteration ends when the query is dropped, the streams are flushed or the engine is closed. Tables that were put in
before are still read. If the query stops with an error, or the engine breaks, the iteration raises it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from threading import Condition, get_ident
from types import TracebackType

import pyarrow as pa

from penstock.errors import PenstockError, ResourceError

_READER_PATIENCE = 10.0
"""Seconds in which another thread must begin to read, if the thread that made the iterator pushes."""


class ResultIterator:
    """Tables of results as they become certain: `for rows in …` or `async for rows in …`."""

    def __init__(self, query: str, capacity: int) -> None:
        self.query = query
        self.ended = False
        """Whether no more tables will be put in."""
        self._capacity = capacity
        self._tables: deque[pa.Table] = deque()
        self._failure: PenstockError | None = None
        self._changed = Condition()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._reader: int | None = None
        """The thread that reads; None before the first read."""
        self._maker, self._made_in_loop = get_ident(), _has_running_loop()

    # ── the side of the engine ───────────────────────────────────────────────────────────────────────────────────

    def wait_for_room(self, seconds: float, waited: float) -> bool:
        """Wait at most some seconds until there is room for a table; returns whether there is.

        `waited`: the seconds that this push has waited before.
        """
        with self._changed:
            if not self._is_full():
                return True
            if self._would_wait_forever(waited):
                message = (
                    f"{len(self._tables)} result tables of {self.query} wait to be read by the thread that pushes; "
                    "read them first, push in another thread, as by asyncio.to_thread, or give results(capacity=...)"
                )
                raise ResourceError("RESULTS_NOT_READ", message, query=self.query, capacity=self._capacity)
            return self._changed.wait_for(lambda: not self._is_full(), seconds)

    def _would_wait_forever(self, waited: float) -> bool:
        """Whether the thread that pushes reads too. The thread that made the iterator may pass it to another one."""
        if self._reader is not None:
            return self._reader == get_ident()
        return self._maker == get_ident() and (self._made_in_loop or waited >= _READER_PATIENCE)

    def _is_full(self) -> bool:
        return not self.ended and len(self._tables) >= self._capacity

    def put(self, table: pa.Table) -> None:
        """Add a table. An empty one is left out."""
        with self._changed:
            if table.num_rows and not self.ended:
                self._tables.append(table)
                self._wake()

    def end(self, failure: PenstockError | None = None) -> None:
        """No more tables come; `failure`: the error that stopped the query or the engine."""
        with self._changed:
            if not self.ended:
                self.ended, self._failure = True, failure
                self._wake()

    def _wake(self) -> None:
        self._changed.notify_all()
        for loop, future in self._waiting:
            with suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(_set_done, future)
        self._waiting.clear()

    # ── the side of the reader ───────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Stop reading: tables that were not read are dropped, and pushes return the rows of the query again."""
        with self._changed:
            self._tables.clear()
            self._failure = None
        self.end()

    def __iter__(self) -> ResultIterator:
        return self

    def __next__(self) -> pa.Table:
        with self._changed:
            self._reader = get_ident()
            self._changed.wait_for(lambda: bool(self._tables) or self.ended)
            return self._take(StopIteration)

    def __aiter__(self) -> ResultIterator:
        return self

    async def __anext__(self) -> pa.Table:
        loop = asyncio.get_running_loop()
        while True:
            with self._changed:
                self._reader = get_ident()
                if self._tables or self.ended:
                    return self._take(StopAsyncIteration)
                future = loop.create_future()
                self._waiting.append((loop, future))
            try:
                await future
            finally:
                with self._changed:
                    self._waiting = [each for each in self._waiting if each[1] is not future]

    def _take(self, end: type[Exception]) -> pa.Table:
        """The next table, with the lock held; raises `end`, or the failure of the query, if there is none."""
        if self._tables:
            table = self._tables.popleft()
            self._changed.notify_all()
            return table
        if self._failure is not None:
            raise self._failure
        raise end

    def __enter__(self) -> ResultIterator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<results of {self.query}: {len(self._tables)} tables to read{', ended' if self.ended else ''}>"


def _has_running_loop() -> bool:
    """Whether this thread runs an event loop, so that waiting here would hold up its tasks."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
