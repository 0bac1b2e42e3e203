"""A cell: the embedded engine with a pipeline's queries over its inlets, fed with rows and frontiers from outside."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.engine import Engine
from penstock.spark.layout import LONGEST, Layout


class Cell:
    """The work of one cell.

    `take` and `replay` are given rows that are not late, in the order of their arrival: who calls them judges lateness
    against the frontier of the whole pipeline, so that it does not depend on the number of cells.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._engine = Engine(state=layout.spec.state)
        for name, table in layout.spec.tables.items():
            self._engine.table(name, table)
        for inlet in layout.inlets:
            self._engine.stream(inlet.name, inlet.schema, inlet.stream.time, LONGEST)
        for query in layout.spec.queries:
            self._engine.query(query.name, layout.rewritten(query.name), query.plan)

    def take(self, rows: Mapping[int, pa.Table], frontiers: Mapping[str, int]) -> dict[str, pa.Table]:
        """Rows by inlet, then the frontiers of the streams: what becomes certain by them, per query."""
        names = {inlet.number: inlet.name for inlet in self.layout.inlets}
        data = {names[number]: table for number, table in rows.items() if number in names}
        first = self._engine.push(data)
        for inlet in self.layout.inlets:
            if inlet.stream.name in frontiers:
                self._engine.advance(inlet.name, _as_time(frontiers[inlet.stream.name], inlet.stream.time_type))
        second = self._engine.push({})
        return {name: pa.concat_tables([first[name], second[name]]) for name in second}

    def metrics(self) -> dict[str, dict[str, object]]:
        return {query.name: self._engine.metrics(query.name) for query in self.layout.spec.queries}


def _as_time(tick: int, kind: pa.DataType) -> pa.Scalar:
    """A frontier as a value of a time column, which may be too narrow for it."""
    if pa.types.is_integer(kind):
        most = 2 ** (kind.bit_width - 1) - 1
        tick = max(-most - 1, min(tick, most))
    return pa.scalar(tick, pa.int64()).cast(kind)
