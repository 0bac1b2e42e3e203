"""The source of an updating table: changes of rows that are found by a key.

Law: a change is written as any row of a stream, in the order (time, arrival), unless it is a bad row: a deletion of a
key that has no row then, or an operation other than '+' and '-'. Bad rows go to the dead letters.
State: besides that of a source, the keys that have a row. Cost: O(1) a change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.cql import OPERATION, Stream
from penstock.ops.protocol import Changes, Outlet, SavedState, StreamRows
from penstock.ops.row_groups import RowGroups, grow
from penstock.ops.source import SourceOperator
from penstock.state import I32, I64, Mask


class KeyedSource(SourceOperator):
    """Writes the changes of one updating table into the graph."""

    def __init__(self, id_: str, stream: Stream, outlet: Outlet) -> None:
        super().__init__(id_, stream, outlet)
        self._keys = RowGroups([stream.schema.field(name).type for name in stream.key])
        self._present: I64 = np.zeros(1, np.int64)  # 1 for keys that have a row

    def check_rows(self, rows: StreamRows) -> StreamRows:
        operations = rows.columns[OPERATION]
        known = _to_mask(pc.or_kleene(pc.is_null(operations), pc.is_in(operations, pa.array(["+", "-"]))))
        rows = self._reject(rows, known, f"{OPERATION} is neither '+' nor '-'")
        deletes = _to_mask(pc.fill_null(pc.equal(rows.columns[OPERATION], "-"), False))
        self._keys.recycle(self._present)
        codes = self._encode(rows.columns, len(rows))
        allowed = ~deletes | self._find_present(codes, deletes)
        # The last change of a key decides whether it has a row; a bad deletion leaves none, as before.
        last = np.zeros(self._present.size, np.int64)
        last[codes] = np.arange(codes.size)
        self._present[codes] = ~deletes[last[codes]]
        key = ", ".join(self.stream.key)
        return self._reject(rows, allowed, f"{OPERATION} is '-', but no row has this {key}")

    def _encode(self, columns: Mapping[str, pa.Array], rows: int) -> I32:
        codes = self._keys.encode([columns[name] for name in self.stream.key], rows)
        self._present = grow(self._present, self._keys.bound)
        return codes

    def _find_present(self, codes: I32, deletes: Mask) -> Mask:
        """Whether the key of a change has a row before it: by the change before it, else by the state."""
        order = np.argsort(codes, kind="stable")
        follows = np.zeros(codes.size, np.bool_)
        follows[1:] = codes[order][1:] == codes[order][:-1]
        before = np.zeros(codes.size, np.bool_)
        before[1:] = ~deletes[order][:-1]
        present = np.empty(codes.size, np.bool_)
        present[order] = np.where(follows, before, self._present[codes[order]] > 0)
        return present

    def _reject(self, rows: StreamRows, good: Mask, reason: str) -> StreamRows:
        if good.all():
            return rows
        self.dead_letters.add(rows.take(np.flatnonzero(~good)).columns, reason)
        return rows.take(np.flatnonzero(good))

    def dump(self) -> SavedState:
        saved = super().dump()
        codes = np.flatnonzero(self._present > 0).astype(np.int32)
        keys = pa.table(dict(zip(self.stream.key, self._keys.decode(codes), strict=True)))
        return SavedState(saved.values, {**saved.tables, "keys": keys})

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:
        keys = saved.tables["keys"].combine_chunks()
        columns = {name: keys.column(name).combine_chunks() for name in keys.column_names}
        codes = self._encode(columns, keys.num_rows)
        self._present[codes] = 1
        return super().restore(saved, current)


def _to_mask(flags: pa.Array) -> Mask:
    mask: Mask = flags.to_numpy(zero_copy_only=False)
    return mask
