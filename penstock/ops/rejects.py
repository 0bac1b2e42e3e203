"""Rows that a stream rejected, late ones and bad ones, for the user to read.

All are counted. Only the newest million rows are kept, so that a broken producer cannot fill the memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import pyarrow as pa

_MAX_ROWS = 1_000_000


class RejectedRows:
    """Rows with the reason of their rejection."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.count = 0
        self._parts: deque[pa.Table] = deque()

    def add(self, columns: Mapping[str, pa.Array], reason: str) -> None:
        table = pa.table([columns[name] for name in self.schema.names], schema=self.schema)
        self.extend(table.append_column("_reason", pa.array([reason] * table.num_rows, pa.string())))
        self.count += table.num_rows

    def extend(self, rows: pa.Table) -> None:
        self._parts.append(rows)
        while len(self._parts) > 1 and sum(part.num_rows for part in self._parts) > _MAX_ROWS:
            self._parts.popleft()

    def with_reasons(self) -> pa.Table:
        schema = self.schema.append(pa.field("_reason", pa.string()))
        return pa.concat_tables(self._parts) if self._parts else schema.empty_table()

    def rows(self) -> pa.Table:
        return self.with_reasons().drop_columns(["_reason"])
