"""The first 10 rows of each group: processor time of a change by the number of rows of a group.

Every row that enters ends another one, so that groups keep their size. A change costs a walk in a tree, whose depth is
logarithmic in the rows of the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import process_time

import numpy as np
import pyarrow as pa

from penstock.engine import Engine
from penstock.lab.report import ReportRow

GROUPS = 4
_TOP = "SELECT k, x, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC) AS place"


def measure_tops(sizes: Sequence[int], changes: int) -> list[ReportRow]:
    """Microseconds of processor time for a row that enters and the one that it ends, for each size of groups."""
    return [
        {"rows of a group": size, "µs a row": round(min(_time_rows(size, changes) for _ in range(3)), 2)}
        for size in sizes
    ]


def _time_rows(size: int, changes: int) -> float:
    engine, random = Engine(), np.random.default_rng(7)
    engine.stream("s", {"ts": "bigint", "k": "bigint", "x": "bigint"}, time="ts")
    window = f"{_TOP} FROM s [RANGE {GROUPS * size}]"
    engine.query("top", f"SELECT k, x FROM ({window}) WHERE place <= 10 EMIT CHANGES")

    def draw(first: int, count: int) -> pa.Table:
        keys, values = random.integers(0, GROUPS, count), random.integers(0, 10**9, count)
        return pa.table({"ts": np.arange(first, first + count), "k": keys, "x": values})

    engine.push({"s": draw(0, GROUPS * size)})
    rows = draw(GROUPS * size, changes)
    started = process_time()
    engine.push({"s": rows})
    return (process_time() - started) / changes * 1e6
