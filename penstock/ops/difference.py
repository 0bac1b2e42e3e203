"""The difference operator: A EXCEPT B EXCEPT C …, all inputs merged by time.

Law: a row is in the answer exactly while at least one row with the same values (NULL is NULL, NaN is NaN) is in the
answer of the first input and none in that of any other; once, however often the first has it. It reads changes of all
inputs and writes changes; it processes whole instants, up to the lowest frontier of its inputs.

The inputs that are subtracted can be tested in any order, and the order can change between two batches. The JISC paper
(section 4.7) chains binary operators: after a change of their order the states in between, such as A − D, must be
completed, and rows are forwarded past them to the first complete one. Here there is one state, which is complete.
State: how often each row is in the answer of each input. Cost: O(n log n) to sort a batch by row, then for a change one
lookup for each input up to the first that has the row. Later inputs that did not change in the batch cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.ops.count_merge import CountMerge
from penstock.ops.protocol import I8, Changes, Inlet, Outlet
from penstock.ops.row_groups import ChangePoints
from penstock.state import I32, I64, SHIPPED, Maintenance


class DifferenceOperator(CountMerge):
    """The first input EXCEPT all others, which are tested in `order`. `columns` are the output columns."""

    def __init__(
        self,
        id_: str,
        inlets: Sequence[Inlet],
        outlet: Outlet,
        columns: Mapping[str, pa.DataType],
        order: Sequence[int],
        maintenance: Maintenance = SHIPPED,
    ) -> None:
        super().__init__(id_, inlets, outlet, columns, maintenance)
        self.order = tuple(order)

    def _find_changes(self, at: ChangePoints, signs: I8, inputs: I64) -> Changes | None:
        present = self._count(0, at, signs, inputs) > 0
        for place in self.order:
            if (inputs == place).any():
                present &= self._count(place, at, signs, inputs) == 0
            else:
                tested = np.flatnonzero(present)
                present[tested] = self._counts[place].get_counts(at.codes[tested]) == 0
        return self._differ.compute_presence_changes(at, present, self._read_rows, self._groups.bound)

    def _read_rows(self, codes: I32) -> dict[str, pa.Array]:
        return dict(zip(self._types, self._groups.decode(codes), strict=True))
