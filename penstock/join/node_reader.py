"""What rows of a join node hold in the leaves: codes in equality classes, and deaths as they are known now."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from penstock.join.join_rows import JoinRows
from penstock.join.row_kernels import KeyColumn
from penstock.join.tree_context import TreeContext
from penstock.plan import SubPlan
from penstock.state import I32


class NodeReader:
    """Reads the leaf rows that rows of one node are made of."""

    def __init__(self, plan: SubPlan, context: TreeContext) -> None:
        self.aliases = plan.aliases
        self._stores = [context.stores[alias] for alias in plan.aliases]
        self._class_places = {
            id_: next(place for place, store in enumerate(self._stores) if id_ in store.plan.classes)
            for id_ in plan.classes
        }
        self.late_ending = [place for place, store in enumerate(self._stores) if store.late_ends]
        """The places of leaves with a ROWS window: their rows get to know their deaths late."""

    def codes(self, class_id: int, rows: JoinRows) -> I32:
        place = self._class_places[class_id]
        return self._stores[place].rows.codes(class_id, rows.ids[place])

    def find_codes(self, class_id: int) -> KeyColumn:
        """Where the codes of the rows in a class are."""
        place = self._class_places[class_id]
        return place, self._stores[place].rows.code_ring(class_id)

    def refresh_expirations(self, rows: JoinRows) -> JoinRows:
        """The rows with the deaths in ROWS windows that are known by now."""
        return self._clip(rows, self.late_ending) if self.late_ending else rows

    def clip_expirations(self, rows: JoinRows) -> JoinRows:
        """The rows with the deaths of all their parts as they are known by now."""
        return self._clip(rows, range(len(self._stores)))

    def _clip(self, rows: JoinRows, places: Iterable[int]) -> JoinRows:
        known = [self._stores[place].rows.read_expirations(rows.ids[place]) for place in places]
        return JoinRows(rows.ids, rows.born, np.minimum.reduce([rows.dies, *known]))
