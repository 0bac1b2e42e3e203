"""What the nodes of one join tree share: the leaves, the key codes, and the settings that hold for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.expr import Column
from penstock.join.join_rows import JoinRows
from penstock.join.leaf_store import LeafStore
from penstock.join.sharing.row_interest import RowInterest
from penstock.join.shedding.load_shedding import LoadShedding
from penstock.plan import SubPlan
from penstock.state import KeySpace, Maintenance, ProbeBuffer


@dataclass
class TreeContext:
    """Leaves and key codes, which may be those of another tree too, and the settings of this tree."""

    stores: Mapping[str, LeafStore]
    keys: KeySpace
    maintenance: Maintenance
    probe_buffer: ProbeBuffer
    first_rows: dict[str, int] = field(default_factory=dict)
    """By alias, the first leaf row that the tree reads, where it does not read all."""
    interest: RowInterest | None = None
    """Which queries need a row, while queries with different needs share the tree."""
    shedding: LoadShedding | None = None
    """Under a budget: which rows may probe. Gates are open then, and what was shed is not completed."""

    def first_row(self, alias: str) -> int:
        """The first row of a leaf that the tree reads."""
        base = self.stores[alias].rows.base
        return max(self.first_rows.get(alias, base), base) if self.first_rows else base

    def find_interest(self, part: SubPlan) -> RowInterest | None:
        """The interest of a node's rows; None where all of them have the same."""
        return self.interest if self.interest is not None and self.interest.covers(part) else None

    def make_reader(self, part: SubPlan, rows: JoinRows) -> Callable[[Column], pa.Array]:
        """Read payload columns of rows of a node."""
        places = {alias: place for place, alias in enumerate(part.aliases)}
        return lambda column: self.stores[column.alias].rows.take(column.name, rows.ids[places[column.alias]])
