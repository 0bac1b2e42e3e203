"""Rows per second of n-way joins by batch size and window size, compared with the compiled loop and DuckDB.

The windows are filled before timing starts. In the steady state that is measured, a tuple finds about one match in
every other stream. The batch size is the number of rows of one push over all streams.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.engine import Engine
from penstock.lab.core.reference import BatchDatabase, CompiledJoin
from penstock.lab.drawing import create_panels, encode_png
from penstock.lab.report import ReportRow
from penstock.lab.workloads import KeyedStreams, PushTables, build_steady, concat_pushes, count_rows
from penstock.progress import ProgressStep

WARM_PUSHES = 2
FILL_BATCH = 50_000


@dataclass(frozen=True)
class Grid:
    """The combinations that are measured. `pushes` has batch sizes, each with the number of pushes to time."""

    ways: tuple[int, ...] = (2, 3, 5)
    windows: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    pushes: tuple[tuple[int, int], ...] = ((50, 400), (500, 200), (5_000, 60), (50_000, 10))

    @property
    def cases(self) -> int:
        return len(self.ways) * len(self.windows)


def measure(grid: Grid, step: ProgressStep) -> Iterator[ReportRow]:
    for ways in grid.ways:
        for window in grid.windows:
            step(f"{ways}-way, windows of {window:,} rows")
            yield from _measure_case(build_steady(ways, window), grid)


def _measure_case(streams: KeyedStreams, grid: Grid) -> list[ReportRow]:
    """Fill one engine and one compiled loop, then time both with each batch size on the same pushes."""
    fill = list(_cut_pushes(streams, 0, FILL_BATCH, -(-streams.window * streams.ways // FILL_BATCH)))
    begin = _find_end(fill)
    timed: list[tuple[int, list[PushTables]]] = []
    for batch, count in grid.pushes:
        timed.append((batch, list(_cut_pushes(streams, begin, batch, count + WARM_PUSHES))))
        begin = _find_end(timed[-1][1])
    history = concat_pushes([*fill, *(push for _, pushes in timed for push in pushes)])

    engine, loop = streams.build_engine(), CompiledJoin(streams, max(table.num_rows for table in history.values()))
    for push in fill:
        engine.push(push)
        loop.push(push)
    rows = [_measure_batches(streams, batch, pushes, engine, loop) for batch, pushes in timed]
    database_rate = _measure_database_rate(streams, history)
    return [{**row, "duckdb_rows_s": database_rate} for row in rows]


def _measure_batches(
    streams: KeyedStreams, batch: int, pushes: Sequence[PushTables], engine: Engine, loop: CompiledJoin
) -> ReportRow:
    results, seconds = _time_pushes(pushes, lambda push: int(engine.push(push)["q"].num_rows))
    _, loop_seconds = _time_pushes(pushes, lambda push: len(loop.push(push)))
    rows = sum(count_rows(push.values()) for push in pushes[WARM_PUSHES:])
    return {
        "ways": streams.ways,
        "window_rows": streams.window,
        "batch_rows": batch,
        "results_per_row": round(results / rows, 3),
        "engine_rows_s": round(rows / seconds),
        "loop_rows_s": round(rows / loop_seconds),
    }


def _time_pushes(pushes: Sequence[PushTables], push: Callable[[PushTables], int]) -> tuple[int, float]:
    for part in pushes[:WARM_PUSHES]:
        push(part)
    begin = time.perf_counter()
    results = sum(push(part) for part in pushes[WARM_PUSHES:])
    return results, time.perf_counter() - begin


def _measure_database_rate(streams: KeyedStreams, history: PushTables) -> int:
    """Rows per second over the whole history, with the rows that fill the windows; best of two runs."""
    database = BatchDatabase(streams, history)
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        database.join()
        seconds.append(time.perf_counter() - begin)
    database.close()
    return round(count_rows(history.values()) / min(seconds))


def _cut_pushes(streams: KeyedStreams, begin: int, batch: int, count: int) -> Iterator[PushTables]:
    """`count` pushes from `begin` on, each with `batch` rows over all streams: one row per tick and stream."""
    length = max(1, batch // streams.ways)
    return (streams.generate_between(begin + number * length, begin + (number + 1) * length) for number in range(count))


def _find_end(pushes: Sequence[PushTables]) -> int:
    """The first tick after these pushes."""
    last: int = max(table.column("ts")[-1].as_py() for table in pushes[-1].values())
    return last + 1


def draw_throughput(rows: Sequence[ReportRow]) -> bytes:
    """Rows per second by batch size, a panel for each window size; the references are dashed and dotted."""
    windows = sorted({row["window_rows"] for row in rows})
    ways = sorted({row["ways"] for row in rows})
    drawing, panels = create_panels(len(windows), "Throughput by rows per push", (4.6, 4), sharey=True)
    for panel, window in zip(panels, windows, strict=True):
        for number, way in enumerate(ways):
            part = [row for row in rows if row["window_rows"] == window and row["ways"] == way]
            batches = [row["batch_rows"] for row in part]
            colour = f"C{number}"
            panel.plot(batches, [row["engine_rows_s"] for row in part], "o-", color=colour, label=f"{way}-way")
            panel.plot(batches, [row["loop_rows_s"] for row in part], "--", color=colour, linewidth=1, alpha=0.7)
            panel.axhline(part[0]["duckdb_rows_s"], color=colour, linestyle=":", linewidth=1)
        panel.set(title=f"windows of {window:,} rows", xlabel="rows per push", xscale="log", yscale="log")
        panel.grid(alpha=0.3, which="both")
    panels[0].set_ylabel("rows per second")
    panels[0].legend(title="dashed: compiled loop\ndotted: DuckDB, batch", fontsize="small", title_fontsize="small")
    return encode_png(drawing)
