"""The outer join operator: the pairs of an inner join, and the rows of a preserved side while they have no partner.

Law: a pair is in the answer while it is in that of the inner join. A row of a preserved side is in the answer, with
NULLs for the other side, exactly while it is on its side and in no pair. A semi join has the rows of the left side that
are in some pair, each once; an anti join those that are in none; a mark join has all of them,
each with a boolean. It reads changes of all inputs and writes changes of
whole instants, up to the lowest frontier of its inputs.

Rows are told apart by numbers: arrival numbers of a stream, or the numbers of a relation's changes. Each pair carries
the numbers of its rows, and the columns of both, so that no row needs to be stored here.
State: for each row of a preserved side, whether it is there and in how many pairs. Cost: O(n log n) to sort a batch by
row, then O(1) a change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.ops.change_operators import MergeOperator, ReadBatches
from penstock.ops.protocol import I8, Batch, Changes, Inlet, Outlet, SavedState, as_changes, concat
from penstock.ops.row_groups import (
    AnswerDiffer,
    ChangePoints,
    GroupCounts,
    Mask,
    RowGroups,
    find_change_points,
    grow,
)
from penstock.plan import OuterJoinPart, PreservedSide
from penstock.state import I64, SHIPPED, Maintenance


class OuterJoinOperator(MergeOperator):
    """A left, full, semi, anti or mark join. The first inlet has the pairs, the others the sides that it reads."""

    def __init__(
        self, id_: str, inlets: Sequence[Inlet], outlet: Outlet, part: OuterJoinPart, maintenance: Maintenance = SHIPPED
    ) -> None:
        super().__init__(id_, inlets, outlet)
        self._types = dict(part.columns)
        self._shows_pairs = part.kind in ("left", "full")
        self._sides = tuple(_SideState(side, part, maintenance) for side in part.sides)

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        return self._restart(current, self._types)

    def _describe_state(self) -> Mapping[str, object]:
        return {"rows": [side.count_rows() for side in self._sides]}

    def _merge(self, read: ReadBatches, until: int) -> Changes | None:  # noqa: ARG002
        pairs, *kept_rows = [_join_batches(batches) for batches in read]
        spread = 1 + len(self._sides)
        found: list[Changes] = []
        if self._shows_pairs and pairs is not None and len(pairs):
            columns = {name: pairs.columns[name] for name in self._types}
            found.append(replace(pairs, columns=columns, numbers=pairs.numbers * spread))
        for place, (side, kept) in enumerate(zip(self._sides, [*kept_rows, None], strict=False)):
            changed = side.apply(kept, pairs)
            if changed is not None:
                found.append(replace(changed, numbers=changed.numbers * spread + 1 + place))
        if len(found) < 2:
            return found[0] if found else None
        merged = concat(found)
        return merged.take(np.argsort(merged.times, kind="stable"))


def _join_batches(batches: Sequence[Batch]) -> Changes | None:
    return as_changes(concat(batches)) if batches else None


@dataclass(frozen=True)
class _SideChanges:
    """Changes of one side: of its rows, then of its pairs."""

    kept: Changes | None
    pairs: Changes | None
    side: PreservedSide

    @property
    def numbers(self) -> I64:
        """The rows that the changes are about."""
        own = [] if self.kept is None else [self._read_kept_numbers(self.kept)]
        paired = [] if self.pairs is None else [self.pairs.columns[self.side.pair_number].to_numpy()]
        return np.concatenate([*own, *paired]) if own or paired else np.empty(0, np.int64)

    def _read_kept_numbers(self, kept: Changes) -> I64:
        name = self.side.row_number
        return kept.numbers if name is None else kept.columns[name].to_numpy()

    @property
    def times(self) -> I64:
        return np.concatenate([each.times for each in (self.kept, self.pairs) if each is not None])

    def spread_signs(self) -> tuple[I8, I8]:
        """The signs of the rows, 0 for pairs, and those of the pairs, 0 for rows."""
        kept, paired = (np.empty(0, np.int8) if each is None else each.signs for each in (self.kept, self.pairs))
        return np.concatenate([kept, np.zeros_like(paired)]), np.concatenate([np.zeros_like(kept), paired])

    def read(self, rows: I64, name: str) -> pa.Array:
        """A column of the side at some changes."""
        parts = [] if self.kept is None else [self.kept.columns[self.side.names[name]]]
        if self.pairs is not None:
            parts.append(self.pairs.columns[name])
        return (parts[0] if len(parts) == 1 else pa.concat_arrays(parts)).take(pa.array(rows))


class _SideState:
    """The rows of one side, and in how many pairs each is."""

    def __init__(self, side: PreservedSide, part: OuterJoinPart, maintenance: Maintenance) -> None:
        self._side = side
        self._types = dict(part.columns)
        self._wants_partner = part.kind == "semi"
        self._keeps_all = part.kind == "mark"
        self._mark = part.mark
        self._groups = RowGroups([pa.int64()], maintenance)
        self._rows = GroupCounts()
        self._partners = GroupCounts()
        self._differ = AnswerDiffer()

    def count_rows(self) -> int:
        counts = self._partners if self._wants_partner else self._rows
        return int(np.count_nonzero(counts.counts))

    def apply(self, kept: Changes | None, pairs: Changes | None) -> Changes | None:
        """The rows that enter and leave the answer without a partner, or of a semi join with one."""
        changes = _SideChanges(kept, pairs, self._side)
        numbers = changes.numbers
        if not numbers.size:
            return None
        times = changes.times
        order = np.argsort(times, kind="stable") if kept is not None and pairs is not None else np.arange(times.size)
        most = max(self._rows.counts.size, self._partners.counts.size)
        self._groups.recycle(grow(self._rows.counts, most) + grow(self._partners.counts, most))
        at = find_change_points(self._groups.encode([pa.array(numbers[order])], numbers.size), times[order])
        order, bound = order[at.order], self._groups.bound
        signs, partner_signs = changes.spread_signs()
        partners = self._partners.apply(at, partner_signs[order], bound)
        if self._wants_partner:
            present = partners > 0
        else:
            present = (self._rows.apply(at, signs[order], bound) > 0) & (self._keeps_all | (partners == 0))
        return self._compute_changes(at, present, partners > 0, changes, order)

    def _compute_changes(
        self, at: ChangePoints, present: Mask, paired: Mask, changes: _SideChanges, order: I64
    ) -> Changes | None:
        def read(points: I64) -> dict[str, pa.Array]:
            rows = order[np.where(at.first[points], at.ends[points], at.ends[points] - 1)]
            columns = {
                name: changes.read(rows, name) if name in self._side.names else pa.nulls(points.size, type_)
                for name, type_ in self._types.items()
            }
            return columns if self._mark is None else {**columns, self._mark: pa.array(paired[points])}

        marks = None if self._mark is None else paired
        return self._differ.compute_row_changes(at, present, read, self._groups.bound, marks)
