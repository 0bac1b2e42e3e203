"""Lab `jit`, Figures 10 to 17 of the JIT paper: REF (`eager`) against JIT (`jit`); also `lazy`, `auto`, `none`.

Every point of Table III runs under each policy. The lab measures CPU seconds, the best of some rounds, and counts rows
built, comparisons, peak rows and bytes, which depend on the data alone. `runs` says how the comparisons of a
nested-loop join are counted; `clique` has the data.

The paper's cliques have no results at nearly all points (15 equalities between 6 streams), so JIT resumes almost
nothing there, which is its best case. The lab adds twelve points with many results and three with hot tuples, and
compares the results of policies on the points that have some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.lab.papers.jit.clique import DEFAULTS, HOT, SWEEPS, WITH_RESULTS, Clique, Shape, Sweep
from penstock.lab.papers.jit.figures import draw_sweep
from penstock.lab.papers.jit.runs import POLICIES, PolicyOutcome, Tally, run_policies
from penstock.lab.report import Check, Report, ReportRow, Section, check_at_least, check_at_most, check_equals
from penstock.progress import ProgressStep, show_progress

LABELS = {"eager": "REF (eager)", "jit": "JIT"}

BUSHY_GOAL = 5
LEFT_DEEP_GOAL = 10
"""How many times fewer comparisons than REF, with a scan of the window for every newly demanded key.

One driver of a bushy plan is built in full, and each of its keys is searched for: the gain is below the paper's.
"""

AUTO_GOAL = 1.15
"""`auto` over the best of eager, lazy, jit and none, in processor time."""
MOST_CHANGES = 3
"""How often `auto` may change the policy of one node."""


@dataclass(frozen=True)
class JitScale:
    """How much is measured: the values of each parameter, the event time of a run, and the rounds of timing.

    A run lasts `hours`, or `windows` windows if that is less.
    """

    sweeps: tuple[Sweep, ...] = SWEEPS
    with_results: tuple[Clique, ...] = WITH_RESULTS
    hot: tuple[Clique, ...] = HOT
    hours: float = 5
    windows: float = 100
    default_windows: float = 100
    rounds: int = 3
    fast_hours: float = 1
    fast_rounds: int = 2

    @property
    def defaults(self) -> dict[Shape, Clique]:
        return {shape: self._limit_hours(point, self.default_windows) for shape, point in DEFAULTS.items()}

    def list_points(self, sweep: Sweep) -> list[Clique]:
        """The points of a sweep. The point with default values is the one of `defaults`."""
        defaults = {replace(point, hours=0): point for point in self.defaults.values()}
        return [
            defaults.get(replace(point, hours=0)) or self._limit_hours(point, self.windows)
            for point in sweep.list_points()
        ]

    @property
    def fast_point(self) -> Clique:
        """Ten times the default rate, so a hundred times the rows of a join."""
        return replace(DEFAULTS["left-deep"], rate=10, hours=self.fast_hours)

    def _limit_hours(self, point: Clique, windows: float) -> Clique:
        return replace(point, hours=min(self.hours, windows * point.minutes / 60))


FULL = JitScale()
QUICK = JitScale(
    sweeps=tuple(replace(sweep, values=(sweep.values[0], sweep.values[-1])) for sweep in SWEEPS),
    windows=2,
    default_windows=6,
    rounds=2,
    fast_hours=0.2,
    fast_rounds=1,
)


@dataclass(frozen=True)
class MeasuredPoint:
    """A point under every policy."""

    point: Clique
    outcomes: dict[str, PolicyOutcome]

    @property
    def cpu(self) -> dict[str, float]:
        return {state: outcome.cpu for state, outcome in self.outcomes.items()}

    @property
    def tallies(self) -> dict[str, Tally]:
        return {state: outcome.tally for state, outcome in self.outcomes.items()}

    def build_rows(self, name: str, value: float) -> list[ReportRow]:
        return [
            {
                name: value,
                "policy": LABELS.get(state, state),
                "cpu_seconds": round(self.cpu[state], 4),
                **self.tallies[state].as_row(),
            }
            for state in POLICIES
        ]

    @property
    def auto_over_best(self) -> float:
        """Processor time of `auto` over the least of the policies that do not change."""
        return self.cpu["auto"] / min(cpu for state, cpu in self.cpu.items() if state != "auto")

    @property
    def agreeing_policies(self) -> int:
        """The number of other policies that return exactly the rows of REF."""
        return sum(self.tallies[state].has_same_answer(self.tallies["eager"]) for state in POLICIES if state != "eager")

    def compute_gain(self, count: str) -> float:
        """The count of REF over that of JIT. If JIT's count is 0, this is REF's count, a lower bound."""
        ref, jit = (float(getattr(self.tallies[state], count)) for state in ("eager", "jit"))
        return ref / max(jit, 1)

    def build_gain_row(self) -> ReportRow:
        point = self.point
        return {
            "shape": point.shape,
            "w": point.minutes,
            "rate": point.rate,
            "N": point.sources,
            "dmax": point.dmax,
            "cpu": self.cpu["eager"] / self.cpu["jit"],
            "nested_loop": self.compute_gain("nested_loop"),
            "hashed": self.compute_gain("nested_loop_hashed"),
            "built": self.compute_gain("built"),
            "state_rows": self.compute_gain("peak_state_rows"),
            "bytes": self.compute_gain("peak_bytes"),
            "results": self.tallies["eager"].results,
            "resumed": self.tallies["jit"].resumed,
            "auto_over_best": round(self.auto_over_best, 3),
            "auto_changes": self.tallies["auto"].changes,
        }


def run(quick: bool = False, scale: JitScale | None = None) -> Report:
    scale = scale or (QUICK if quick else FULL)
    report = Report("jit", quick)
    swept = [point for sweep in scale.sweeps for point in scale.list_points(sweep)]
    points = dict.fromkeys([*scale.defaults.values(), *swept, *scale.with_results, *scale.hot])
    with show_progress("lab jit", len(points) + 2) as step:
        step("warming up")
        _warm_up()
        measured = {point: _measure(point, scale.rounds, step) for point in points}
        measured[scale.fast_point] = _measure(scale.fast_point, scale.fast_rounds, step)
    for sweep in scale.sweeps:
        _report_sweep(sweep, scale, measured, report)
    fast = measured[scale.fast_point]
    report.sections += [
        Section(
            "fruitful", "Not in the paper: points with many results", _build_result_rows(scale.with_results, measured)
        ),
        Section("hot", "Not in the paper: one tuple in a hundred is hot", _build_result_rows(scale.hot, measured)),
        Section("fast", "Left-deep at ten times the default rate", fast.build_rows("rate", fast.point.rate)),
        Section(
            "mns",
            "Default points under JIT: suppressed rows by the type of their MNS",
            _build_mns_rows(scale, measured),
        ),
        Section("gains", "REF over JIT, and auto over the best of the others", _build_gain_rows(measured)),
    ]
    report.checks += _build_checks(scale, measured)
    return report


def _warm_up() -> None:
    """Compile the kernels that the runs need."""
    for point in DEFAULTS.values():
        run_policies(replace(point, hours=point.minutes / 30), 1)


def _measure(point: Clique, rounds: int, step: ProgressStep) -> MeasuredPoint:
    step(f"{point.shape}: w={point.minutes:g} min, λ={point.rate:g}/s, N={point.sources}, dmax={point.dmax}")
    return MeasuredPoint(point, run_policies(point, rounds))


def _report_sweep(sweep: Sweep, scale: JitScale, measured: dict[Clique, MeasuredPoint], report: Report) -> None:
    """The table and the figure of one sweep."""
    found = [measured[point] for point in scale.list_points(sweep)]
    rows = [
        row
        for value, point in zip(sweep.values, found, strict=True)
        for row in point.build_rows(sweep.parameter, value)
    ]
    title = f"Figure {sweep.figure}: {sweep.shape} plan against {sweep.label}"
    report.sections.append(Section(f"figure_{sweep.figure}", title, rows))
    report.figures[f"jit-figure-{sweep.figure}.png"] = draw_sweep(sweep, rows)


def _build_mns_rows(scale: JitScale, measured: dict[Clique, MeasuredPoint]) -> list[ReportRow]:
    return [{"shape": shape, **measured[point].tallies["jit"].as_mns_row()} for shape, point in scale.defaults.items()]


def _build_result_rows(points: Sequence[Clique], measured: dict[Clique, MeasuredPoint]) -> list[ReportRow]:
    return [{"shape": point.shape, **row} for point in points for row in measured[point].build_rows("dmax", point.dmax)]


def _build_gain_rows(measured: dict[Clique, MeasuredPoint]) -> list[ReportRow]:
    return [point.build_gain_row() for point in measured.values()]


def _build_checks(scale: JitScale, measured: dict[Clique, MeasuredPoint]) -> list[Check]:
    bushy, left_deep = (measured[point] for point in scale.defaults.values())
    fast = measured[scale.fast_point]
    below = 100 * (1 - bushy.tallies["jit"].peak_state_rows / max(bushy.tallies["eager"].peak_state_rows, 1))
    worst = max(point.auto_over_best for point in measured.values())
    changes = max(point.tallies["auto"].changes for point in measured.values())
    with_results = [point for point in measured.values() if point.tallies["eager"].results]
    none_built = "" if left_deep.tallies["jit"].built else " (JIT built 0: this is REF's count)"
    return [
        check_at_least("bushy_nested_loop_ref_over_jit", bushy.compute_gain("nested_loop"), BUSHY_GOAL, "times"),
        check_at_least("bushy_peak_state_rows_below_ref", below, 62, "%"),
        check_at_least("left_deep_built_ref_over_jit", left_deep.compute_gain("built"), 10_000, f"times{none_built}"),
        check_at_least(
            "left_deep_nested_loop_ref_over_jit", left_deep.compute_gain("nested_loop"), LEFT_DEEP_GOAL, "times"
        ),
        check_at_least("left_deep_10x_rate_cpu_ref_over_jit", fast.cpu["eager"] / fast.cpu["jit"], 4, "times"),
        check_at_most("auto_over_best_of_others", worst, AUTO_GOAL, "times, worst point"),
        check_at_most("auto_changes_of_a_node", changes, MOST_CHANGES, "changes, worst point"),
        check_at_least("points_with_results", len(with_results), len(scale.with_results), "points"),
        check_equals(
            "answers_as_ref",
            sum(point.agreeing_policies for point in with_results),
            len(with_results) * (len(POLICIES) - 1),
            "runs of points with results",
        ),
    ]
