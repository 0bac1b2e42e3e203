"""Runs of many queries: their cost over that of the largest query alone, and queries that are added and dropped.

Times are CPU seconds of this process; see `penstock.lab.timing`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import process_time

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.engine import Engine
from penstock.lab.meters import read_status_kib
from penstock.lab.papers.state_slice import figures
from penstock.lab.papers.state_slice.rivals import StateSize, measure_engine_state
from penstock.lab.papers.state_slice.scale import SliceScale
from penstock.lab.papers.state_slice.streams import SECOND, PoissonStreams, SliceQuery, build_engine
from penstock.lab.report import Report, ReportRow, Section, check_at_most, check_equals
from penstock.lab.timing import TurnTimer
from penstock.lab.workloads import PushTables, has_same_rows
from penstock.progress import ProgressStep


@dataclass(frozen=True)
class QueryMix:
    """`count` queries with different windows and `filters` different filters. The first has the largest window."""

    count: int
    longest: int
    filters: int

    def build_queries(self) -> list[SliceQuery]:
        step = max(1, self.longest // (2 * self.count))
        return [
            SliceQuery(self.longest - place * step, round(1 - place % self.filters / self.filters, 4))
            for place in range(self.count)
        ]


@dataclass(frozen=True)
class ScalingOutcome:
    """Many queries in one engine, compared with the first of them in another engine."""

    seconds: float
    """CPU seconds of pushes if no result table is built."""
    single_seconds: float
    sample_seconds: float
    """CPU seconds of pushes if the tables of a sample of queries are built."""
    register_seconds: float
    register_mib: float
    state: StateSize
    single_state: StateSize
    wrong: int
    """The number of sampled queries whose results differ from those of the query alone."""


def measure_scaling(
    queries: Sequence[SliceQuery], pushes: Sequence[PushTables], sample: Sequence[int], rounds: int
) -> ScalingOutcome:
    """Repeat the pushes, at later times in each round. The second half of them is timed, when windows are full."""
    begin, size = process_time(), _read_resident_mib()
    shared = build_engine(queries=queries)
    registered, grown = process_time() - begin, _read_resident_mib() - size
    engines = {"shared": shared, "single": build_engine(queries=queries[:1])}
    timer = TurnTimer(list(engines), rounds, len(pushes))
    for number in range(rounds):
        for at, push in enumerate(_shift_pushes(pushes, number)):
            for name in timer.order(at):
                timer.run(name, number, at, partial(engines[name].push, push))
    seconds, single_seconds = (timer.total(name, len(pushes) // 2) for name in engines)
    state, single_state = (measure_engine_state(engine) for engine in engines.values())
    sampled, wrong = _check_sample(
        shared, queries, _shift_pushes(pushes, rounds - 1), _shift_pushes(pushes, rounds), sample
    )
    return ScalingOutcome(seconds, single_seconds, sampled, registered, grown, state, single_state, wrong)


def _check_sample(
    shared: Engine,
    queries: Sequence[SliceQuery],
    former: Sequence[PushTables],
    pushes: Sequence[PushTables],
    sample: Sequence[int],
) -> tuple[float, int]:
    """CPU seconds of the second half of pushes if the tables of a sample are built, and the number of wrong queries.

    A query is wrong if its results differ from those of the query alone. `former` are the last pushes of `shared`.
    """
    alone = {place: build_engine(queries=[queries[place]]) for place in sample}
    answers: dict[int, tuple[list[pa.Table], list[pa.Table]]] = {place: ([], []) for place in sample}
    for single in alone.values():
        for push in former:
            single.push(push)
    half, seconds = len(pushes) // 2, 0.0
    for at, push in enumerate(pushes):
        begin = process_time()
        out = shared.push(push)
        tables = [out[f"q{place}"] for place in sample]
        seconds += process_time() - begin if at >= half else 0.0
        for place, table in zip(sample, tables, strict=True):
            answers[place][0].append(table)
            answers[place][1].append(alone[place].push(push)["q0"])
    return seconds, sum(not has_same_rows(*map(pa.concat_tables, both)) for both in answers.values())


def _shift_pushes(pushes: Sequence[PushTables], times: int) -> list[PushTables]:
    """The same tuples, later by `times` times the length of all pushes."""
    shift = times * len(pushes) * SECOND
    return [
        {
            name: table.set_column(0, "ts", pa.array(table.column("ts").to_numpy() + shift))
            for name, table in push.items()
        }
        for push in pushes
    ]


def _read_resident_mib() -> float:
    """The resident size of this process; 0 on systems that do not show it."""
    gc.collect()
    return (read_status_kib("VmRSS") or 0) / 1024


# ── queries that are added and dropped ───────────────────────────────────────────────────────────────────────────────

CHANGES: tuple[tuple[str, Callable[[Engine, Sequence[SliceQuery]], None]], ...] = (
    ("add, window and filter known", lambda eng, queries: eng.query("new", queries[1].text)),
    ("drop it", lambda eng, _: eng.drop("new")),
    ("add, a window between", lambda eng, queries: eng.query("new", SliceQuery(queries[1].window - 7).text)),
    ("drop it", lambda eng, _: eng.drop("new")),
    ("add, a filter of its own", lambda eng, queries: eng.query("new", SliceQuery(queries[1].window, 0.123).text)),
    ("drop it", lambda eng, _: eng.drop("new")),
    ("add, the largest window", lambda eng, queries: eng.query("new", SliceQuery(queries[0].window + SECOND).text)),
    ("drop it", lambda eng, _: eng.drop("new")),
)
"""The changes of a running engine, one before every second push."""


@dataclass(frozen=True)
class ChangeTimes:
    """CPU seconds by round: of pushes without a change, of pushes after a change, and of the calls that change."""

    quiet: NDArray[np.float64]
    changed: NDArray[np.float64]
    calls: NDArray[np.float64]

    def compute_ratios(self) -> NDArray[np.float64]:
        """For each round and change: the push after it over the median quiet push of the round."""
        ratios: NDArray[np.float64] = self.changed / np.median(self.quiet, axis=1, keepdims=True)
        return ratios

    def compute_best(self) -> NDArray[np.float64]:
        """The same ratios for the best round of each push."""
        best: NDArray[np.float64] = self.changed.min(axis=0) / np.median(self.quiet.min(axis=0))
        return best

    def compute_best_calls(self) -> NDArray[np.float64]:
        """The calls, in the best round of each, over the same median."""
        best: NDArray[np.float64] = self.calls.min(axis=0) / np.median(self.quiet.min(axis=0))
        return best

    def find_slowest_quiet(self) -> float:
        return float(self.quiet.min(axis=0).max() / np.median(self.quiet.min(axis=0)))


def measure_changes(queries: Sequence[SliceQuery], streams: PoissonStreams, rounds: int) -> ChangeTimes:
    """Time pushes with and without a change, after windows are full. The table of the first query is built."""
    pushes = list(streams.generate_pushes())
    first = len(pushes) - 2 * len(CHANGES)
    quiet: list[list[float]] = []
    changed: list[list[float]] = []
    calls: list[list[float]] = []
    for _ in range(rounds):
        running = build_engine(queries=queries)
        quiet.append([])
        changed.append([])
        calls.append([])
        for at, push in enumerate(pushes):
            begin = process_time()
            if at >= first and not (at - first) % 2:
                CHANGES[(at - first) // 2][1](running, queries)
                calls[-1].append(process_time() - begin)
            begin = process_time()
            running.push(push)["q0"]
            if at >= first:
                (quiet if (at - first) % 2 else changed)[-1].append(process_time() - begin)
    return ChangeTimes(np.array(quiet), np.array(changed), np.array(calls))


# ── reports ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def report_scaling(report: Report, scale: SliceScale, step: ProgressStep) -> None:
    """The CPU and the state of up to 10,000 queries over those of the largest query alone."""
    pushes = list(scale.scaling_streams.generate_pushes())
    rows: list[ReportRow] = []
    wrong = 0
    for count in scale.query_counts:
        step(f"{count:,} queries")
        mix = QueryMix(count, scale.scaling_window * SECOND, scale.filters)
        sample = sorted({int(place) for place in np.linspace(0, count - 1, scale.sample)})
        found = measure_scaling(mix.build_queries(), pushes, sample, max(2, scale.rounds))
        wrong += found.wrong
        rows.append({
            "queries": count, "seconds": found.seconds, "largest_alone": found.single_seconds,
            "times_one": found.seconds / found.single_seconds,
            "seconds_sample_looked_at": found.sample_seconds, "sample": len(sample),
            "row_kib": found.state.row_bytes / 1024, "ring_kib": found.state.allocated_bytes / 1024,
            "times_one_row_kib": found.state.row_bytes / found.single_state.row_bytes,
            "times_one_ring_kib": found.state.allocated_bytes / found.single_state.allocated_bytes,
            "register_ms_each": 1000 * found.register_seconds / count, "register_mib": found.register_mib,
        })  # fmt: skip
    title = f"Many queries, {scale.filters} filters, windows up to {scale.scaling_window} s: CPU with full windows"
    report.sections.append(Section("crowds", title, rows))
    report.figures["slice-crowds.png"] = figures.draw_scaling(rows)
    last = rows[-1]
    report.checks += [
        check_equals("sampled_queries_differ", wrong, 0, "of all samples"),
        check_at_most(
            "cpu_vs_largest_query", last["times_one"], 3, f"times, {last['queries']:,} queries, no tables built"
        ),
        check_at_most(
            "row_bytes_vs_largest_query", last["times_one_row_kib"], 1.2, f"times, {last['queries']:,} queries"
        ),
        check_at_most(
            "ring_bytes_vs_largest_query", last["times_one_ring_kib"], 1.2, f"times, {last['queries']:,} queries"
        ),
    ]


def report_changes(report: Report, scale: SliceScale, step: ProgressStep) -> None:
    """The push after a query was added or dropped, over the median push."""
    step("queries are added and dropped")
    queries = QueryMix(scale.changing_queries, scale.scaling_window * SECOND, scale.filters).build_queries()
    found = measure_changes(queries, scale.scaling_streams, max(3, scale.rounds))
    quiet = {"call": 0.0, "least": 1.0, "most": 1.0}
    rows = [{"change": "none (the slowest)", "push": found.find_slowest_quiet(), **quiet}]
    for place, (what, _) in enumerate(CHANGES):
        best = {"push": float(found.compute_best()[place]), "call": float(found.compute_best_calls()[place])}
        rows.append({"change": what, **best, **_build_span_row(found, place)})
    title = f"The call of a change and the push after it over the median push, {scale.changing_queries} queries"
    report.sections.append(Section("changes", title, rows))
    worst = float(found.compute_best().max())
    report.checks.append(
        check_at_most("slowest_batch_of_a_change", worst, 2, "times the median batch, best of the rounds")
    )


def _build_span_row(found: ChangeTimes, place: int) -> ReportRow:
    ratios = found.compute_ratios()[:, place]
    return {"least": float(ratios.min()), "most": float(ratios.max())}
