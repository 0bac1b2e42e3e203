"""The leaves of a join that hold static tables.

Law: a combination is joined with the rows that a table has at the instant at which it is born; rows that are in an
answer stay as they are until their tuples die. So when a table is replaced, the join works up to the instant of the
change with the old rows (`JoinInputs.limit`). Then the leaf gets the new rows, none of them fresh, and the states are
emptied: what they are missing is completed when it is needed, with the new rows.

State: the versions of each table that combinations can still get. Cost of a change: the rows of the table, and the
states that are completed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from penstock.expr import ROW_NUMBER
from penstock.join.sharing.shared_join import SharedJoin
from penstock.join.table_versions import TableVersions
from penstock.state import ALWAYS, FOREVER


class TableLeaves:
    """The tables of one join, and the time up to which their leaves have the right rows."""

    def __init__(self, shared: SharedJoin, versions: Mapping[str, TableVersions]) -> None:
        self._shared = shared
        self._versions = dict(versions)
        self._now = int(ALWAYS)
        for alias, each in self._versions.items():
            rows = each.find_rows(self._now)
            shared.tree.stores[alias].load(_read_columns(rows), rows.num_rows)

    def __bool__(self) -> bool:
        return bool(self._versions)

    def set_versions(self, versions: Mapping[str, TableVersions]) -> None:
        """A table was replaced. Its leaf keeps the rows of now."""
        self._versions |= versions

    def find_change(self) -> int:
        """The instant at which a table has other rows than now; FOREVER if there is none."""
        return min((each.find_change(self._now) for each in self._versions.values()), default=int(FOREVER))

    def move(self, time: int) -> None:
        """Give the leaves the rows of a later time. States of nodes are not changed."""
        for alias, each in self._versions.items():
            rows = each.find_rows(time)
            if rows is not each.find_rows(self._now):
                self._replace_rows(alias, rows)
        self._now = time

    def drop_former(self) -> None:
        """Forget rows that no combination gets any more."""
        self._versions = {alias: each.drop_former(self._now) for alias, each in self._versions.items()}

    def replay(self, until: int) -> Iterator[tuple[int, int]]:
        """Give the leaves the rows of each time up to `until`, in turn: spans of births with the same rows."""
        first = int(ALWAYS)
        while first <= until:
            self.move(first)
            end = self.find_change()
            yield first, end
            first = end

    def _replace_rows(self, alias: str, rows: pa.Table) -> None:
        shared = self._shared
        interest = shared.interest
        wanted = None if interest is None else interest.encode_groups(range(len(interest.filter_groups)))
        shared.tree.stores[alias].replace_table(_read_columns(rows), rows.num_rows, wanted)


def _read_columns(table: pa.Table) -> dict[str, pa.Array]:
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    return {**columns, ROW_NUMBER: pa.array(np.arange(table.num_rows))}
