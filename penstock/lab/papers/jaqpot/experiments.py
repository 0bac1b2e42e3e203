"""Lab `jaqpot`, the experiments of the JAQPOT paper (section 5): throughput under a budget, staleness, freshness.

Figures 6 to 8 run in the engine. There rows expire with their parts, so a state has fewer rows if probes below it are
shed, and no policy can exceed the optimum of the steady state (`adapt/steady.py`), with which the paper's margins are
compared. Figures 9a to 9c use the execution model of the paper, in which states are windows of a fixed number of rows.
Figure 9d and the shares of infeasible plans need no streams: they are allocations over random plans with the paper's
parameters.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from penstock.adapt import RefreshRates, allocate, allocate_steady, compute_completeness, compute_refresh_rates
from penstock.lab.papers.jaqpot import figures, plans
from penstock.lab.papers.jaqpot.model import CountModel
from penstock.lab.papers.jaqpot.plans import MARGINS, PAPER_HEURISTICS, build_tree, compute_freshness, generate_load
from penstock.lab.papers.jaqpot.runs import BudgetRun, measure_load, run_workload
from penstock.lab.papers.jaqpot.streams import PLANS, ChainWorkload, SensorWorkload, Workload
from penstock.lab.report import (
    Check,
    Report,
    ReportRow,
    Section,
    check_at_least,
    check_at_least_unless,
    check_at_most,
    check_equals,
)
from penstock.plan import PlanLoad, list_directions, list_joins
from penstock.progress import ProgressStep, show_progress

OWN_POLICIES = ("steady", "lp", "jaqpot", "grepp")
ALL_POLICIES = (*OWN_POLICIES, *PAPER_HEURISTICS)
PLANNED_SHARE = 0.85
"""The share of a freshness that the plan uses in the count model, because the rates of rows vary there."""


@dataclass(frozen=True)
class JaqpotScale:
    """How much is measured. The paper has ten minutes, changes after 3 and 7, and resources from 0 to 100 %."""

    minute: float = 60.0
    levels: tuple[int, ...] = (10, 20, 30, 40, 50, 60, 70, 80, 90)
    selectivities: tuple[str, ...] = ("SEL1", "SEL2", "SEL3")
    seconds: float = 60.0
    sensor_hours: float = 6.0
    freshness: tuple[float, ...] = (1.5, 3, 5)
    settings: int = 3
    plans: int = 300
    policy_plans: int = 1000
    """The number of plans of any shape on which all policies are compared."""
    warm_seconds: float = 20.0
    """The first seconds of a run, which do not count: two of the longest windows."""


FULL = JaqpotScale()
QUICK = JaqpotScale(
    minute=2.0, levels=(20, 40, 60, 80), selectivities=("SEL2",), seconds=40.0, sensor_hours=1.5,
    freshness=(1.5, 5), settings=1, plans=60,
)  # fmt: skip


def run(quick: bool = False, scale: JaqpotScale | None = None) -> Report:
    scale = scale or (QUICK if quick else FULL)
    report = Report("jaqpot", quick)
    with show_progress("lab jaqpot", 2 + 4 * len(scale.levels) + 3 + 3 + 3) as step:
        _report_fluctuation(report, scale, step)
        _report_resources(report, scale, step)
        _report_unequal_windows(report, scale, step)
        _report_sensors(report, scale, step)
        _report_staleness(report, scale, step)
        step("the cost of freshness")
        plans.report_freshness(report, scale.freshness, scale.plans)
        step("all policies on random plans")
        plans.report_policies(report, scale.policy_plans)
        plans.report_resources(report, scale.levels, scale.plans // 3)
        step("overhead")
        plans.report_overhead(report)
    return report


# ── Figures 6 and 7: four streams ────────────────────────────────────────────────────────────────────────────────────


def _report_fluctuation(report: Report, scale: JaqpotScale, step: ProgressStep) -> None:
    """Cumulative results by minute at 30 % of the saturation resources. Selectivities change after 3 and 7 minutes."""
    phases = tuple((minutes * scale.minute, name) for minutes, name in ((3, "SEL1"), (4, "SEL2"), (3, "SEL3")))
    panels: list[tuple[str, Sequence[ReportRow]]] = []
    for shape in ("linear", "bushy"):
        step(f"Figure 6, {shape}")
        workload = ChainWorkload(shape, phases)
        exact = run_workload(workload, None)
        mu = 0.3 * exact.probes
        found = {policy: run_workload(workload, mu, policy).results for policy in ALL_POLICIES}
        panels.append((shape, _sum_by_minute({**found, "exact": exact.results}, 10)))
        report.sections.append(
            Section(f"fluctuation_{shape}", f"Figure 6: cumulative results, {shape}, 30 % of saturation", panels[-1][1])
        )
    labels = ("minute", "results so far")
    report.figures["jaqpot-figure-6.png"] = figures.draw_curves(
        panels, "minute", labels, "Figure 6: results under changing selectivities"
    )


def _sum_by_minute(results: dict[str, tuple[int, ...]], minutes: int) -> list[ReportRow]:
    sums = {policy: list(accumulate(each)) for policy, each in results.items()}
    return [
        {"minute": minute, **{policy: each[len(each) * minute // minutes - 1] for policy, each in sums.items()}}
        for minute in range(1, minutes + 1)
    ]


def _report_resources(report: Report, scale: JaqpotScale, step: ProgressStep) -> None:
    """Throughput by resources, both as a percentage of saturation."""
    tables: dict[str, list[ReportRow]] = {}
    extra = 0
    runs: dict[str, list[BudgetRun]] = {policy: [] for policy in ALL_POLICIES}
    for shape in ("linear", "bushy"):
        points = [
            _WarmWorkload(ChainWorkload(shape, ((scale.warm_seconds + scale.seconds, name),)), scale.warm_seconds)
            for name in scale.selectivities
        ]
        rows: list[ReportRow] = []
        for level in scale.levels:
            step(f"Figure 7, {shape}, {level} %")
            row: ReportRow = {
                "resources": level,
                "optimum": 100 * _compute_mean(point.find_optimum(level / 100) for point in points),
            }
            for policy in ALL_POLICIES:
                found = [point.run_under(level / 100 * point.exact.probes, policy) for point in points]
                row[policy] = 100 * _compute_mean(map(_WarmWorkload.compute_share, points, found))
                extra += sum(map(_WarmWorkload.count_excess_pushes, points, found))
                runs[policy] += found
            rows.append(row)
        tables[shape] = rows
        report.sections.append(Section(f"resources_{shape}", f"Figure 7: % of saturation throughput, {shape}", rows))
        report.checks += _check_margin(shape, rows, MARGINS[shape])
    labels = ("% of saturation resources", "% of saturation throughput")
    report.figures["jaqpot-figure-7.png"] = figures.draw_curves(
        list(tables.items()), "resources", labels, "Figure 7: throughput by resources"
    )
    stale = sum(each.metrics["stale"] for found in runs.values() for each in found)
    at_60 = next(row for row in tables["linear"] if row["resources"] == 60)
    report.checks += [
        check_at_least_unless("throughput_at_60_percent_linear", at_60["steady"], 80, at_60["optimum"],
                 "the optimum has less", "% of saturation throughput"),
        check_equals("stale_results_in_the_engine", stale, 0, "of all runs"),
        check_equals("pushes_with_more_than_the_exact_results", extra, 0, "of all runs"),
    ]  # fmt: skip
    _report_analysis(report, runs)


def _report_unequal_windows(report: Report, scale: JaqpotScale, step: ProgressStep) -> None:
    """The same with the window of D a tenth: `steady`, the paper's heuristics, and the optimum that lasts."""
    tables: dict[str, list[ReportRow]] = {}
    for shape in ("linear", "bushy"):
        phases = ((scale.warm_seconds + scale.seconds, "SEL2"),)
        point = _WarmWorkload(ChainWorkload(shape, phases, unequal=True), scale.warm_seconds)
        rows: list[ReportRow] = []
        for level in scale.levels:
            step(f"Figure 7, {shape}, unequal windows, {level} %")
            row: ReportRow = {"resources": level, "optimum": 100 * point.find_optimum(level / 100)}
            for policy in ("steady", *PAPER_HEURISTICS):
                row[policy] = 100 * point.compute_share(point.run_under(level / 100 * point.exact.probes, policy))
            rows.append(row)
        tables[f"{shape}, unequal windows"] = rows
        title = f"Figure 7: % of saturation throughput, {shape}, the window of D a tenth of the others"
        report.sections.append(Section(f"resources_{shape}_unequal", title, rows))
        report.checks += _check_margin(f"{shape}_unequal", rows, MARGINS[shape])
    labels = ("% of saturation resources", "% of saturation throughput")
    report.figures["jaqpot-figure-7-unequal.png"] = figures.draw_curves(
        list(tables.items()), "resources", labels, "Figure 7: unequal windows"
    )
    at_60 = next(row for row in tables["linear, unequal windows"] if row["resources"] == 60)
    name, unit = "throughput_at_60_percent_linear_unequal", "% of saturation throughput"
    report.checks.append(
        check_at_least_unless(name, at_60["steady"], 80, at_60["optimum"], "the optimum has less", unit)
    )


def _report_analysis(report: Report, runs: dict[str, list[BudgetRun]]) -> None:
    """CPU of the analysis while the engine runs: it reads the statistics, and divides the budget if they changed."""
    rows: list[ReportRow] = []
    for policy, found in runs.items():
        seconds, calls = sum(each.timer.seconds for each in found), sum(each.timer.calls for each in found)
        part = seconds / sum(each.cpu for each in found)
        rows.append({"policy": policy, "looks": calls, "milliseconds": 1000 * seconds / calls, "part_of_cpu": part})
    report.sections.append(Section("analysis", "Analysis while running, per call", rows))
    slowest = max(row["milliseconds"] for row in rows if row["policy"] in OWN_POLICIES)
    report.checks.append(check_at_most("analysis_per_look", slowest, 5, "ms, statistics and division"))


class _WarmWorkload:
    """A workload with full windows: its exact run and its load."""

    def __init__(self, workload: Workload, warm: float) -> None:
        self.workload = workload
        self.warm_seconds = warm
        self.exact = run_workload(workload, None, warm_seconds=warm)
        self.load = measure_load(workload, warm)

    def run_under(self, mu: float, policy: str) -> BudgetRun:
        return run_workload(self.workload, mu, policy, self.warm_seconds)

    def compute_share(self, run: BudgetRun) -> float:
        """The results of a run over those of the exact run."""
        return run.total / self.exact.total

    def count_excess_pushes(self, run: BudgetRun) -> int:
        """The number of pushes with more results than in the exact run."""
        return sum(part > whole for part, whole in zip(run.results, self.exact.results, strict=True))

    def find_optimum(self, part: float) -> float:
        """The highest completeness in the steady state with a part of the saturation resources."""
        return compute_completeness(self.load, allocate_steady(self.load, part * self.load.saturation))


def _check_margin(name: str, rows: Sequence[ReportRow], goal: float) -> list[Check]:
    """The mean of our results over those of the best heuristic, and over the optimum, which no policy exceeds."""
    best = [max(row[policy] for policy in PAPER_HEURISTICS) for row in rows]
    ours = _compute_mean(row["steady"] / rival for row, rival in zip(rows, best, strict=True))
    possible = _compute_mean(row["optimum"] / rival for row, rival in zip(rows, best, strict=True))
    reached = _compute_mean(row["steady"] / row["optimum"] for row in rows)
    unit = "times, steady over the best of the paper's four"
    return [
        check_at_least_unless(f"margin_over_best_heuristic_{name}", ours, goal, possible, "the optimum has less", unit),
        check_at_least(f"part_of_optimum_{name}", reached, 0.9, "of the best that lasts"),
    ]


def _compute_mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


# ── Figure 8: sensors ────────────────────────────────────────────────────────────────────────────────────────────────


def _report_sensors(report: Report, scale: JaqpotScale, step: ProgressStep) -> None:
    point = _WarmWorkload(SensorWorkload(scale.sensor_hours), scale.warm_seconds)
    panels: list[tuple[str, Sequence[ReportRow]]] = []
    rows: list[ReportRow] = []
    for mu in (300, 600, 900):
        step(f"Figure 8, μ = {mu}")
        found = {policy: point.run_under(mu, policy).counted_results for policy in ALL_POLICIES}
        panels.append((f"μ = {mu}", _sum_by_minute(found, 10)))
        row: ReportRow = {"mu": mu, "resources": 100 * mu / point.exact.probes}
        row["optimum"] = 100 * point.find_optimum(mu / point.exact.probes)
        rows.append(row | {policy: 100 * sum(each) / point.exact.total for policy, each in found.items()})
    report.sections.append(Section("sensors", "Figure 8: % of all results, five groups of sensors", rows))
    labels = ("tenths of the run", "results so far")
    report.figures["jaqpot-figure-8.png"] = figures.draw_curves(
        panels, "minute", labels, "Figure 8: results on data of sensors, μ probes per second"
    )
    report.checks += _check_margin("sensor", rows, MARGINS["sensor"])


# ── Figure 9: staleness ──────────────────────────────────────────────────────────────────────────────────────────────


def _report_staleness(report: Report, scale: JaqpotScale, step: ProgressStep) -> None:
    """The fraction of stale results in the execution model of the paper, at 30 % of the saturation resources."""
    panels: list[tuple[str, Sequence[ReportRow]]] = []
    worst = {"jaqpot": 0.0, "lp": 0.0, "grepp": 0.0}
    for shape in PLANS:
        step(f"Figure 9, {shape}")
        rows: list[ReportRow] = []
        for times in scale.freshness:
            feasible = list(_generate_feasible(shape, times, scale.settings))
            row: ReportRow = {"freshness": f"{times:g} x", "plans": len(feasible)}
            for policy in ("grepp", "jaqpot", "lp", *PAPER_HEURISTICS) if feasible else ():
                row[policy] = _compute_mean(
                    _compute_stale_share(load, refreshes, times, policy) for load, refreshes in feasible
                )
            if feasible:
                rows.append(row)
                worst = {policy: max(value, row[policy]) for policy, value in worst.items()}
        panels.append((shape, rows))
        report.sections.append(Section(f"stale_{shape}", f"Figure 9: fraction of stale results, {shape}", rows))
    report.figures["jaqpot-figure-9.png"] = figures.draw_bars(
        panels,
        "freshness",
        "stale part of results",
        "Figure 9: stale results without the set cover, by freshness in windows",
    )
    report.checks += [
        check_at_most("stale_jaqpot", worst["jaqpot"], 0, "of the results, paper's model"),
        check_at_most("stale_lp", worst["lp"], 0, "of the results, paper's model"),
        Check("stale_grepp", round(worst["grepp"], 4), "of the results, paper's model", "> 0", worst["grepp"] > 0),
    ]


def _generate_feasible(shape: str, times: float, count: int) -> Iterator[tuple[PlanLoad, RefreshRates]]:
    """Up to `count` random plans whose freshness is feasible at 30 % of saturation."""
    rng = random.Random(f"{shape} {times}")
    *_, root = list_joins(build_tree(shape))
    for _ in range(100):
        if not count:
            return
        load = generate_load(root, rng, sizes=(100, 250), rates=(40, 120), productivity=(6, 12))
        at_root = {side: rng.uniform(0.2, 0.6) for side, _ in list_directions(root)}  # few results are enough
        load = PlanLoad(root, load.rates, {**load.productivity, **at_root}, load.states)
        planned = {alias: PLANNED_SHARE * bound for alias, bound in compute_freshness(load, times).items()}
        refreshes = compute_refresh_rates(load, planned)
        if allocate(load, 0.3 * load.saturation, "jaqpot", refreshes).feasible:
            count -= 1
            yield load, refreshes


def _compute_stale_share(load: PlanLoad, refreshes: RefreshRates, times: float, policy: str) -> float:
    table = allocate(load, 0.3 * load.saturation, policy, refreshes).allowances
    freshness = compute_freshness(load, times)
    longest = max(freshness.values())
    return CountModel(load, table).compute_stale_fraction(freshness, 1.5 * longest, longest)
