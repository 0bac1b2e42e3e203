"""Column gaps: columns that older rows of a leaf were stored without.

A query that joins later may read a column that the leaf did not keep before. Rows stored until then hold NULL in it, so
the query must not use them. Law: from `first row` on, every row holds its value.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import numpy as np

from penstock.join.stored_rows import StoredRows
from penstock.state import ALWAYS, Renumbering


class ColumnGaps:
    """For each column with a gap, the first row that has its value."""

    def __init__(self, rows: StoredRows) -> None:
        self._rows = rows
        self._first_rows: dict[str, int] = {}

    def add(self, name: str) -> None:
        """All rows stored so far lack a column."""
        self._first_rows[name] = self._rows.end

    def retain(self, names: Container[str]) -> None:
        """Drop the gaps of columns that are not kept any more."""
        self._first_rows = {name: row for name, row in self._first_rows.items() if name in names}

    def renumber(self, change: Renumbering) -> None:
        self._first_rows = {name: change.map_mark(row) for name, row in self._first_rows.items()}

    def find_end(self, names: Iterable[str]) -> int:
        """A time after which every stored row has its values in some columns."""
        rows = self._rows
        row = max((self._first_rows.get(name, rows.base) for name in names), default=rows.base)
        return int(rows.read_births(np.array([row - 1]))[0]) if row > rows.base else int(ALWAYS)

    def list_ends(self) -> dict[str, int]:
        """By column, the birth of the newest stored row that lacks it."""
        ends = ((name, self.find_end([name])) for name in self._first_rows)
        return {name: end for name, end in ends if end > ALWAYS}

    def restore(self, ends: Mapping[str, int]) -> None:
        """The gaps as `list_ends` gave them, for rows that are stored again."""
        self._first_rows = {name: self._rows.find_first_after(end) for name, end in ends.items()}
