"""The processor time of one push of few rows, and how it grows with streams, window rows and rows of the push.

Streams have one row per tick and as many keys as rows in a window, so that a probe finds about one match. Cases take
turns push by push.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import process_time

import numpy as np

from penstock.engine import Engine
from penstock.lab.report import ReportRow
from penstock.lab.workloads import KeyedStreams, PushTables, build_steady

IDLE_QUERY = "SELECT k, COUNT(*) AS n FROM idle [RANGE {size}] GROUP BY k"


@dataclass(frozen=True)
class LatencyGrid:
    """What is varied, one at a time, from three streams, windows of `window` rows and pushes of one row a stream."""

    ways: tuple[int, ...] = (2, 3, 4, 5)
    windows: tuple[int, ...] = (1_000, 10_000, 100_000)
    batches: tuple[int, ...] = (1, 10, 100, 1_000)
    window: int = 10_000
    pushes: int = 600
    idle_queries: int = 1_000


@dataclass
class _Case:
    """An engine with full windows, and the pushes that follow."""

    engine: Engine
    pushes: Iterator[PushTables]
    micros: list[float] = field(default_factory=list)
    """The processor time of each push."""

    def push(self) -> None:
        data = next(self.pushes)
        begun = process_time()
        self.engine.push(data)
        self.micros.append(1e6 * (process_time() - begun))


def measure(grid: LatencyGrid) -> dict[str, list[ReportRow]]:
    """The tables `streams`, `window rows`, `rows of a push` and `idle queries`, with p50 and p99 in microseconds."""
    measured = {
        "streams": _measure_cases(grid, [(ways, ways, grid.window, 1) for ways in grid.ways]),
        "window rows": _measure_cases(grid, [(window, 3, window, 1) for window in grid.windows]),
        "rows of a push": _measure_cases(grid, [(3 * rows, 3, grid.window, rows) for rows in grid.batches]),
        "idle queries": _measure_cases(
            grid, [(idle, 3, grid.window, 1) for idle in (0, grid.idle_queries)], _add_idle_queries
        ),
    }
    return {
        varied: [
            {varied: value, "p50 µs": float(np.median(case.micros)), "p99 µs": float(np.quantile(case.micros, 0.99))}
            for value, case in cases
        ]
        for varied, cases in measured.items()
    }


def fit_exponent(rows: Sequence[ReportRow], varied: str) -> float:
    """The slope of the cost over what is varied, both on log axes."""
    values, costs = ([float(row[name]) for row in rows] for name in (varied, "p50 µs"))
    return float(np.polyfit(np.log(values), np.log(costs), 1)[0])


def _add_idle_queries(engine: Engine, count: int) -> None:
    engine.stream("idle", {"ts": "bigint", "k": "bigint"}, time="ts")
    for number in range(count):
        engine.query(f"idle{number}", IDLE_QUERY.format(size=number + 1))


def _measure_cases(
    grid: LatencyGrid,
    specs: Sequence[tuple[int, int, int, int]],
    prepare: Callable[[Engine, int], None] | None = None,
) -> list[tuple[int, _Case]]:
    """Measure cases in turn. A spec is the value that is varied, the streams, window rows, and rows of a push."""
    cases, warm = [], max(10, grid.pushes // 10)
    for value, ways, window, rows in specs:
        streams = build_steady(ways, window)
        engine = streams.build_engine()
        if prepare is not None:
            prepare(engine, value)
        _fill(streams, engine, window)
        begin = 3 * window // 2
        following = [
            streams.generate_between(begin + turn * rows, begin + (turn + 1) * rows)
            for turn in range(warm + grid.pushes)
        ]
        cases.append((value, _Case(engine, iter(following))))
    for turn in range(warm + grid.pushes):
        for _, case in cases if turn % 2 else reversed(cases):
            case.push()
    for _, case in cases:
        del case.micros[:warm]
    return cases


def _fill(streams: KeyedStreams, engine: Engine, window: int) -> None:
    """Fill the windows one and a half times, so that rows expire."""
    for part in range(3):
        engine.push(streams.generate_between(part * window // 2, (part + 1) * window // 2))
