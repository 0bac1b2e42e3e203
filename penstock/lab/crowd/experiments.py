"""Lab `crowd`: the cost of many queries over the same streams, against their number.

The joins are A.k = B.k with a window of its own for every query, without and with a filter of its own; the aggregates
are GROUP BY queries over one stream. Results are read where that is said. All times are CPU seconds of this process.
An exponent is the slope of the cost on logarithmic axes over the largest numbers of queries: 1 is linear. Queries are
compared with engines that do not share, a sample where there are many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine import Engine
from penstock.lab.crowd.figures import draw_costs
from penstock.lab.report import Check, Report, ReportRow, Section, check_at_most, check_equals
from penstock.progress import show_progress

_SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.float64())])
_WINDOW = 2_000
"""The longest window, in ticks. A tuple of each stream arrives every tick."""
_KEYS = 500
_SAMPLE = 5
"""How many queries of each kind are compared with their own engine."""


@dataclass(frozen=True)
class CrowdScale:
    """How much is measured."""

    queries: Sequence[int] = (1, 10, 100, 1_000, 10_000)
    read: Sequence[int] = (1, 10, 100, 1_000, 10_000)
    grouped: Sequence[int] = (1, 10, 100, 300)
    added: int = 150
    filters: int = 40
    pushes: int = 12
    rows: int = 200
    group_rows: int = 1_000


FULL = CrowdScale()
QUICK = CrowdScale(queries=(1, 10, 100, 1_000), read=(1, 10, 100, 1_000), pushes=8)


@dataclass(frozen=True)
class CrowdRun:
    """CPU seconds to start all queries and for a push, and the result rows of a push."""

    queries: int
    start: float
    push: float
    rows: int

    def build_row(self) -> ReportRow:
        return {
            "queries": self.queries, "start_ms": round(1000 * self.start, 2), "push_ms": round(1000 * self.push, 2),
            "result_rows": self.rows,
        }  # fmt: skip


WriteQuery = Callable[[int, int], str]
"""The text of a query, given its number and how many there are."""


def _find_window(number: int, count: int) -> int:
    return _WINDOW // 4 + (_WINDOW * 3 // 4) * (number + 1) // count


def write_join(number: int, count: int) -> str:
    return f"SELECT A.v AS a, B.v AS b FROM A, B WHERE A.k = B.k WINDOW {_find_window(number, count)}"


def write_filtered_join(number: int, count: int) -> str:
    text = write_join(number, count)
    return text.replace(" WINDOW", f" AND A.v > {number / count:.6f} WINDOW")


def write_general_filters(number: int, count: int) -> str:
    """Independent filters on both streams, for which there is no index; ten times as many pairs as in the others.

    Nearly every tuple passes another set of them, and nearly every pair has a set of queries of its own.
    """
    tests = f"A.v * {7919 * (number + 3)} % 2 > 1 AND B.v * {6151 * (number + 5)} % 2 > 1"
    return write_join(number, count).replace("A.k = B.k", f"A.k % 50 = B.k % 50 AND {tests}")


def write_group(number: int, count: int) -> str:
    window = 40 + 2 * (600 * (number + 1) // count)
    return f"SELECT k % 20 AS room, COUNT(*) AS n, SUM(v) AS s, MAX(v) AS m FROM A [RANGE {window}] GROUP BY k % 20"


def generate_pushes(scale: CrowdScale) -> Iterator[dict[str, pa.Table]]:
    """Tuples of both streams, one of each in every tick."""
    rng, time = np.random.default_rng(7), 0
    while True:
        yield {name: _generate_rows(rng, np.arange(time, time + scale.rows)) for name in "AB"}
        time += scale.rows


def generate_group_pushes(scale: CrowdScale) -> Iterator[dict[str, pa.Table]]:
    """Tuples of one stream, 50 in every tick."""
    rng, time = np.random.default_rng(8), 0
    while True:
        yield {"A": _generate_rows(rng, np.arange(time, time + scale.group_rows) // 50)}
        time += scale.group_rows


def _generate_rows(rng: np.random.Generator, times: np.ndarray[Any, Any]) -> pa.Table:
    return pa.table([times, rng.integers(0, _KEYS, times.size), rng.random(times.size)], schema=_SCHEMA)


def _make_engine(**options: Any) -> Engine:
    engine = Engine(max_queries=20_000, **options)
    for name in "AB":
        engine.stream(name, _SCHEMA, time="ts")
    return engine


def _run_queries(
    engine: Engine, texts: Sequence[str], pushes: Iterator[dict[str, pa.Table]], scale: CrowdScale, *, reads: bool
) -> CrowdRun:
    begun = process_time()
    for number, text in enumerate(texts):
        engine.query(f"q{number}", text)
    start, costs, rows = process_time() - begun, [], 0
    filling = -(-_WINDOW // scale.rows)
    for _ in range(filling + scale.pushes):
        arrived, begun = next(pushes), process_time()
        results = engine.push(arrived)
        rows = sum(results[name].num_rows for name in results) if reads else 0
        costs.append(process_time() - begun)
    return CrowdRun(len(texts), start, median(costs[filling:]), rows)


def _measure(
    write: WriteQuery,
    counts: Sequence[int],
    generate: Callable[[CrowdScale], Iterator[dict[str, pa.Table]]],
    scale: CrowdScale,
    *,
    reads: bool,
) -> list[CrowdRun]:
    return [
        _run_queries(
            _make_engine(), [write(number, count) for number in range(count)], generate(scale), scale, reads=reads
        )
        for count in counts
    ]


def fit_exponent(counts: Sequence[int], costs: Sequence[float]) -> float:
    """The slope of the last three costs on logarithmic axes."""
    return float(np.polyfit(np.log(counts[-3:]), np.log(np.maximum(costs[-3:], 1e-9)), 1)[0])


def _count_differences(
    write: WriteQuery, count: int, generate: Callable[[CrowdScale], Iterator[dict[str, pa.Table]]], scale: CrowdScale
) -> int:
    """How many of a sample of queries have other results than alone."""
    texts = [write(number, count) for number in range(count)]
    sample = sorted({place * (count - 1) // max(1, _SAMPLE - 1) for place in range(_SAMPLE)})
    shared, alone = _make_engine(), _make_engine(share=False)
    for number, text in enumerate(texts):
        shared.query(f"q{number}", text)
    for number in sample:
        alone.query(f"q{number}", texts[number])
    different: set[int] = set()
    pushes = generate(scale)
    for _ in range(6):
        arrived = next(pushes)
        found, wanted = shared.push(arrived), alone.push(arrived)
        different |= {n for n in sample if _sort_rows(found[f"q{n}"]) != _sort_rows(wanted[f"q{n}"])}
    return len(different)


def _sort_rows(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in table.column_names])


def _measure_additions(scale: CrowdScale) -> tuple[float, float]:
    """Identical queries, one more before each push: the slowest push and the median, in seconds."""
    engine, pushes, costs = _make_engine(), generate_pushes(scale), []
    for number in range(scale.added):
        engine.query(f"q{number}", write_join(0, 1))
        arrived, begun = next(pushes), process_time()
        engine.push(arrived)
        costs.append(process_time() - begun)
    settled = costs[-(-_WINDOW // scale.rows) :]
    return max(settled), median(settled)


def _measure_general_filters(scale: CrowdScale) -> tuple[CrowdRun, CrowdRun]:
    """Filters without an index on both streams: shared, and not shared."""
    texts = [write_general_filters(number, scale.filters) for number in range(scale.filters)]
    scale = replace(scale, rows=4 * scale.rows)  # the more pairs in a push, the more sets of queries
    runs = [
        _run_queries(_make_engine(share=share), texts, generate_pushes(scale), scale, reads=False)
        for share in (True, False)
    ]
    return runs[0], runs[1]


def run(quick: bool = False, scale: CrowdScale | None = None) -> Report:
    scale = scale or (QUICK if quick else FULL)
    report = Report("crowd", quick)
    with show_progress("lab crowd", 7) as step:
        step("different windows")
        windows = _measure(write_join, scale.queries, generate_pushes, scale, reads=False)
        step("different windows and filters")
        filtered = _measure(write_filtered_join, scale.queries, generate_pushes, scale, reads=False)
        step("all results read")
        read = _measure(write_join, scale.read, generate_pushes, scale, reads=True)
        step("aggregates")
        grouped = _measure(write_group, scale.grouped, generate_group_pushes, scale, reads=True)
        step("queries added while running")
        slowest, usual = _measure_additions(scale)
        step("filters without an index")
        shared, unshared = _measure_general_filters(scale)
        step("comparison with unshared queries")
        differences = {
            "windows": _count_differences(write_join, scale.queries[-1], generate_pushes, scale),
            "filters": _count_differences(write_filtered_join, scale.queries[-1], generate_pushes, scale),
            "aggregates": _count_differences(write_group, scale.grouped[-1], generate_group_pushes, scale),
        }
    kinds = {"windows": windows, "filters": filtered, "read": read, "aggregates": grouped}
    report.sections += [
        Section("windows", "Joins with different windows, not read", [each.build_row() for each in windows]),
        Section(
            "filters", "Joins with different windows and filters, not read", [each.build_row() for each in filtered]
        ),
        Section("read", "Joins with different windows, all read", [each.build_row() for each in read]),
        Section("aggregates", "Aggregates with different windows, all read", [each.build_row() for each in grouped]),
        Section("general", "Filters without an index: shared, not shared", [shared.build_row(), unshared.build_row()]),
        Section("exponents", "Slope of the cost on logarithmic axes", [_build_exponents(kinds)]),
    ]
    report.checks += _build_checks(filtered, read, grouped, (slowest, usual), (shared, unshared), differences)
    report.figures["crowd.png"] = draw_costs(
        {name: _build_curve(runs, lambda each: each.push) for name, runs in kinds.items()},
        {name: _build_curve(runs, lambda each: each.start) for name, runs in kinds.items()},
    )
    return report


def _build_curve(runs: Sequence[CrowdRun], read: Callable[[CrowdRun], float]) -> tuple[list[int], list[float]]:
    return [each.queries for each in runs], [1000 * read(each) for each in runs]


def _build_exponents(kinds: dict[str, list[CrowdRun]]) -> ReportRow:
    found: ReportRow = {}
    for name, runs in kinds.items():
        counts = [each.queries for each in runs]
        found[f"start_{name}"] = round(fit_exponent(counts, [each.start for each in runs]), 2)
        found[f"push_{name}"] = round(fit_exponent(counts, [each.push for each in runs]), 2)
    return found


def _build_checks(
    filtered: Sequence[CrowdRun],
    read: Sequence[CrowdRun],
    grouped: Sequence[CrowdRun],
    added: tuple[float, float],
    general: tuple[CrowdRun, CrowdRun],
    differences: dict[str, int],
) -> list[Check]:
    counts = [each.queries for each in filtered]
    rows = max(1, read[-1].rows)
    return [
        check_at_most("start_ms_per_query", 1000 * filtered[-1].start / filtered[-1].queries, 6, "ms"),
        check_at_most("start_exponent", fit_exponent(counts, [each.start for each in filtered]), 1.15, "exponent"),
        check_at_most("push_exponent", fit_exponent(counts, [each.push for each in filtered]), 1.15, "exponent"),
        check_at_most("read_ms_per_million_rows", 1e9 * read[-1].push / rows, 33, "ms"),
        check_at_most(f"aggregates_{grouped[-1].queries}_push_ms", 1000 * grouped[-1].push, 100, "ms"),
        check_at_most("added_slowest_over_median_push", added[0] / added[1], 5, "ratio"),
        check_at_most("general_filters_shared_over_unshared", general[0].push / general[1].push, 1.1, "ratio"),
        *(check_equals(f"differences_{name}", found, 0, "queries") for name, found in differences.items()),
    ]
