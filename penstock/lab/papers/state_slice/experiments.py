"""The experiments of the State-Slice paper (section 7): many queries over one join, and what they cost together.

Figures 17 and 18 (Table 3): state and service rate of three queries beside selection pull-up, push-down by stream
partition, and no sharing. Figure 19 (Table 4): what a slice costs. And beyond the paper: up to 10,000 queries, and
queries that come and go under load.

In Figures 17 to 19 every table is looked at. Bytes of state are those of the rows held (`row`), and those of the rings
made for them (`ring`), which grow by doubling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from time import process_time

import numpy as np

from penstock.lab.papers.state_slice import figures
from penstock.lab.papers.state_slice.rivals import CpuOpt, PullUp, StateSlice
from penstock.lab.papers.state_slice.runs import (
    CHANGES,
    BuildSharing,
    ChangeTimes,
    QueryMix,
    StrategyOutcome,
    compute_mean_minimum,
    measure_changes,
    measure_scaling,
    run_side_by_side,
)
from penstock.lab.papers.state_slice.streams import SECOND, PoissonStreams, PushTables, SliceQuery, build_engine
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
from penstock.plan.slice_cost import (
    Rates,
    SharedWindows,
    choose_cpu_opt_chain,
    choose_mem_opt_chain,
    compute_pull_up_cost,
    compute_push_down_cost,
    compute_slice_cost,
)
from penstock.progress import ProgressStep, show_progress

TABLE_3 = {"mostly-small": (5, 10, 30), "uniform": (10, 20, 30), "mostly-large": (20, 25, 30)}
SIGMAS = (0.2, 0.5, 0.8)
JOINS = (0.025, 0.1, 0.4)
TABLE_4: dict[str, tuple[float, ...]] = {
    "uniform": tuple(2.5 * step for step in range(1, 13)),
    "mostly-small": (*range(1, 11), 20, 30),
    "small-large": (1, 2, 3, 4, 5, 6, 25, 26, 27, 28, 29, 30),
}
MODEL_RATES = Rates(40, 40, 0.025)
OVERHEAD = 0.5
"""A C_sys by which, at these rates, Table 4's windows are merged as the paper says."""
SCALING_STREAMS = PoissonStreams(2_000, 60, 5e-5)


@dataclass(frozen=True)
class SliceScale:
    """How much is measured. The paper: 20 to 80 tuples per second for 90 seconds, starting from nothing."""

    seconds: int = 90
    rates: tuple[int, ...] = (20, 40, 60, 80)
    memory_rates: tuple[int, ...] = (500, 1_000, 2_000)
    """State does not depend on S_⋈: so it is measured at rates at which the room that small rings waste is small."""
    sigmas: tuple[float, ...] = SIGMAS
    joins: tuple[float, ...] = JOINS
    counts: tuple[int, ...] = (12, 24, 36)
    query_counts: tuple[int, ...] = (1, 10, 100, 1_000, 10_000)
    scaling_streams: PoissonStreams = SCALING_STREAMS
    scaling_window: int = 20
    filters: int = 20
    sample: int = 5
    changing_queries: int = 100
    """How many queries run while others come and go."""
    rounds: int = 3


FULL = SliceScale()
QUICK = SliceScale(
    seconds=36, rates=(80,), memory_rates=(1_000,), sigmas=(0.2, 0.5, 0.8), counts=(12, 36),
    query_counts=(1, 10, 100, 1_000), scaling_streams=replace(SCALING_STREAMS, seconds=40), rounds=1,
)  # fmt: skip


def run(quick: bool = False, scale: SliceScale | None = None) -> Report:
    scale = scale or (QUICK if quick else FULL)
    report = Report("slice", quick)
    settings = len(TABLE_3) * len(scale.sigmas)
    total = 1 + settings * (1 + len(scale.joins)) + len(TABLE_4) + 1 + len(scale.query_counts) + 1
    with show_progress("lab slice", total) as step:
        step("warming up")
        _warm_up()
        _report_memory(report, scale, step)
        _report_service_rate(report, scale, step)
        _report_chains(report, scale, step)
        _report_scaling(report, scale, step)
        _report_changes(report, scale, step)
    return report


def _warm_up() -> None:
    """Compiled loops and first imports belong to nobody."""
    run_side_by_side(
        [SliceQuery(SECOND), SliceQuery(2 * SECOND, 0.5)], list(PoissonStreams(50, 4, 0.1).generate_pushes()), 1
    )


def _build_three_queries(ends: Sequence[int], sigma: float) -> list[SliceQuery]:
    first, *others = ends
    return [SliceQuery(first * SECOND), *(SliceQuery(end * SECOND, sigma) for end in others)]


# ── Figure 17: state ─────────────────────────────────────────────────────────────────────────────────────────────────


def _report_memory(report: Report, scale: SliceScale, step: ProgressStep) -> None:
    rows = []
    for (name, ends), sigma in product(TABLE_3.items(), scale.sigmas):
        step(f"state, {name}, S_σ {sigma}")
        queries = _build_three_queries(ends, sigma)
        model = SharedWindows(tuple(ends), (1, sigma, sigma))
        for rate in scale.memory_rates:
            pushes = list(PoissonStreams(rate, max(scale.seconds, ends[-1] + 6), 1 / (4 * rate)).generate_pushes())
            found = run_side_by_side(queries, pushes, 1)
            rows.append(
                {"windows": name, "sigma": sigma, "rate": rate, **_build_state_row(found, queries, pushes, model)}
            )
    report.sections.append(
        Section("memory", "Figure 17: state by setting of Table 3, mean once windows are full", rows)
    )
    report.figures["slice-figure-17.png"] = figures.draw_memory(rows, max(scale.memory_rates))
    report.checks += [
        check_at_most("rows_vs_minimum", max(row["over_minimum"] for row in rows), 1.05, "times, the worst setting"),
        _check_saved("pull_up", _compute_mean(rows, "saved_up"), _compute_mean(rows, "model_up")),
        _check_saved("push_down", _compute_mean(rows, "saved_down"), _compute_mean(rows, "model_down")),
        check_at_least(
            "rows_saved_over_the_worse_rival", _compute_mean(rows, "rows_saved_worse"), 0.2,
            "of the rows of the worse of the two, mean of all settings",
        ),
        check_at_most(
            "rows_saved_vs_equation_4", max(abs(row["rows_saved_up"] - row["model_up"]) for row in rows), 0.02,
            "share of pull-up's rows, the largest difference",
        ),
    ]  # fmt: skip


def _build_state_row(
    found: dict[str, StrategyOutcome], queries: Sequence[SliceQuery], pushes: Sequence[PushTables], model: SharedWindows
) -> ReportRow:
    states = {name: outcome.state for name, outcome in found.items()}
    own, rates = states["state_slice"], Rates(1, 1, 0)
    chain = compute_slice_cost(model, rates, choose_mem_opt_chain(model))
    least = compute_mean_minimum(queries, pushes)
    return {
        "rows": own.rows, "minimum": round(least), "over_minimum": round(own.rows / least, 4),
        **{f"{name}_row_kib": round(state.row_bytes / 1024) for name, state in states.items()},
        **{f"{name}_ring_kib": round(state.allocated_bytes / 1024) for name, state in states.items()},
        "saved_up": round(1 - own.row_bytes / states["pull_up"].row_bytes, 4),
        "saved_down": round(1 - own.row_bytes / states["push_down"].row_bytes, 4),
        "rows_saved_up": round(1 - own.rows / states["pull_up"].rows, 4),
        "rows_saved_down": round(1 - own.rows / states["push_down"].rows, 4),
        "rows_saved_worse": round(1 - own.rows / max(states["pull_up"].rows, states["push_down"].rows), 4),
        "model_up": round(chain.compute_savings(compute_pull_up_cost(model, rates)).memory, 4),
        "model_down": round(chain.compute_savings(compute_push_down_cost(model, rates)).memory, 4),
    }  # fmt: skip


def _check_saved(rival: str, saved: float, model: float) -> Check:
    """No exact plan holds fewer rows than Equation 4 says; `rows_vs_minimum` tells how near to it this one comes."""
    unit = f"of its bytes, mean of all settings; the fewest rows there can be save {model:.3g}"
    return check_at_least(f"bytes_saved_over_{rival}", saved, 0.2, unit)


def _compute_mean(rows: Sequence[ReportRow], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


# ── Figure 18: service rate ──────────────────────────────────────────────────────────────────────────────────────────


def _report_service_rate(report: Report, scale: SliceScale, step: ProgressStep) -> None:
    rows: list[ReportRow] = []
    for (name, ends), sigma, joins in product(TABLE_3.items(), scale.sigmas, scale.joins):
        step(f"service rate, {name}, S_σ {sigma}, S_⋈ {joins}")
        for rate in scale.rates:
            found = run_side_by_side(
                _build_three_queries(ends, sigma),
                list(PoissonStreams(rate, scale.seconds, joins).generate_pushes()),
                scale.rounds,
            )
            same = len({outcome.results for outcome in found.values()}) == 1
            rates = {f"{contender}_s": round(outcome.rate) for contender, outcome in found.items()}
            best = max(value for contender, value in rates.items() if contender != "state_slice_s")
            rows.append({
                "windows": name, "sigma": sigma, "joins": joins, "rate": rate, **rates,
                "over_best_rival": round(rates["state_slice_s"] / best, 3),
                "results": found["state_slice"].results if same else -1,
            })  # fmt: skip
    title = "Figure 18: results given to queries per second of CPU, all tables looked at"
    report.sections.append(Section("service_rate", title, rows))
    report.figures["slice-figure-18.png"] = figures.draw_service_rate(rows)
    top = [row for row in rows if row["rate"] == scale.rates[-1] and row["joins"] == scale.joins[-1]]
    report.checks += [
        check_equals("service_results_differ", sum(row["results"] < 0 for row in rows), 0, "of all settings"),
        check_at_least(
            "service_rate_vs_best_rival", min(row["over_best_rival"] for row in rows), 1, "times, the worst"
        ),
        check_at_least(
            "service_rate_where_most_results",
            max(row["over_best_rival"] for row in top),
            1.4,
            "times the best rival's, highest rate and S_⋈, the best setting",
        ),
    ]


# ── Figure 19: chains ────────────────────────────────────────────────────────────────────────────────────────────────


def spread_windows(ends: Sequence[float], count: int) -> tuple[float, ...]:
    """Table 4 for more queries: every window is divided among as many as are needed."""
    more = count // len(ends)
    gaps = pairwise((0, *ends))
    return tuple(round(start + (end - start) * part / more, 3) for start, end in gaps for part in range(1, more + 1))


def _report_chains(report: Report, scale: SliceScale, step: ProgressStep) -> None:
    """The engine beside one join with a router, which is the chain with all slices merged; the model beside both."""
    rows = []
    rate, joins = scale.rates[-1], scale.joins[0]
    pushes = list(PoissonStreams(rate, scale.seconds, joins).generate_pushes())
    for name, ends in TABLE_4.items():
        step(f"chains, {name}")
        for count in scale.counts:
            windows = SharedWindows(spread_windows(ends, count))
            queries = [SliceQuery(round(end * SECOND)) for end in windows.ends]
            chains: dict[str, BuildSharing] = {"state_slice": StateSlice, "cpu_opt": CpuOpt, "pull_up": PullUp}
            found = run_side_by_side(queries, pushes, scale.rounds, chains)
            rates = {f"{chain}_s": round(outcome.rate) for chain, outcome in found.items()}
            gain = round(rates["cpu_opt_s"] / rates["state_slice_s"], 3)
            rows.append({"windows": name, "queries": count, **rates, "cpu_opt_gain": gain, **_build_model_row(windows)})
    title = "Figure 19: results per second of CPU, and slices of the best chain by the model"
    report.sections.append(Section("chains", title, rows))
    report.figures["slice-figure-19.png"] = figures.draw_chains(rows)
    merging = _report_slice_cost(report, scale, step)
    gains = [row["cpu_opt_gain"] for row in rows if row["queries"] == scale.counts[-1] and row["windows"] != "uniform"]
    unit = f"times its service rate, {scale.counts[-1]} queries, skewed windows"
    why = "all slices merged save less"
    report.checks.append(check_at_least_unless("cpu_opt_vs_mem_opt", max(gains), 1.2, merging, why, unit))


def _build_model_row(windows: SharedWindows) -> ReportRow:
    """What the paper's model says of the best chain: how many slices, and how many comparisons that saves."""
    found: ReportRow = {}
    for name, overhead in (("", OVERHEAD), ("_c10", 10.0)):
        best = choose_cpu_opt_chain(windows, MODEL_RATES, overhead, "lookup")
        costs = [
            compute_slice_cost(windows, MODEL_RATES, chain, overhead, "lookup").cpu
            for chain in (choose_mem_opt_chain(windows), best)
        ]
        found |= {f"cpu_opt_slices{name}": len(best), f"model_gain{name}": round(costs[0] / costs[1], 3)}
    return found


def _report_slice_cost(report: Report, scale: SliceScale, step: ProgressStep) -> float:
    """The same number of queries with more and more windows: pushes alone, nobody looks. The runs take turns.

    Returns what all windows take against one: more than that no merging of slices can save.
    """
    step("the cost of a slice")
    count = scale.counts[-1]
    longest = scale.scaling_window * SECOND
    pushes = list(scale.scaling_streams.generate_pushes())
    kinds = sorted({1, count // 6, count})
    rounds = max(2, scale.rounds)
    seconds = {kind: np.zeros((rounds, len(pushes))) for kind in kinds}
    for number in range(rounds):
        running = {
            kind: build_engine(
                queries=[SliceQuery(longest - place % kind * (longest // (2 * kind))) for place in range(count)]
            )
            for kind in kinds
        }
        for at, push in enumerate(pushes):
            for kind in kinds if at % 2 else reversed(kinds):
                begin = process_time()
                running[kind].push(push)
                seconds[kind][number, at] = process_time() - begin
    half = len(pushes) // 2
    spent = {kind: float(times.min(axis=0)[half:].sum()) for kind, times in seconds.items()}
    tuples = sum(table.num_rows for push in pushes[half:] for table in push.values())
    each = (spent[kinds[-1]] - spent[1]) / (kinds[-1] - 1)
    rows = [
        {"queries": count, "windows": kind, "seconds": spent[kind], "over_one_window": round(spent[kind] / spent[1], 4)}
        for kind in kinds
    ]
    report.sections.append(Section("slice_cost", f"{count} queries with more and more windows, nobody looks", rows))
    report.checks += [
        check_at_most("all_windows_vs_one", spent[kinds[-1]] / spent[1], 1.2, f"times the CPU, {count} windows"),
        check_at_most("overhead_of_a_slice", 1e9 * each / tuples, 10, "ns for each slice and tuple"),
    ]
    return spent[kinds[-1]] / spent[1]


# ── ten thousand queries ─────────────────────────────────────────────────────────────────────────────────────────────


def _report_scaling(report: Report, scale: SliceScale, step: ProgressStep) -> None:
    """Nobody looks at tables but at those of a sample, in a second run of the same pushes."""
    pushes = list(scale.scaling_streams.generate_pushes())
    rows: list[ReportRow] = []
    wrong = 0
    for count in scale.query_counts:
        step(f"{count:,} queries")
        crowd = QueryMix(count, scale.scaling_window * SECOND, scale.filters)
        sample = sorted({int(place) for place in np.linspace(0, count - 1, scale.sample)})
        found = measure_scaling(crowd.build_queries(), pushes, sample, max(2, scale.rounds))
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
    title = f"Many queries, {scale.filters} filters, windows up to {scale.scaling_window} s: CPU of pushes once full"
    report.sections.append(Section("crowds", title, rows))
    report.figures["slice-crowds.png"] = figures.draw_scaling(rows)
    last = rows[-1]
    report.checks += [
        check_equals("sampled_queries_differ", wrong, 0, "of all samples"),
        check_at_most(
            "cpu_vs_largest_query", last["times_one"], 3, f"times, {last['queries']:,} queries, nobody looks"
        ),
        check_at_most(
            "row_bytes_vs_largest_query", last["times_one_row_kib"], 1.2, f"times, {last['queries']:,} queries"
        ),
        check_at_most(
            "ring_bytes_vs_largest_query", last["times_one_ring_kib"], 1.2, f"times, {last['queries']:,} queries"
        ),
    ]


# ── queries come and go ──────────────────────────────────────────────────────────────────────────────────────────────


def _report_changes(report: Report, scale: SliceScale, step: ProgressStep) -> None:
    step("queries come and go")
    queries = QueryMix(scale.changing_queries, scale.scaling_window * SECOND, scale.filters).build_queries()
    found = measure_changes(queries, scale.scaling_streams, max(3, scale.rounds))
    quiet = {"call": 0.0, "least": 1.0, "most": 1.0}
    rows = [{"change": "none (the slowest)", "push": found.find_slowest_quiet(), **quiet}]
    for place, (what, _) in enumerate(CHANGES):
        figures_of = {"push": float(found.compute_best()[place]), "call": float(found.compute_best_calls()[place])}
        rows.append({"change": what, **figures_of, **_build_span_row(found, place)})
    title = f"The call of a change and the push after it against the median push, {scale.changing_queries} queries"
    report.sections.append(Section("changes", title, rows))
    worst = float(found.compute_best().max())
    report.checks.append(
        check_at_most("slowest_batch_of_a_change", worst, 2, "times the median batch, best of the rounds")
    )


def _build_span_row(found: ChangeTimes, place: int) -> ReportRow:
    ratios = found.compute_ratios()[:, place]
    return {"least": float(ratios.min()), "most": float(ratios.max())}
