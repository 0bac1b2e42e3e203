"""Lab `jisc`, the experiments of the JISC paper (section 6): the cost of changing the plan of a running join.

Figures 7 and 8: the migration stage with one and with all states incomplete. Figure 9: normal operation. Figure 10:
first output after a change, for equalities (a) and for other predicates (b). Figures 11 and 12: frequent changes. And
Proposition 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from penstock.join import POLICIES
from penstock.lab.papers.jisc import figures
from penstock.lab.papers.jisc.eddies import Cacq, JiscOnStairs, Stairs
from penstock.lab.papers.jisc.first_push import ALIAS_ORDER, THETA_CASES, measure_first_push
from penstock.lab.papers.jisc.proposition import compute_formula, simulate_moments, sum_moments
from penstock.lab.papers.jisc.rivals import Jisc, MovingState, ParallelTrackJoin
from penstock.lab.papers.jisc.stopwatch import BuildMigration, RunTimes, build_filled, take_best, time_batches
from penstock.lab.papers.jisc.streams import RoundRobinStreams
from penstock.lab.report import Report, ReportRow, Section, check_at_least, check_at_most, check_equals
from penstock.lab.timing import TurnTimer
from penstock.progress import ProgressStep, show_progress

STRATEGIES: dict[str, BuildMigration] = {
    "jisc": Jisc,
    "jisc_unpaced": partial(Jisc, policy=replace(POLICIES["lazy"], pace=0.0)),
    "moving_state": MovingState,
    "parallel_track": ParallelTrackJoin,
    "cacq": Cacq,
    "stairs": Stairs,
    "jisc_on_stairs": JiscOnStairs,
}
FREQUENT_STRATEGIES: tuple[str, ...] = ("jisc", "jisc_unpaced", "moving_state", "parallel_track", "cacq")


@dataclass(frozen=True)
class JiscScale:
    """How much is measured. The paper: 5 to 20 joins, windows of 10,000 tuples; a batch here is about 5,000 tuples."""

    joins: tuple[int, ...] = (5, 10, 15, 20)
    window: int = 10_000
    batch: int = 5_000
    rounds: int = 3
    latency_windows: tuple[int, ...] = (1_000, 10_000, 100_000)
    theta_windows: tuple[int, ...] = (1_000, 5_000, 20_000)
    order_window: int = 200_000
    large_window: int = 1_000_000
    large_joins: int = 5
    frequent_joins: int = 20
    change_periods: tuple[float, ...] = (0.5, 1, 2, 4)
    """Windows between two changes of the plan. Every run has the length of the last one."""
    rare_joins: int = 5
    rare_periods: tuple[float, ...] = (5, 12, 24, 48)
    """The paper's distances between changes, with fewer joins, because a run is long."""
    paces: tuple[float, ...] = (0, 1, 4, 8, 16, 32, 64)
    draws: int = 200_000

    @property
    def max_joins(self) -> int:
        return self.joins[-1]

    def build_streams(self, joins: int) -> RoundRobinStreams:
        return RoundRobinStreams(joins, self.window)


FULL = JiscScale()
QUICK = JiscScale(
    joins=(5, 20), rounds=1, latency_windows=(1_000, 10_000), large_joins=3, frequent_joins=5, change_periods=(0.5, 1),
    rare_joins=3, rare_periods=(5,), paces=(0, 16),
)  # fmt: skip


def run(quick: bool = False, scale: JiscScale | None = None) -> Report:
    scale = scale or (QUICK if quick else FULL)
    report = Report("jisc", quick)
    with show_progress("lab jisc", _count_steps(scale)) as step:
        stages = {states: _measure_stages(scale, states, step) for states in ("one", "all")}
        _report_stages(report, stages, scale)
        _report_slowest_batch(report, scale, step)
        _report_normal_operation(report, scale, step)
        _report_latency(report, scale, step)
        _report_theta_latency(report, scale, step)
        _report_first_push(report, scale, step)
        _report_large_window(report, scale, step)
        _report_frequency(report, scale, step)
        _report_paces(report, scale, step)
        step("Proposition 1")
        _report_proposition(report, scale)
    return report


def _count_steps(scale: JiscScale) -> int:
    windows = len(scale.latency_windows) + len(scale.theta_windows)
    return 2 * len(scale.joins) + windows + len(scale.paces) + len(THETA_CASES) + 11


# ── Figures 7 and 8: the migration stage ─────────────────────────────────────────────────────────────────────────────


def _measure_stages(scale: JiscScale, states: str, step: ProgressStep) -> list[ReportRow]:
    """CPU seconds of one window from the call to migrate, after which Parallel Track drops the old plan."""
    rows = []
    for joins in scale.joins:
        step(f"migration stage, {states} incomplete, {joins} joins")
        streams = scale.build_streams(joins)
        found = {name: _measure_stage(build, streams, states, scale) for name, build in STRATEGIES.items()}
        seconds = {name: one.total for name, one in found.items()}
        same = len({one.results for one in found.values()}) == 1
        rows.append({"joins": joins, **seconds, "results": found["jisc"].results if same else -1})
    return rows


def _measure_stage(build: BuildMigration, streams: RoundRobinStreams, states: str, scale: JiscScale) -> RunTimes:
    migrations = {0: streams.swap_order(states)}
    stage = list(streams.cut_batches(streams.window, 2 * streams.window, scale.batch))
    return take_best([time_batches(build_filled(build, streams), stage, migrations) for _ in range(scale.rounds)])


def _report_stages(report: Report, stages: dict[str, list[ReportRow]], scale: JiscScale) -> None:
    for states, number in (("one", 7), ("all", 8)):
        title = f"Figure {number}: CPU seconds of the migration stage, {states} incomplete"
        report.sections.append(Section(f"stage_{states}", title, stages[states]))
        report.figures[f"jisc-figure-{number}.png"] = figures.draw_stage(stages[states], title)
    rows = [row for part in stages.values() for row in part]
    wrong = sum(row["results"] < 0 for row in rows)
    worst = stages["all"][-1]
    report.checks += [
        check_equals("stage_results_differ", wrong, 0, "of all stages"),
        check_at_most(
            "stage_vs_moving_state", worst["jisc"] / worst["moving_state"], 1.4, f"times, {scale.max_joins} joins"
        ),
        check_at_most(
            "stage_vs_parallel_track",
            max(row["jisc"] / row["parallel_track"] for row in rows),
            1,
            "times, the worst number of joins",
        ),
    ]


# ── slowest batch ────────────────────────────────────────────────────────────────────────────────────────────────────


def _report_slowest_batch(report: Report, scale: JiscScale, step: ProgressStep) -> None:
    """The slowest batch of the migration against the slowest batch before and after it: JISC does not halt."""
    step(f"slowest batch, {scale.max_joins} joins")
    streams = scale.build_streams(scale.max_joins)
    batches = list(streams.cut_batches(streams.window, 4 * streams.window, scale.batch))
    third = len(batches) // 3
    migrations = {third: streams.swap_order("all")}
    rounds = [time_batches(build_filled(Jisc, streams), batches, migrations) for _ in range(max(2, scale.rounds))]
    found = take_best(rounds)
    stage = slice(third, third + max(1, found.migrating))
    ordinary = max((*found.batches[:third], *found.batches[stage.stop :]))
    during = max(found.batches[stage]) + found.migrate
    rows = [
        {"batches": "ordinary", "count": len(batches) - found.migrating, "slowest_ms": 1000 * ordinary},
        {"batches": "migrating", "count": found.migrating, "slowest_ms": 1000 * during},
    ]
    report.sections.append(
        Section("slowest_batch", f"The slowest batch, {scale.max_joins} joins, all incomplete", rows)
    )
    report.figures["jisc-batches.png"] = figures.draw_batches(found.batches, stage)
    report.checks.append(
        check_at_most("slowest_batch_of_migration", during / ordinary, 1.5, "times the slowest ordinary")
    )


# ── Figure 9: normal operation ───────────────────────────────────────────────────────────────────────────────────────


def _report_normal_operation(report: Report, scale: JiscScale, step: ProgressStep) -> None:
    """CPU seconds of a window without migration. The contenders take turns batch by batch."""
    step(f"normal operation, {scale.max_joins} joins")
    streams = scale.build_streams(scale.max_joins)
    contenders: dict[str, BuildMigration] = {
        "symmetric hash join": partial(Jisc, policy=POLICIES["eager"]),
        "jisc": Jisc,
        "m-join (none)": partial(Jisc, policy=POLICIES["none"]),
        "cacq": Cacq,
    }
    running = {name: build_filled(build, streams) for name, build in contenders.items()}
    window, rounds = streams.window, 1 + scale.rounds
    batches = [
        list(streams.cut_batches(number * window, (number + 1) * window, scale.batch))
        for number in range(1, 1 + rounds)
    ]
    timer = TurnTimer(list(contenders), rounds, len(batches[0]))
    for number, parts in enumerate(batches):
        for at, ticks in enumerate(parts):
            for name in timer.order(at):
                timer.run(name, number, at, partial(running[name].feed, ticks))
    spent = {name: timer.total(name) for name in contenders}
    tuples = streams.window * len(streams.names)
    rows = [{"run": name, "seconds": spent[name], "tuples_s": round(tuples / spent[name])} for name in contenders]
    report.sections.append(Section("normal", f"Figure 9: normal operation, {scale.max_joins} joins", rows))
    report.figures["jisc-figure-9.png"] = figures.draw_normal(rows)
    unit = f"times CACQ's rate, {scale.max_joins} joins (the paper: 2, where an eddy routes tuples one by one)"
    report.checks += [
        check_at_most("lazy_vs_eager", spent["jisc"] / spent["symmetric hash join"], 1.03, "times the time of eager"),
        check_at_least("rate_vs_cacq", spent["cacq"] / spent["jisc"], 0.95, unit),
    ]


# ── Figure 10: first output after a change ───────────────────────────────────────────────────────────────────────────


def _report_latency(report: Report, scale: JiscScale, step: ProgressStep) -> None:
    """CPU time from the call to migrate until the results of the first tick after it."""
    rows = []
    for window in scale.latency_windows:
        step(f"first output, windows of {window:,}")
        streams = RoundRobinStreams(scale.max_joins, window)
        row: ReportRow = {"window": window}
        for name in ("jisc", "moving_state", "stairs"):
            found = _time_first_output(STRATEGIES[name], streams, scale.rounds)
            row[f"{name}_ms"] = 1000 * found.total
        rows.append(row)
    title = f"Figure 10: milliseconds to the first output, {scale.max_joins} joins, all incomplete"
    report.sections.append(Section("latency", title, rows))
    report.figures["jisc-figure-10.png"] = figures.draw_latency(rows)


def _time_first_output(build: BuildMigration, streams: RoundRobinStreams, rounds: int) -> RunTimes:
    first = [streams.generate_ticks(streams.window, streams.window + 1)]
    return take_best(
        [time_batches(build_filled(build, streams), first, {0: streams.swap_order("all")}) for _ in range(rounds)]
    )


def _report_theta_latency(report: Report, scale: JiscScale, step: ProgressStep) -> None:
    """The call to migrate and the first push after it, for a join by bands instead of equalities."""
    rows: list[ReportRow] = []
    for window in scale.theta_windows:
        step(f"first output of a band join, windows of {window:,}")
        jisc, moving = (
            measure_first_push(THETA_CASES[0], window, how, scale.rounds) for how in ("jisc", "moving-state")
        )
        rows.append({
            "window": window, "ordinary_push_ms": 1000 * jisc.ordinary, "jisc_ms": 1000 * (jisc.migrate + jisc.first),
            "moving_state_ms": 1000 * (moving.migrate + moving.first),
        })  # fmt: skip
    title = "Figure 10 (b): milliseconds to the first output, band join of three streams"
    report.sections.append(Section("theta_latency", title, rows))
    report.figures["jisc-figure-10b.png"] = figures.draw_theta_latency(rows, title)


def _report_first_push(report: Report, scale: JiscScale, step: ProgressStep) -> None:
    """The first push after a change as a multiple of an ordinary one: JISC does not halt."""
    cases = [*((case, scale.theta_windows[-1]) for case in THETA_CASES), (ALIAS_ORDER, scale.order_window)]
    rows: list[ReportRow] = []
    for case, window in cases:
        step(f"first push, {case.name}")
        found = measure_first_push(case, window, "jisc", max(2, scale.rounds))
        rows.append({
            "join": case.name, "window": window, "ordinary_ms": 1000 * found.ordinary,
            "migrate_ms": 1000 * found.migrate, "first_ms": 1000 * found.first, "ratio": found.ratio,
        })  # fmt: skip
    report.sections.append(Section("first_push", "The first push after a change, with the call to migrate", rows))
    theta = max(row["ratio"] for row in rows[:-1])
    report.checks += [
        check_at_most("first_push_of_theta_join", theta, 5, f"times an ordinary push, windows of {cases[0][1]:,}"),
        check_at_most(
            "first_push_in_other_order", rows[-1]["ratio"], 5, f"times an ordinary push, windows of {cases[-1][1]:,}"
        ),
    ]


def _report_large_window(report: Report, scale: JiscScale, step: ProgressStep) -> None:
    """The call to migrate with large windows, for which Moving State halts for seconds."""
    streams = RoundRobinStreams(scale.large_joins, scale.large_window)
    rows: list[ReportRow] = []
    for name in ("jisc", "moving_state"):
        step(f"call to migrate, windows of {scale.large_window:,}, {name}")
        found = _time_first_output(STRATEGIES[name], streams, 1)
        rows.append({"run": name, "call_ms": 1000 * found.migrate, "first_output_ms": 1000 * found.total})
    title = f"Windows of {scale.large_window:,} tuples, {scale.large_joins} joins, all incomplete"
    report.sections.append(Section("large_window", title, rows))
    call, stall = (row["call_ms"] for row in rows)
    report.checks.append(check_at_most("migrate_call_vs_stall", call / stall, 0.001, "of Moving State's stall"))


# ── Figures 11 and 12: how often the plan changes ────────────────────────────────────────────────────────────────────


def _report_frequency(report: Report, scale: JiscScale, step: ProgressStep) -> None:
    """Frequent changes, and changes at the paper's distances."""
    for states, number in (("all", 11), ("one", 12)):
        near = _measure_frequency(scale, scale.frequent_joins, scale.change_periods, states, step)
        far = _measure_frequency(scale, scale.rare_joins, scale.rare_periods, states, step)
        for suffix, rows, joins in (("", near, scale.frequent_joins), ("_rare", far, scale.rare_joins)):
            title = f"Figure {number}: CPU seconds by time between changes, {states} incomplete, {joins} joins"
            report.sections.append(Section(f"frequency_{states}{suffix}", title, rows))
            name = f"jisc-figure-{number}{suffix.replace('_', '-')}.png"
            report.figures[name] = figures.draw_frequency(rows, FREQUENT_STRATEGIES, title)


def _measure_frequency(
    scale: JiscScale, joins: int, periods: Sequence[float], states: str, step: ProgressStep
) -> list[ReportRow]:
    """CPU seconds of runs that have the length of the longest period."""
    step(f"changes every {periods[0]:g} to {periods[-1]:g} windows, {states} incomplete")
    streams = scale.build_streams(joins)
    batches = list(streams.cut_batches(streams.window, int((1 + periods[-1]) * streams.window), scale.batch))
    rows = []
    for every in periods:
        period = max(1, int(len(batches) * every / periods[-1]))
        orders = (streams.swap_order(states), streams.names)
        changes = {at: orders[turn % 2] for turn, at in enumerate(range(0, len(batches), period))}
        row: ReportRow = {"windows_between": every, "changes": len(changes)}
        row |= {
            name: time_batches(build_filled(STRATEGIES[name], streams), batches, changes).total
            for name in FREQUENT_STRATEGIES
        }
        rows.append(row)
    return rows


# ── pacing, and Proposition 1 ────────────────────────────────────────────────────────────────────────────────────────


def _report_paces(report: Report, scale: JiscScale, step: ProgressStep) -> None:
    streams = scale.build_streams(scale.max_joins)
    rows = []
    for pace in scale.paces:
        step(f"pace {pace:g}")
        found = _measure_stage(partial(Jisc, policy=replace(POLICIES["lazy"], pace=pace)), streams, "all", scale)
        row = {"pace": pace, "seconds": found.total, "slowest_batch_ms": 1000 * max(found.batches)}
        rows.append({**row, "batches_until_complete": found.migrating})
    title = f"Pace: rows completed per arriving tuple, {scale.max_joins} joins, all incomplete"
    report.sections.append(Section("pace", title, rows))


def _report_proposition(report: Report, scale: JiscScale) -> None:
    rows: list[ReportRow] = []
    deviations = []
    for joins in sorted({*scale.joins, 50}):
        exact, drawn = compute_formula(joins), simulate_moments(joins, scale.draws, np.random.default_rng(joins))
        mean, variance = (float(value) for value in exact)
        deviations.append(abs(drawn.mean - mean) / (variance / scale.draws) ** 0.5)
        rows.append(
            {
                "joins": joins, "mean": mean, "variance": variance, "equals_sum": str(exact == sum_moments(joins)),
                "drawn_mean": drawn.mean, "drawn_variance": drawn.variance,
            }
        )  # fmt: skip
    report.sections.append(Section("proposition", "Proposition 1: complete states after two streams swap", rows))
    report.figures["jisc-proposition-1.png"] = figures.draw_proposition(rows)
    report.checks += [
        check_equals(
            "proposition_1_differs_from_sum", sum(row["equals_sum"] != "True" for row in rows), 0, "of all rows"
        ),
        check_at_most("proposition_1_monte_carlo", max(deviations), 5, "standard errors"),
    ]
