"""Figure 19 of the State-Slice paper: many windows (Table 4), and the cost of a slice.

The paper compares Mem-Opt with CPU-Opt chains. Without filters the engine runs both as one join: its results are sorted
by age once, and merging slices changes neither state nor work. So the engine is compared with one join and a router,
which is the chain with all slices merged, and with one join for each query.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from penstock.lab.papers.state_slice import figures
from penstock.lab.papers.state_slice.rivals import PullUp, StateSlice, Unshared
from penstock.lab.papers.state_slice.runs import BuildSharing, run_side_by_side
from penstock.lab.papers.state_slice.scale import SliceScale
from penstock.lab.papers.state_slice.streams import SECOND, PoissonStreams, SliceQuery, build_engine
from penstock.lab.report import Report, ReportRow, Section, check_at_least, check_at_most
from penstock.lab.timing import TurnTimer
from penstock.plan import Rates, SharedWindows, choose_cpu_opt_chain, choose_mem_opt_chain, compute_slice_cost
from penstock.progress import ProgressStep

TABLE_4: dict[str, tuple[float, ...]] = {
    "uniform": tuple(2.5 * step for step in range(1, 13)),
    "mostly-small": (*range(1, 11), 20, 30),
    "small-large": (1, 2, 3, 4, 5, 6, 25, 26, 27, 28, 29, 30),
}
MODEL_RATES = Rates(40, 40, 0.025)
OVERHEAD = 0.5
"""A value of C_sys for which, at these rates, the windows of Table 4 are merged as in the paper."""


def spread_windows(ends: Sequence[float], count: int) -> tuple[float, ...]:
    """Table 4 for `count` queries: the distance between two windows is divided evenly."""
    more = count // len(ends)
    gaps = pairwise((0, *ends))
    return tuple(round(start + (end - start) * part / more, 3) for start, end in gaps for part in range(1, more + 1))


def report_chains(report: Report, scale: SliceScale, step: ProgressStep) -> None:
    """Compare the engine with its rivals, and the paper's chains by the model."""
    rows = []
    rate, joins = scale.rates[-1], scale.joins[0]
    pushes = list(PoissonStreams(rate, scale.seconds, joins).generate_pushes())
    for name, ends in TABLE_4.items():
        step(f"chains, {name}")
        for count in scale.counts:
            windows = SharedWindows(spread_windows(ends, count))
            queries = [SliceQuery(round(end * SECOND)) for end in windows.ends]
            chains: dict[str, BuildSharing] = {"state_slice": StateSlice, "pull_up": PullUp, "unshared": Unshared}
            found = run_side_by_side(queries, pushes, scale.rounds, chains)
            rates = {f"{chain}_s": round(outcome.rate) for chain, outcome in found.items()}
            gain = round(rates["state_slice_s"] / rates["unshared_s"], 3)
            rows.append(
                {"windows": name, "queries": count, **rates, "over_unshared": gain, **_build_model_row(windows)}
            )
    title = "Figure 19: results per second of CPU, all tables built, and the best chain by the model"
    report.sections.append(Section("chains", title, rows))
    report.figures["slice-figure-19.png"] = figures.draw_chains(rows)
    _report_slice_cost(report, scale, step)
    gains = [row["over_unshared"] for row in rows if row["queries"] == scale.counts[-1]]
    unit = f"times the service rate of unshared joins, {scale.counts[-1]} queries, the worst of Table 4"
    report.checks.append(check_at_least("service_rate_over_unshared", min(gains), 3, unit))


def _build_model_row(windows: SharedWindows) -> ReportRow:
    """The best chain by the paper's model: its number of slices, and the cost of all slices over its cost."""
    found: ReportRow = {}
    for name, overhead in (("", OVERHEAD), ("_c10", 10.0)):
        best = choose_cpu_opt_chain(windows, MODEL_RATES, overhead, "lookup")
        costs = [
            compute_slice_cost(windows, MODEL_RATES, chain, overhead, "lookup").cpu
            for chain in (choose_mem_opt_chain(windows), best)
        ]
        found |= {f"cpu_opt_slices{name}": len(best), f"model_gain{name}": round(costs[0] / costs[1], 3)}
    return found


def _report_slice_cost(report: Report, scale: SliceScale, step: ProgressStep) -> None:
    """The CPU of pushes of the same number of queries with few and many windows. No result table is built.

    All windows over one window is the most that merging of slices can save.
    """
    step("the cost of a slice")
    count = scale.counts[-1]
    longest = scale.scaling_window * SECOND
    pushes = list(scale.scaling_streams.generate_pushes())
    kinds = sorted({1, count // 6, count})
    rounds = max(2, scale.rounds)
    timer = TurnTimer(kinds, rounds, len(pushes))
    for number in range(rounds):
        running = {
            kind: build_engine(
                queries=[SliceQuery(longest - place % kind * (longest // (2 * kind))) for place in range(count)]
            )
            for kind in kinds
        }
        for at, push in enumerate(pushes):
            for kind in timer.order(at):
                timer.run(kind, number, at, partial(running[kind].push, push))
    half = len(pushes) // 2
    spent = {kind: timer.total(kind, half) for kind in kinds}
    tuples = sum(table.num_rows for push in pushes[half:] for table in push.values())
    each = (spent[kinds[-1]] - spent[1]) / (kinds[-1] - 1)
    rows = [
        {"queries": count, "windows": kind, "seconds": spent[kind], "over_one_window": round(spent[kind] / spent[1], 4)}
        for kind in kinds
    ]
    report.sections.append(Section("slice_cost", f"{count} queries with few and many windows, no tables built", rows))
    report.checks += [
        check_at_most("all_windows_vs_one", spent[kinds[-1]] / spent[1], 1.2, f"times the CPU, {count} windows"),
        check_at_most("overhead_of_a_slice", 1e9 * each / tuples, 10, "ns for each slice and tuple"),
    ]
