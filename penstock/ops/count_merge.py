"""Merges that count: EXCEPT, INTERSECT and their ALL forms compare how often a row is in the answer of each input.

Law: rows with the same values (NULL is NULL, NaN is NaN) are one row. Its counts change once an instant.
State: how often each row is in the answer of each input. Cost: O(n log n) to sort a batch by row, then O(1) a change.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.ops.change_operators import MergeOperator, ReadBatches
from penstock.ops.protocol import I8, Changes, Inlet, Outlet, SavedState, as_changes, concat
from penstock.ops.row_groups import AnswerDiffer, ChangePoints, GroupCounts, RowGroups, find_change_points, grow
from penstock.state import I64, Maintenance


class CountMerge(MergeOperator):
    """A merge whose answer follows from the counts of its inputs. `columns` are those of the answer."""

    def __init__(
        self, id_: str, inlets: Sequence[Inlet], outlet: Outlet, columns: Mapping[str, pa.DataType],
        maintenance: Maintenance,
    ) -> None:  # fmt: skip
        super().__init__(id_, inlets, outlet)
        self._types = dict(columns)
        self._groups = RowGroups(list(columns.values()), maintenance)
        self._counts = tuple(GroupCounts() for _ in inlets)
        self._differ = AnswerDiffer()

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        return self._restart(current, self._types)

    def _merge(self, read: ReadBatches, until: int) -> Changes | None:  # noqa: ARG002
        parts = [self._name_columns(as_changes(batch)) for batches in read for batch in batches]
        if not any(len(part) for part in parts):
            return None
        changes = concat(parts)
        inputs = np.repeat(np.arange(len(read)), [sum([len(batch) for batch in batches]) for batches in read])
        order = np.argsort(changes.times, kind="stable")
        changes, inputs = changes.take(order), inputs[order]
        most = max(each.counts.size for each in self._counts)
        self._groups.recycle(np.maximum.reduce([grow(each.counts, most) for each in self._counts]))
        at = find_change_points(self._groups.encode(list(changes.columns.values()), len(changes)), changes.times)
        return self._find_changes(at, changes.signs[at.order], inputs[at.order])

    @abstractmethod
    def _find_changes(self, at: ChangePoints, signs: I8, inputs: I64) -> Changes | None:
        """The changes of the answer. `signs` and `inputs` say what happened in which input, in the order of `at`."""

    def _count(self, place: int, at: ChangePoints, signs: I8, inputs: I64) -> I64:
        """How often the rows are in the answer of an input, at every point."""
        return self._counts[place].apply(at, np.where(inputs == place, signs, np.int8(0)), self._groups.bound)

    def _describe_state(self) -> Mapping[str, object]:
        return {"rows": [int(np.count_nonzero(side.counts)) for side in self._counts]}

    def _name_columns(self, changes: Changes) -> Changes:
        return replace(changes, columns=dict(zip(self._types, changes.columns.values(), strict=True)))
