"""The operator of final rows: EMIT ON WINDOW CLOSE over outer joins.

Law: a candidate is written once, when all of its tests are decided and it passes them; see `plan.final_rows`. That a
row has no partner is decided when the row expires, and beside a static table when it enters; that it has one when its
first partner comes. A candidate without tests is written when it enters. It reads changes of all inputs, whole
instants, and writes rows that enter.

State: of rows with a partner, when the first one came; of candidates, those that wait for a test. A candidate that
needs a row without partners is read when it expires, so that the others need no memory. Cost: O(n log n) to sort a
batch, then O(1) a change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.ops.change_operators import MergeOperator, ReadBatches
from penstock.ops.protocol import Batch, Changes, Inlet, Outlet, SavedState, as_changes, concat
from penstock.ops.row_groups import Mask, RowGroups
from penstock.plan import FinalRowsPart, PartnerTest
from penstock.state import ALWAYS, FOREVER, I32, I64, SHIPPED, Maintenance


class FinalRowsOperator(MergeOperator):
    """Writes candidates that are final. The first inlet has the candidates; then two for each test: pairs, rows."""

    cuts_backlog = False  # joins write the rows of a push at once

    def __init__(
        self, id_: str, inlets: Sequence[Inlet], outlet: Outlet, part: FinalRowsPart, maintenance: Maintenance = SHIPPED
    ) -> None:
        super().__init__(id_, inlets, outlet)
        self._names = tuple(name for name, _ in part.columns)
        self._tests = tuple(_TestState(test, maintenance) for test in part.tests)
        self._waiting: Batch | None = None

    def _merge(self, read: ReadBatches, until: int) -> Batch | None:  # noqa: ARG002
        self._free()
        candidates, *tested = [_join_batches(batches) for batches in read]
        for test, pairs, rows in zip(self._tests, tested[::2], tested[1::2], strict=True):
            test.note(pairs, rows)
        return self._select_final(self._take(candidates))

    def _describe_state(self) -> Mapping[str, object]:
        candidates = 0 if self._waiting is None else len(self._waiting)
        return {"candidates": candidates, "partners": [test.count_rows() for test in self._tests]}

    def dump(self) -> SavedState:
        """What came before the current rows of the inputs: first partners, and candidates that have expired."""
        tables = {f"test {place}": test.dump() for place, test in enumerate(self._tests)}
        if self._waiting is not None and len(self._waiting):
            columns = self._waiting.columns
            tables["candidates"] = pa.table([pa.array(self._waiting.times), *columns.values()], ["", *columns])
        return SavedState({}, tables)

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        for place, test in enumerate(self._tests):
            test.restore(saved.tables[f"test {place}"])
        if (rows := saved.tables.get("candidates")) is not None:
            since, *columns = (column.combine_chunks() for column in rows.columns)
            self._waiting = Batch(since.to_numpy(), dict(zip(rows.column_names[1:], columns, strict=True)))
        return None

    def _take(self, candidates: Changes | None) -> Batch | None:
        """The candidates that can be tested from now on, with those that wait. Their times: since when they are."""
        if candidates is None:
            return self._waiting
        expires = np.zeros(len(candidates), np.bool_)
        for test in self._tests:
            if test.is_decided_late:
                expires |= test.find_tested(candidates.columns)
        rows = candidates.take(np.flatnonzero((candidates.signs < 0) == expires))
        found = [Batch(rows.times, rows.columns), *([] if self._waiting is None else [self._waiting])]
        return concat(found[::-1])

    def _select_final(self, rows: Batch | None) -> Batch | None:
        """The candidates that have passed their tests; those that wait for one are kept."""
        if rows is None or not len(rows):
            return None
        passes, times = np.ones(len(rows), np.bool_), rows.times
        fails = np.zeros(len(rows), np.bool_)
        for test in self._tests:
            decided, passed, failed = test.decide(rows.columns)
            passes &= passed
            fails |= failed
            times = np.maximum(times, decided)
        waits = np.flatnonzero(~passes & ~fails)
        self._waiting = rows.take(waits) if waits.size else None
        final = np.flatnonzero(passes & ~fails)
        if not final.size:
            return None
        final = final[np.argsort(times[final], kind="stable")]
        indices = pa.array(final)
        return Batch(times[final], {name: rows.columns[name].take(indices) for name in self._names})

    def _free(self) -> None:
        columns: Mapping[str, pa.Array] = {} if self._waiting is None else self._waiting.columns
        for test in self._tests:
            test.free(columns)


def _join_batches(batches: Sequence[Batch]) -> Changes | None:
    """The changes, without those of rows that enter and leave at one instant."""
    if not batches:
        return None
    changes = as_changes(concat(batches))
    order = np.lexsort((changes.times, changes.numbers))
    numbers, times = changes.numbers[order], changes.times[order]
    same = np.flatnonzero((numbers[1:] == numbers[:-1]) & (times[1:] == times[:-1]))
    if not same.size:
        return changes
    stays = np.ones(len(changes), np.bool_)
    stays[order[same]] = stays[order[same + 1]] = False
    return changes.take(np.flatnonzero(stays))


class _TestState:
    """What is known about the rows of one test: when their first partner came, and when they were decided."""

    def __init__(self, test: PartnerTest, maintenance: Maintenance) -> None:
        self._test = test
        self._least_freed = maintenance.recycle_codes
        self._leaving = 0
        self._keys = tuple(name for name, _ in test.keys)
        self._groups = RowGroups([type_ for _, type_ in test.keys], maintenance)
        self._first: I64 = np.full(1, FOREVER)
        """By code, when the first partner came."""
        self._ended: I64 = np.full(1, FOREVER)
        """When no partner can come any more."""
        self._left: Mask = np.zeros(1, np.bool_)
        """Whether the row has left its side."""

    @property
    def is_decided_late(self) -> bool:
        """Whether a candidate passes only when the row has expired."""
        return not self._test.wants_partner and not self._test.is_static

    def count_rows(self) -> int:
        return int(np.count_nonzero(self._first != FOREVER))

    def note(self, pairs: Changes | None, rows: Changes | None) -> None:
        """Read changes of the pairs and of the rows that the test is about."""
        if pairs is not None:
            entered = np.flatnonzero(pairs.signs > 0)
            codes = self._encode(pairs.columns, entered)
            np.minimum.at(self._first, codes, pairs.times[entered])
        if rows is None:
            return
        left = np.flatnonzero(rows.signs < 0)
        codes = self._encode(rows.columns, left)
        self._left[codes] = True
        self._leaving += left.size
        if not self._test.is_static:
            self._ended[codes] = rows.times[left]
            return
        entered = np.flatnonzero(rows.signs > 0)
        codes = self._encode(rows.columns, entered)
        self._ended[codes] = rows.times[entered]

    def find_tested(self, columns: Mapping[str, pa.Array]) -> Mask:
        """The candidates that the test is about."""
        if self._test.other is None:
            return np.ones(len(columns[self._keys[0]]), np.bool_)
        mask: Mask = columns[self._test.other].is_null().to_numpy(zero_copy_only=False)
        return mask

    def decide(self, columns: Mapping[str, pa.Array]) -> tuple[I64, Mask, Mask]:
        """When candidates were decided, and whether they pass, or fail."""
        tested = self.find_tested(columns)
        at = np.flatnonzero(tested)
        codes = self._encode(columns, at)
        has = self._first[codes] < FOREVER
        times, passed, failed = np.full(tested.size, ALWAYS), ~tested, np.zeros(tested.size, np.bool_)
        if self._test.wants_partner:
            passed[at], failed[at] = has, ~has & self._left[codes]
            times[at] = np.where(has, self._first[codes], ALWAYS)
        else:
            passed[at], failed[at] = ~has & (self._ended[codes] < FOREVER), has
            times[at] = self._ended[codes]
        return times, passed, failed

    def free(self, waiting: Mapping[str, pa.Array]) -> None:
        """Forget rows that have left, if no candidate waits for them."""
        if self._leaving <= max(self._least_freed, self._groups.bound // 2):
            return
        self._leaving = 0
        used = np.zeros(self._first.size, np.bool_)
        if waiting:
            used[self._encode(waiting, np.flatnonzero(self.find_tested(waiting)))] = True
            used = np.append(used, np.zeros(self._first.size - used.size, np.bool_))
        used |= ~self._left & ((self._first < FOREVER) | (self._ended < FOREVER))
        self._first[~used] = self._ended[~used] = FOREVER
        self._left[~used] = False
        self._groups.recycle(used.astype(np.int64))

    def dump(self) -> pa.Table:
        codes = np.flatnonzero((self._first < FOREVER) | (self._ended < FOREVER)).astype(np.int32)
        states = [self._first[codes], self._ended[codes], self._left[codes]]
        return pa.table([*self._groups.decode(codes), *map(pa.array, states)], [*self._keys, "first", "ended", "left"])

    def restore(self, rows: pa.Table) -> None:
        columns = {name: rows[name].combine_chunks() for name in rows.column_names}
        codes = self._encode(columns, np.arange(rows.num_rows))
        self._first[codes], self._ended[codes] = columns["first"].to_numpy(), columns["ended"].to_numpy()
        self._left[codes] = columns["left"].to_numpy(zero_copy_only=False)

    def _encode(self, columns: Mapping[str, pa.Array], chosen: I64) -> I32:
        indices = pa.array(chosen)
        codes = self._groups.encode([columns[name].take(indices) for name in self._keys], chosen.size)
        missing = self._groups.bound - self._first.size
        if missing > 0:
            missing = max(missing, self._first.size)
            self._first = np.append(self._first, np.full(missing, FOREVER))
            self._ended = np.append(self._ended, np.full(missing, FOREVER))
            self._left = np.append(self._left, np.zeros(missing, np.bool_))
        return codes
