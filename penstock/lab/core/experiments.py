"""Lab `core`, the embedded engine: throughput over a grid, W3 compared with DuckDB, peak memory, and a profile."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

from penstock.lab.core import latency, memory, throughput
from penstock.lab.core.extremes import measure_hot_key, measure_ranges
from penstock.lab.core.latency import LatencyGrid
from penstock.lab.core.limited import measure_limited
from penstock.lab.core.outer_joins import measure_outer_joins
from penstock.lab.core.reference import BatchDatabase, CompiledJoin
from penstock.lab.core.throughput import Grid
from penstock.lab.core.tops import measure_tops
from penstock.lab.report import Report, ReportRow, Section, check_at_most, check_equals
from penstock.lab.timing import TurnTimer
from penstock.lab.workloads import KeyedStreams, PushTables, build_w3, concat_pushes, count_rows
from penstock.progress import show_progress


@dataclass(frozen=True)
class CoreScale:
    """How much is measured. `--quick` has W3 at full size too; only tests use a smaller one."""

    grid: Grid = field(default_factory=Grid)
    rows: int = 300_000
    keys: int = 10_000
    seconds: int = 6000
    parts: int = 12
    rounds: int = 3
    latency: LatencyGrid = field(default_factory=LatencyGrid)
    limited: tuple[int, int] = (200_000, 1_000)
    """Rows of each window, and bytes of a row, of the run under a memory limit."""
    tops: tuple[int, ...] = (1_000, 10_000, 100_000)
    """The numbers of rows of a group whose first rows are kept, ascending."""
    range_rows: int = 20_000
    hot: tuple[int, int] = (200, 2)
    """Tuples of a push of each stream whose tuples have one key, and the number of pushes."""

    @property
    def w3(self) -> KeyedStreams:
        return build_w3(self.rows, self.keys, self.seconds)


FULL = CoreScale(rounds=5)
QUICK = CoreScale(
    Grid(windows=(10_000, 100_000), pushes=((50, 100), (500, 50), (5_000, 20), (50_000, 3))),
    latency=LatencyGrid(ways=(2, 3, 5), pushes=200),
    limited=(100_000, 1_000),
)
WINDOWS_OVER_LIMIT = 5
"""How many times the memory limit the windows of the run under a limit hold."""


def run(quick: bool = False, scale: CoreScale | None = None) -> Report:
    scale = scale or (QUICK if quick else FULL)
    report = Report("core", quick)
    with show_progress("lab core", scale.grid.cases + 8) as step:
        grid_rows = list(throughput.measure(scale.grid, step))
        report.sections.append(Section("throughput", "Rows per second, windows full", grid_rows))
        report.figures["core-throughput.png"] = throughput.draw_throughput(grid_rows)
        step("W3 against DuckDB")
        _compare_with_duckdb(scale, report)
        step("processor time of a push")
        _check_latency(scale, report)
        step("windows above the memory limit")
        _check_limited(scale, report)
        step("W3: memory at 1 and 4 times the history")
        _check_memory(scale, report)
        step("first 10 rows of each group")
        _check_tops(scale, report)
        step("left join and inner join")
        _check_outer_joins(scale, report)
        step("ranges and a hot key")
        _check_extremes(scale, report)
        step("W3: profile")
        report.sections.append(Section("profile", "W3: functions with the most time", _profile_engine(scale)))
    return report


def _compare_with_duckdb(scale: CoreScale, report: Report) -> None:
    """Seconds of whole runs over the same rows, by the clock and of processors; DuckDB uses two.

    The first round, which is not timed, warms up.
    """
    streams = scale.w3
    pushes = list(streams.generate_pushes(scale.parts))
    history = concat_pushes(pushes)
    database = BatchDatabase(streams, history)
    contenders: dict[str, Callable[[], int]] = {
        "Penstock, pushes": lambda: _run_engine(streams, pushes),
        "DuckDB, batch, 2 threads": lambda: int(database.join().num_rows),
        "compiled loop, pushes": lambda: _run_loop(streams, pushes, scale.rows),
    }
    timer, processors = (TurnTimer(list(contenders), scale.rounds, 1, clock) for clock in (perf_counter, process_time))
    counts = {name: run_once() for name, run_once in contenders.items()}
    for round_number in range(scale.rounds):
        for name in timer.order(round_number):
            timed = partial(timer.run, name, round_number, 0, contenders[name])
            processors.run(name, round_number, 0, timed)
    database.close()
    best = {name: timer.total(name) for name in contenders}
    used = {name: processors.total(name) for name in contenders}

    rows = count_rows(history.values())
    report.sections.append(
        Section(
            "w3",
            f"W3: {rows:,} rows in {scale.parts} pushes, best of {scale.rounds}",
            [
                {
                    "run": name,
                    "seconds": best[name],
                    "cpu_s": used[name],
                    "rows_s": round(rows / best[name]),
                    "results": counts[name],
                }
                for name in contenders
            ],
        )
    )
    engine, duckdb, loop = contenders
    report.checks += [
        check_equals("w3_count_matches_duckdb", counts[engine], counts[duckdb], "results"),
        check_at_most("w3_time_vs_duckdb", best[engine] / best[duckdb], 2, "times DuckDB's"),
        check_at_most("w3_processor_time_vs_duckdb", used[engine] / used[duckdb], 0.7, "times DuckDB's"),
        check_equals("w3_loop_count_matches_duckdb", counts[loop], counts[duckdb], "results"),
    ]


def _run_engine(streams: KeyedStreams, pushes: list[PushTables]) -> int:
    engine = streams.build_engine()
    results = sum(engine.push(push)["q"].num_rows for push in pushes)
    return int(results + engine.flush()["q"].num_rows)


def _run_loop(streams: KeyedStreams, pushes: list[PushTables], capacity: int) -> int:
    loop = CompiledJoin(streams, capacity)
    return sum(len(loop.push(push)) for push in pushes)


def _check_memory(scale: CoreScale, report: Report) -> None:
    """The memory that a run adds to the peak depends on windows and pushes, not on the length of the history.

    Most of the peak is the interpreter and its libraries. So a second check compares the growth with the bytes of the
    rows that an engine that kept the history would hold.
    """
    rows: list[ReportRow] = []
    for history in (1, 4):
        found = memory.measure_in_fresh_process(scale.rows, scale.keys, scale.seconds, scale.parts, history)
        added = found["peak_mib"] - found["before_mib"]
        rows.append({"history": f"{history}x", **found, "added_mib": added})
    report.sections.append(Section("memory", "W3: peak resident memory", rows))
    once, four_times = rows
    first_push = next(scale.w3.generate_pushes(scale.parts))
    further_mib = 3 * scale.parts * sum(table.nbytes for table in first_push.values()) / memory.KIBI**2
    growth = (four_times["added_mib"] - once["added_mib"]) / further_mib
    report.checks += [
        check_at_most("rss_4x_over_1x", four_times["peak_mib"] / once["peak_mib"], 1.2, "times the peak"),
        check_at_most("rss_growth_over_history", growth, 0.1, "of the bytes of 3 more histories"),
    ]


def _check_latency(scale: CoreScale, report: Report) -> None:
    """One row per stream is pushed at a time, except where the rows of a push are what varies."""
    tables = latency.measure(scale.latency)
    for varied, rows in tables.items():
        title = f"Processor time of a push by {varied}"
        report.sections.append(Section(f"latency_{varied.replace(' ', '_')}", title, rows))
    for row in tables["streams"]:
        if row["streams"] == 3:
            report.checks.append(check_at_most("push of 3 tuples, 3-way join, p50", row["p50 µs"], 150, "µs"))
    none, many = tables["idle queries"]
    more = (many["p50 µs"] - none["p50 µs"]) / none["p50 µs"]
    report.checks.append(check_at_most(f"{many['idle queries']:,} idle queries", more, 0.1, "of a push more"))
    limits = {"streams": 1.0, "window rows": 0.3, "rows of a push": 1.0}
    for varied, most in limits.items():
        slope = latency.fit_exponent(tables[varied], varied)
        report.checks.append(check_at_most(f"exponent of a push over {varied}", slope, most, "on log axes"))


def _check_limited(scale: CoreScale, report: Report) -> None:
    """The same results as in memory and in DuckDB, memory near the limit, and the cost of reading rows from disk."""
    rows = measure_limited(*scale.limited, WINDOWS_OVER_LIMIT)
    title = f"Windows of {WINDOWS_OVER_LIMIT} times the memory limit, and the same run in memory"
    report.sections.append(Section("limited", title, rows))
    expected, free, limited = rows
    same = int(all(expected[name] == free[name] == limited[name] for name in ("results", "checksum")))
    peak = limited["added_peak_mib"] / limited["limit_mib"]
    slower = limited["seconds"] / free["seconds"]
    report.checks += [
        check_equals("results under a memory limit as in memory and in DuckDB", same, 1, "runs"),
        check_at_most("peak memory under a limit", peak, 1.2, "of the limit"),
        check_at_most("processor time under a memory limit", slower, 5, "times the run in memory"),
        check_equals("files left by the engine", limited["files_left"], 0, "files"),
    ]


def _check_tops(scale: CoreScale, report: Report) -> None:
    """The cost of a change grows as the depth of a tree does: by the logarithm of the rows, not by the rows."""
    rows = measure_tops(scale.tops, min(20_000, scale.tops[0] * 4))
    report.sections.append(Section("tops", "First 10 rows of each group: processor time of a change", rows))
    costs = [float(row["µs a row"]) for row in rows]
    growth = round(costs[-1] / costs[0], 2)
    name = f"cost of a change of the first 10 of {scale.tops[-1]:,} rows, of {scale.tops[0]:,} rows"
    report.checks.append(check_at_most(name, growth, 5, "times"))


def _check_extremes(scale: CoreScale, report: Report) -> None:
    """Joins on ranges cost what they find, and a hot key needs little memory if its results are delivered."""
    rows = measure_ranges(scale.range_rows)
    report.sections.append(Section("ranges", f"Joins of {scale.range_rows:,} intervals and as many numbers", rows))
    for row in rows:
        missing = abs(int(row["results"]) - int(row["duckdb_results"]))
        report.checks += [
            check_at_most(f"join on {row['join on']}", float(row["cpu_s"]), 0.3, "s"),
            check_equals(f"join on {row['join on']}: other than DuckDB's", missing, 0, "results"),
        ]
    hot = measure_hot_key(*scale.hot)
    report.sections.append(Section("hot_key", "One key in three streams, results delivered during the push", [hot]))
    refused = int(hot["with a limit"] == "MEMORY_LIMIT")
    report.checks += [
        check_equals("hot key: missing results", int(hot["expected"]) - int(hot["results"]), 0, "results"),
        check_at_most("hot key: added peak memory", float(hot["added_mib"]), 512, "MiB"),
        check_equals("hot key: refused under a limit of 16 MB", refused, 1, "pushes"),
    ]


def _check_outer_joins(scale: CoreScale, report: Report) -> None:
    """Few rows without a partner, about half of them, and most of them."""
    keys = (scale.keys // 10, scale.keys, scale.keys * 10)
    rows = measure_outer_joins(scale.rows // 2, keys, scale.rounds)
    report.sections.append(Section("outer", "LEFT JOIN and the inner join in it: processor time", rows))
    for emits, most in (("ISTREAM", 2), ("EMIT CHANGES", 2), ("EMIT ON WINDOW CLOSE", 3)):
        worst = max(float(row["times"]) for row in rows if row["emits"] == emits)
        report.checks.append(check_at_most(f"left join, {emits}", worst, most, "times the inner join"))


def _profile_engine(scale: CoreScale, top: int = 12) -> list[ReportRow]:
    """The functions in which one run spends the most time, without the functions they call."""
    streams = scale.w3
    pushes = list(streams.generate_pushes(scale.parts))
    profile = cProfile.Profile()
    profile.runcall(_run_engine, streams, pushes)
    stats = pstats.Stats(profile).get_stats_profile()
    ranked = sorted(stats.func_profiles.items(), key=lambda item: item[1].tottime, reverse=True)
    return [
        {
            "function": name,
            "file": _shorten_path(entry.file_name),
            "calls": entry.ncalls,
            "own_seconds": entry.tottime,
            "share": round(entry.tottime / max(stats.total_tt, 1e-9), 3),
        }
        for name, entry in ranked[:top]
    ]


def _shorten_path(file_name: str) -> str:
    """The last two parts of a path: a report does not name folders of the machine."""
    return "/".join(Path(file_name).parts[-2:]) if file_name not in ("", "~") else "built in"
