"""Hot keys: cells that get much more than their share of a stream, and the key that makes it so, if one does.

Cells count their rows by inlet, and tell the most frequent key among a sample of them. The driver adds up, old rows
fading; with many rows a cut by hash is even, so a cell far above its share is due to few keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.expr.evaluate import evaluate
from penstock.expr.nodes import Column
from penstock.expr.sql import to_sql
from penstock.spark.layout import Layout, StreamInlet
from penstock.state.arrow import flatten_column

_SAMPLE_ROWS = 256
_DECAY = 0.9
"""What a micro-batch leaves of the weight of those before it."""
_MIN_ROWS = 1000.0
"""So many rows of a stream must have come lately."""
_HOT_FACTOR = 1.5
"""How many times its share makes a cell hot."""
_MAX_KEYS = 8

TopKey = tuple[str, str, float]
"""A key's expression, its value as text, and its part of the rows."""


def find_top_key(inlet: StreamInlet, table: pa.Table) -> TopKey | None:
    """The most frequent key by which the rows of an inlet are cut, in an even sample; None if they are not."""
    terms = [step.coordinate.term for step in inlet.route.dimensions if step.coordinate is not None]
    found: list[TopKey] = []
    chosen = np.unique(np.linspace(0, table.num_rows - 1, _SAMPLE_ROWS).astype(np.int64))
    rows = table.take(pa.array(chosen))

    def read(column: Column) -> pa.Array:
        return flatten_column(rows.column(column.name))

    for term in terms:
        if term is not None:
            counts = evaluate(term, read, chosen.size).value_counts()
            place = int(np.argmax(counts.field("counts").to_numpy()))
            part = counts.field("counts")[place].as_py() / chosen.size
            found.append((to_sql(term), str(counts.field("values")[place].as_py()), part))
    return max(found, key=lambda top: top[2], default=None)


@dataclass(frozen=True)
class HotCell:
    """A cell with too many rows of a stream: its part of them, how many times its share that is, and by which key."""

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
    """Rows of an inlet in a cell lately, and those of its most frequent keys."""

    rows: float = 0.0
    keys: dict[tuple[str, str], float] = field(default_factory=dict)


class KeyStats:
    """What the cells told, added up."""

    def __init__(self) -> None:
        self._counts: dict[int, dict[int, _RowCounts]] = {}

    def add(self, cells: Mapping[int, Mapping[str, Any]]) -> None:
        """After a micro-batch: by cell, `rows` and `tops` by inlet."""
        for warmths in self._counts.values():
            for warmth in warmths.values():
                warmth.rows *= _DECAY
                warmth.keys = {key: rows * _DECAY for key, rows in warmth.keys.items()}
        for cell, report in cells.items():
            for inlet, rows in report["rows"].items():
                warmth = self._counts.setdefault(int(inlet), {}).setdefault(cell, _RowCounts())
                warmth.rows += rows
                top = report["tops"].get(inlet)
                if top is not None:
                    term, value, part = top
                    warmth.keys[term, value] = warmth.keys.get((term, value), 0.0) + part * rows
                    first = sorted(warmth.keys.items(), key=lambda item: -item[1])[:_MAX_KEYS]
                    warmth.keys = dict(first)

    def find_hot_cells(self, layout: Layout) -> list[HotCell]:
        """The cells that are far above their share, the hottest first."""
        found = []
        for inlet in layout.inlets:
            cells = prod(step.share for step in inlet.route.dimensions)
            warmths = self._counts.get(inlet.number, {})
            total = sum(warmth.rows for warmth in warmths.values())
            if cells < 2 or total < _MIN_ROWS:
                continue
            for cell, warmth in warmths.items():
                times = warmth.rows * cells / total
                if times > _HOT_FACTOR:
                    key = _find_dominant_key(inlet.stream.name, warmth, warmth.rows - total / cells)
                    found.append(HotCell(inlet.stream.name, cell, warmth.rows / total, times, key))
        return sorted(found, key=lambda each: -each.times)


def _find_dominant_key(stream: str, warmth: _RowCounts, excess: float) -> str | None:
    """The key that makes most of what is too much."""
    (term, value), rows = max(warmth.keys.items(), key=lambda item: item[1], default=(("", ""), 0.0))
    return f"{stream}.{term} = {value}" if rows > excess / 2 else None
