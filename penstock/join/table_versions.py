"""The rows of a static table, while it may be replaced.

Law: a combination is joined with the rows that a table has at the instant at which the combination is born.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.state import FOREVER


@dataclass(frozen=True)
class FormerRows:
    """Rows that a table had: those of combinations that are born before `until`."""

    until: int
    rows: pa.Table


@dataclass(frozen=True)
class TableVersions:
    """The rows of a table, and those that it had before, the oldest first."""

    rows: pa.Table
    former: tuple[FormerRows, ...] = ()

    def find_rows(self, time: int) -> pa.Table:
        """The rows for combinations that are born at a time."""
        return next((each.rows for each in self.former if time < each.until), self.rows)

    def find_change(self, time: int) -> int:
        """The first instant after a time from which on the table has other rows; FOREVER if there is none."""
        return next((each.until for each in self.former if time < each.until), int(FOREVER))

    def drop_former(self, time: int) -> TableVersions:
        """Without the rows that no combination gets that is born at a time or later."""
        return TableVersions(self.rows, tuple(each for each in self.former if time < each.until))
