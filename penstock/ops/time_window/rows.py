"""What the operators of time windows share: rows with their window, and the ends of these rows.

Law: a row enters with the columns of its window and leaves, with the same number, when it is due. State: the rows that
have entered and not left, in chunks sorted by their end (see `expirations`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.ops.expirations import Expirations
from penstock.ops.protocol import Changes, Inlet, Outlet, QueryOperator, merge_changes
from penstock.ops.time_merge import clamp_time
from penstock.plan import WindowPart
from penstock.state import ALWAYS, I64, SHIPPED, Maintenance, as_times


class WindowedRowsOperator(QueryOperator):
    """Reads changes of a stream's rows and writes changes of windowed rows, up to the last whole instant."""

    def __init__(
        self, id_: str, inlet: Inlet, outlet: Outlet, part: WindowPart, maintenance: Maintenance = SHIPPED
    ) -> None:
        self.id = id_
        self._inlet = inlet
        self._outlet = outlet
        self._part = part
        self._maintenance = maintenance
        self._current = Expirations([])
        self._next_number = 0
        self._done = int(ALWAYS)
        self._emitted = 0

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The columns that it writes."""
        part, time = self._part, self._part.window.time_type
        named = [(name, time) for name in (part.starts, part.ends) if name is not None]
        return dict([*part.columns, *named])

    def _find_bound(self) -> int:
        """The last instant of which all rows have arrived."""
        return clamp_time(self._inlet.frontier - 1)

    def has_work(self) -> bool:
        return self._find_bound() > self._done

    def metrics(self) -> dict[str, object]:
        return {"rows": len(self._current), "emitted": self._emitted}

    def _add_rows(self, rows: Changes, born: I64, starts: I64, ends: I64, dies: I64) -> Changes:
        """The entry of rows of the input, in temporal order, with their windows."""
        part = self._part
        columns = {name: rows.columns[name] for name, _ in part.columns}
        for name, instants in ((part.starts, starts), (part.ends, ends)):
            if name is not None:
                columns[name] = as_times(instants, part.window.time_type)
        numbers = self._next_number + np.arange(born.size)
        self._next_number += born.size
        self._current.add(dies, numbers, np.empty((0, born.size), np.int64), columns)
        return Changes(born, columns, np.ones(born.size, np.int8), numbers)

    def _write(self, born: Changes | None, bound: int) -> None:
        """Write rows that enter, and those that leave up to an instant."""
        changed = merge_changes(self._current.pop_due(bound), born)
        if changed is not None:
            self._emitted += len(changed)
            self._outlet.write(changed)
        self._done = bound
        self._outlet.advance(bound + 1)
