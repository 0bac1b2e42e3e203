"""Demand of a join without a key, by ranges: which numbers of the lazy child's rows can match a row of the driver.

A band or an inequality bounds the number of a lazy row by that of a driver row (`penstock/plan/ranges.py`). The gate
admits a row whose number lies in the range of some driver row. Rows of a part without the number are admitted if there
is any range (the ∅ case).

Law: demand may be too large, never too small: a range is slightly wider than the predicates, and the second number of
an interval is not tested. NULL is in no range.

State: the union of the ranges. Cost: a search by bisection for each row that is tested.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.join.demand.gate import Gate, NewDemand, RowSource
from penstock.join.join_rows import JoinRows
from penstock.join.range_probes import ProbeRanges, compute_probe_ranges, read_numbers
from penstock.join.tree_context import TreeContext
from penstock.plan import RangeCondition, StoredRange, SubPlan, orient_range
from penstock.state import Mask, NumberRanges


class RangeGate(Gate):
    """The demanded ranges of the rows of one lazy child."""

    def __init__(self, condition: RangeCondition, aliases: tuple[str, ...], context: TreeContext) -> None:
        """`aliases` are those of the lazy child."""
        super().__init__((), (), context.keys, context.maintenance)
        self._condition = condition
        self._aliases = aliases
        self._context = context
        self._by = StoredRange(orient_range(condition, aliases).column, None, mirrored=False)
        self._ranges = NumberRanges()

    def make_empty(self, below: Iterable[frozenset[int]]) -> Gate:  # noqa: ARG002
        return RangeGate(self._condition, self._aliases, self._context)

    def restricts(self, part: SubPlan) -> bool:
        return self._by.column.alias in part.aliases

    def _find_restricted(self, part: SubPlan, source: RowSource, rows: JoinRows) -> Mask:  # noqa: ARG002
        return self._ranges.has(read_numbers(self._by, self._context.make_reader(source.plan, rows))[0])

    def _add_demand(self, driver: RowSource, rows: JoinRows) -> NewDemand:
        read = self._context.make_reader(driver.plan, rows)
        ranges = compute_probe_ranges(self._condition, self._aliases, read)
        lows, highs = self._ranges.add(ranges.lows, ranges.highs)
        return NewDemand(lows.size, ranges=(self._by, ProbeRanges(lows, highs, lows[:0])))

    @property
    def empty(self) -> bool:
        return len(self) == 0

    def __len__(self) -> int:
        return len(self._ranges)

    def describe(self) -> str:
        return f"{len(self):,} ranges"

    @property
    def nbytes(self) -> int:
        return self._ranges.nbytes

    def clear(self) -> None:
        self._ranges.clear()
