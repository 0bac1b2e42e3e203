"""The order in which the rows of a leaf die, and how many dead rows stand between living ones.

Law: while `in_order` holds, no row dies before a row with a smaller id, so that dropping rows at the old end is enough.
Otherwise dead rows stay between living ones until the leaf is compacted.

Cost: living rows are counted again only after the leaf has grown by the number of dead rows it may keep.
"""

from __future__ import annotations

from penstock.join.sharing.kernels import is_ascending
from penstock.join.stored_rows import StoredRows
from penstock.state import ALWAYS, I64, Maintenance, ring_read


class ExpiryOrder:
    """The order of deaths in one leaf, and the number of its dead rows."""

    def __init__(self, maintenance: Maintenance, *, fifo_window: bool) -> None:
        """`fifo_window`: the window alone lets rows die in the order of their ids."""
        self.in_order = fifo_window
        self.max_dead_ratio = maintenance.dead_per_living
        """How many dead rows between living ones are tolerated for each living row."""
        self._fifo_window = fifo_window
        self._dead_rows = maintenance.dead_rows
        self._last = int(ALWAYS)
        self._counted_until = self._living_count = 0
        """Where the rows ended when the living ones were last counted, and how many those were."""

    def add(self, dies: I64) -> None:
        """Note the deaths of the newest rows where rows may die out of order."""
        if dies.size:
            self.in_order = self.in_order and is_ascending(dies, self._last)
            self._last = int(dies[-1])

    def restart(self, dies: I64) -> None:
        """Note the deaths of all rows."""
        self.in_order, self._last = self._fifo_window, int(ALWAYS)
        self.add(dies)

    def truncate(self, rows: StoredRows) -> None:
        """The newest rows were removed."""
        self._last = int(ring_read(rows.dies, rows.end - 1, rows.end)[0]) if len(rows) else int(ALWAYS)

    def is_count_due(self, rows: StoredRows) -> bool:
        """Whether there may be too many dead rows between living ones."""
        if self.in_order:
            return False
        return self._exceeds(rows.end - self._counted_until, min(self._living_count, len(rows)))

    def has_too_many_dead(self, rows: StoredRows, living: int) -> bool:
        """Whether a compaction is worth its cost, given the number of living rows."""
        self._counted_until, self._living_count = rows.end, living
        return self._exceeds(len(rows) - living, living)

    def mark_compacted(self, rows: StoredRows) -> None:
        self._counted_until = rows.end

    def _exceeds(self, dead: int, living: int) -> bool:
        return dead > self.max_dead_ratio * living + self._dead_rows
