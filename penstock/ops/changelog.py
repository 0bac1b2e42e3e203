"""A changelog across a restart: what its reader had seen, when the writer is back with what it had written.

Law: `undo(living, unread)` gives the rows that lived before the unread changes, and these changes with numbers that fit
the numbers of `living`. Rows of equal values stand in for each other. Cost: Python per unread change,
once a restart.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa

from penstock.ops.protocol import Batch, Changes, StreamRows, concat
from penstock.ops.row_groups import RowGroups
from penstock.state.kernels import ALWAYS

_TIME, _SIGN, _NUMBER = "_time", "_sign", "_number"


def undo(living: Changes, unread: Changes) -> tuple[Changes, Changes]:
    groups = RowGroups([column.type for column in unread.columns.values()])
    standing: defaultdict[int, list[int]] = defaultdict(list)
    for row, code in enumerate(groups.encode(list(living.columns.values()), len(living)).tolist()):
        standing[code].append(row)
    codes = groups.encode(list(unread.columns.values()), len(unread)).tolist()
    signs, old = unread.signs.tolist(), unread.numbers.tolist()
    ended = {number for number, sign in zip(old, signs, strict=True) if sign < 0}
    new: dict[int, int] = {}
    fresh = -1  # the writer numbers upwards, so that these are never given again
    came: list[int] = []
    back: list[int] = []
    for place, (code, sign, number) in enumerate(zip(codes, signs, old, strict=True)):
        if sign > 0 and number not in ended:
            came.append(standing[code].pop())
            new[number] = int(living.numbers[came[-1]])
        elif number not in new:
            new[number] = fresh
            fresh -= 1
            if sign < 0:
                back.append(place)
    renumbered = Changes(unread.times, unread.columns, unread.signs, np.array([new[n] for n in old], np.int64))
    stayed = np.ones(len(living), np.bool_)
    stayed[came] = False
    again = renumbered.take(np.array(back, np.int64))
    lived = Changes(np.full(len(back), ALWAYS + 1), again.columns, np.ones(len(back), np.int8), again.numbers)
    return concat([lived, living.take(np.flatnonzero(stayed))]), renumbered


def as_table(batch: Batch) -> pa.Table:
    """A batch of any kind, to be stored."""
    columns = [pa.array(batch.times)]
    names = [_TIME]
    for name, values in ((_SIGN, batch.signs), (_NUMBER, batch.numbers)):
        if values is not None:
            columns.append(pa.array(values))
            names.append(name)
    return pa.table([*columns, *batch.columns.values()], names=[*names, *(f"column {n}" for n in batch.columns)])


def as_batch(table: pa.Table) -> Batch:
    columns = {name: pa.concat_arrays(table.column(name).chunks) for name in table.column_names}
    known = {name: columns.pop(name).to_numpy() for name in (_TIME, _SIGN, _NUMBER) if name in columns}
    named = {name.removeprefix("column "): column for name, column in columns.items()}
    if _NUMBER not in known:
        return Batch(known[_TIME], named)
    if _SIGN not in known:
        return StreamRows(known[_TIME], named, None, known[_NUMBER])
    return Changes(known[_TIME], named, known[_SIGN], known[_NUMBER])
