"""Hot keys: cells that get much more than their share of a stream, and the key that causes it, if there is one.

Cells count their rows by inlet and report the most frequent key in a sample. The driver adds the counts up, with a
decay. With many rows a hash distributes evenly, so few keys cause a cell far above its share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.expr import Column, FunctionError, evaluate, to_sql
from penstock.spark.layout import Layout, StreamInlet
from penstock.state import flatten_column

_SAMPLE_ROWS = 256
_DECAY = 0.9
"""The factor by which a micro-batch reduces the weight of earlier ones."""
_MIN_ROWS = 1000.0
"""The fewest recent rows of a stream for which cells are compared."""
_HOT_FACTOR = 1.5
"""How many times its share makes a cell hot."""
_MAX_KEYS = 8

TopKey = tuple[str, str, float]
"""A key's expression, its value as text, and its part of the rows."""


def find_top_key(inlet: StreamInlet, table: pa.Table) -> TopKey | None:
    """The most frequent routing key in an even sample of the rows of an inlet; None if it has no routing key."""
    terms = [step.coordinate.term for step in inlet.route.dimensions if step.coordinate is not None]
    found: list[TopKey] = []
    chosen = np.unique(np.linspace(0, table.num_rows - 1, _SAMPLE_ROWS).astype(np.int64))
    rows = table.take(pa.array(chosen))

    def read(column: Column) -> pa.Array:
        return flatten_column(rows.column(column.name))

    for term in terms:
        if term is not None:
            try:
                counts = evaluate(term, read, chosen.size).value_counts()
            except FunctionError:  # it stops its query in the cell
                continue
            place = int(np.argmax(counts.field("counts").to_numpy()))
            part = counts.field("counts")[place].as_py() / chosen.size
            found.append((to_sql(term), str(counts.field("values")[place].as_py()), part))
    return max(found, key=lambda top: top[2], default=None)


@dataclass(frozen=True)
class HotCell:
    """A cell with too many rows of a stream: its part of the rows, the multiple of its share, and the key."""

    stream: str
    cell: int
    part: float
    times: float
    key: str | None

    def __str__(self) -> str:
        why = f", most of the excess is {self.key}" if self.key else ""
        return (
            f"cell {self.cell} gets {self.part:.0%} of the rows of {self.stream}, {self.times:.1f} times its share{why}"
        )


@dataclass
class _RowCounts:
    """Recent rows of an inlet in a cell, and those of its most frequent keys."""

    rows: float = 0.0
    keys: dict[tuple[str, str], float] = field(default_factory=dict)


class KeyStats:
    """The row counts that cells reported, added up."""

    def __init__(self) -> None:
        self._counts: dict[int, dict[int, _RowCounts]] = {}

    def add(self, cells: Mapping[int, Mapping[str, Any]]) -> None:
        """Add the reports of a micro-batch: by cell, `rows` and `tops` by inlet."""
        for by_cell in self._counts.values():
            for counts in by_cell.values():
                counts.rows *= _DECAY
                counts.keys = {key: rows * _DECAY for key, rows in counts.keys.items()}
        for cell, report in cells.items():
            for inlet, rows in report["rows"].items():
                counts = self._counts.setdefault(int(inlet), {}).setdefault(cell, _RowCounts())
                counts.rows += rows
                top = report["tops"].get(inlet)
                if top is not None:
                    term, value, part = top
                    counts.keys[term, value] = counts.keys.get((term, value), 0.0) + part * rows
                    first = sorted(counts.keys.items(), key=lambda item: -item[1])[:_MAX_KEYS]
                    counts.keys = dict(first)

    def find_hot_cells(self, layout: Layout) -> list[HotCell]:
        """The cells that are far above their share, the hottest first."""
        found = []
        for inlet in layout.inlets:
            cells = prod(step.share for step in inlet.route.dimensions)
            counts_by_cell = self._counts.get(inlet.number, {})
            total = sum(counts.rows for counts in counts_by_cell.values())
            if cells < 2 or total < _MIN_ROWS:
                continue
            for cell, counts in counts_by_cell.items():
                times = counts.rows * cells / total
                if times > _HOT_FACTOR:
                    key = _find_dominant_key(inlet.stream.name, counts, counts.rows - total / cells)
                    found.append(HotCell(inlet.stream.name, cell, counts.rows / total, times, key))
        return sorted(found, key=lambda each: -each.times)


def _find_dominant_key(stream: str, counts: _RowCounts, excess: float) -> str | None:
    """The key that causes most of the excess."""
    (term, value), rows = max(counts.keys.items(), key=lambda item: item[1], default=(("", ""), 0.0))
    return f"{stream}.{term} = {value}" if rows > excess / 2 else None
