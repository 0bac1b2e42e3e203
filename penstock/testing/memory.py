"""An in-memory source and an in-memory sink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa


class MemorySource:
    """A source that returns the rows added to it, in batches.

    >>> source = MemorySource(pa.schema([("ts", pa.int64()), ("x", pa.int64())]), batch=2)
    >>> source.add([{"ts": 1, "x": 10}, {"ts": 2, "x": 20}, {"ts": 3, "x": None}])
    >>> [table.num_rows for table in source]
    [2, 1]
    >>> source.pending
    0
    """

    def __init__(self, schema: pa.Schema, *, batch: int = 1024) -> None:
        if batch < 1:
            raise ValueError(f"a batch has at least one row, not {batch}")
        self.schema = schema
        self.batch = batch
        self._rows: pa.Table = schema.empty_table()

    def add(self, rows: pa.Table | Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> None:
        """Append rows of the source's schema: a table that exports Arrow, a dict of columns, or dicts."""
        if isinstance(rows, Mapping) or hasattr(rows, "__arrow_c_stream__"):
            table = pa.table(rows)
        else:
            table = pa.Table.from_pylist(list(rows), schema=self.schema)
        if table.schema.names != self.schema.names:
            raise ValueError(f"the rows have {table.schema.names}, the source has {self.schema.names}")
        self._rows = pa.concat_tables([self._rows, table.cast(self.schema)])

    @property
    def pending(self) -> int:
        """The number of rows that have not been read yet."""
        return int(self._rows.num_rows)

    def read(self) -> pa.Table:
        """The next batch; empty if no row is left."""
        taken = self._rows.slice(0, self.batch)
        self._rows = self._rows.slice(self.batch)
        return taken

    def __iter__(self) -> Iterator[pa.Table]:
        while self.pending:
            yield self.read()


class MemorySink:
    """A sink that keeps every table written to it.

    >>> sink = MemorySink()
    >>> sink.write(pa.table({"x": [1]}))
    >>> sink.write(pa.table({"x": [2, 3]}))
    >>> sink.table().to_pydict()
    {'x': [1, 2, 3]}
    """

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def write(self, table: pa.Table) -> None:
        self.tables.append(table)

    __call__ = write

    @property
    def num_rows(self) -> int:
        return sum(table.num_rows for table in self.tables)

    def table(self) -> pa.Table:
        """All rows so far, in one table."""
        if not self.tables:
            raise ValueError("nothing was written to this sink yet, so its schema is unknown")
        return pa.concat_tables(self.tables)

    def clear(self) -> None:
        self.tables.clear()
