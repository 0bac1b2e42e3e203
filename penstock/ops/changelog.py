"""Changes in a snapshot: how a reader and a writer continue when some changes were written and not read.

Law: `undo(current, unread)` returns the rows that were current before the unread changes, and these changes with
numbers that fit those of `current`. Rows of equal values are interchangeable. Cost: Python per unread change, once a
restart.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa

from penstock.ops.protocol import Batch, Changes, StreamRows, concat
from penstock.ops.row_groups import RowGroups
from penstock.state import ALWAYS, flatten_table

_TIME, _SIGN, _NUMBER = "_time", "_sign", "_number"


def undo(current: Changes, unread: Changes) -> tuple[Changes, Changes]:
    """The rows before some unread changes, and the changes with new numbers."""
    groups = RowGroups([column.type for column in unread.columns.values()])
    positions: defaultdict[int, list[int]] = defaultdict(list)
    known = groups.encode(list(current.columns.values()), len(current))
    for row in np.argsort(current.times, kind="stable").tolist():  # of equal rows, the unread ones entered last
        positions[int(known[row])].append(row)
    codes = groups.encode(list(unread.columns.values()), len(unread)).tolist()
    signs, old = unread.signs.tolist(), unread.numbers.tolist()
    leaving = {number for number, sign in zip(old, signs, strict=True) if sign < 0}
    new: dict[int, int] = {}
    unused = -1  # the writer counts upwards from 0, so it never uses these
    entered: list[int] = []
    restored: list[int] = []
    for place, (code, sign, number) in enumerate(zip(codes, signs, old, strict=True)):
        if sign > 0 and number not in leaving:
            entered.append(positions[code].pop())
            new[number] = int(current.numbers[entered[-1]])
        elif number not in new:
            new[number] = unused
            unused -= 1
            if sign < 0:
                restored.append(place)
    renumbered = Changes(unread.times, unread.columns, unread.signs, np.array([new[n] for n in old], np.int64))
    unchanged = np.ones(len(current), np.bool_)
    unchanged[entered] = False
    returned = renumbered.take(np.array(restored, np.int64))
    count = len(restored)
    before = Changes(np.full(count, ALWAYS + 1), returned.columns, np.ones(count, np.int8), returned.numbers)
    return concat([before, current.take(np.flatnonzero(unchanged))]), renumbered


def apply_changes(current: Changes, changes: Changes) -> Changes:
    """The current rows after some changes."""
    left = changes.numbers[changes.signs < 0]
    entered = changes.take(np.flatnonzero((changes.signs > 0) & ~np.isin(changes.numbers, left)))
    return concat([current.take(np.flatnonzero(~np.isin(current.numbers, left))), entered])


def as_table(batch: Batch) -> pa.Table:
    """A batch of any type as a table."""
    columns = [pa.array(batch.times)]
    names = [_TIME]
    for name, values in ((_SIGN, batch.signs), (_NUMBER, batch.numbers)):
        if values is not None:
            columns.append(pa.array(values))
            names.append(name)
    return pa.table([*columns, *batch.columns.values()], names=[*names, *(f"column {n}" for n in batch.columns)])


def as_batch(table: pa.Table) -> Batch:
    """The batch of a table that `as_table` made."""
    columns = flatten_table(table)
    known = {name: columns.pop(name).to_numpy() for name in (_TIME, _SIGN, _NUMBER) if name in columns}
    named = {name.removeprefix("column "): column for name, column in columns.items()}
    if _NUMBER not in known:
        return Batch(known[_TIME], named)
    if _SIGN not in known:
        return StreamRows(known[_TIME], named, None, known[_NUMBER])
    return Changes(known[_TIME], named, known[_SIGN], known[_NUMBER])
