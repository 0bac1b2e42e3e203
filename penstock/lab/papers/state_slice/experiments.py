"""Lab `slice`, the experiments of the State-Slice paper (section 7): the cost of many queries over one join.

Figures 17 and 18 (Table 3): state and service rate of three queries, by State-Slice, selection pull-up, push-down by
stream partition, and without sharing. `chains` has Figure 19 (Table 4): the cost of a slice. `many_queries` goes beyond
the paper: up to 10,000 queries, and queries that are added and dropped under load.

In Figures 17 to 19 the result table of every query is built. Bytes of state are those of the rows (`row`), and those of
the rings allocated for them (`ring`), which grow by doubling.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from penstock.lab.papers.state_slice import figures
from penstock.lab.papers.state_slice.chains import TABLE_4, report_chains
from penstock.lab.papers.state_slice.many_queries import QueryMix, report_changes, report_scaling
from penstock.lab.papers.state_slice.rivals import SHARING_STRATEGIES
from penstock.lab.papers.state_slice.runs import StrategyOutcome, compute_mean_minimum, run_side_by_side
from penstock.lab.papers.state_slice.scale import FULL, QUICK, SliceScale
from penstock.lab.papers.state_slice.streams import SECOND, PoissonStreams, SliceQuery
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
from penstock.lab.workloads import PushTables
from penstock.plan import (
    Rates,
    SharedWindows,
    choose_mem_opt_chain,
    compute_pull_up_cost,
    compute_push_down_cost,
    compute_slice_cost,
)
from penstock.progress import ProgressStep, show_progress

TABLE_3 = {"mostly-small": (5, 10, 30), "uniform": (10, 20, 30), "mostly-large": (20, 25, 30)}


def run(quick: bool = False, scale: SliceScale | None = None) -> Report:
    scale = scale or (QUICK if quick else FULL)
    report = Report("slice", quick)
    settings = len(TABLE_3) * len(scale.sigmas)
    total = 1 + settings * (1 + len(scale.joins)) + 2 + len(TABLE_4) + 1 + len(scale.query_counts) + 1
    with show_progress("lab slice", total) as step:
        step("warming up")
        _warm_up()
        _report_memory(report, scale, step)
        _report_service_rate(report, scale, step)
        _report_beyond(report, scale, step)
        report_chains(report, scale, step)
        report_scaling(report, scale, step)
        report_changes(report, scale, step)
    return report


def _warm_up() -> None:
    """Compile the kernels and load the modules that the runs need."""
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
        Section("memory", "Figure 17: state by setting of Table 3, mean when windows are full", rows)
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
    """No exact plan has fewer rows than Equation 4; the check `rows_vs_minimum` compares the engine with it."""
    unit = "of its bytes, mean of all settings"
    return check_at_least_unless(f"bytes_saved_over_{rival}", saved, 0.2, model, "the fewest rows save less", unit)


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
    title = "Figure 18: results of all queries per second of CPU, all tables built"
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


def _report_beyond(report: Report, scale: SliceScale, step: ProgressStep) -> None:
    """Two settings that the paper does not have: a high rate with strong filters, and a crowd that is read whole."""
    step(f"{scale.fast_rate} tuples per second")
    fast = list(PoissonStreams(scale.fast_rate, scale.fast_seconds, 0.025).generate_pushes())
    three = _build_three_queries(TABLE_3["mostly-large"], 0.2)
    settings = {f"{scale.fast_rate} tuples/s": run_side_by_side(three, fast, scale.rounds)}
    step(f"{scale.read_queries} queries, all results read")
    crowd = QueryMix(scale.read_queries, scale.scaling_window * SECOND, scale.filters).build_queries()
    slow = list(PoissonStreams(scale.rates[-1], scale.seconds, 0.025).generate_pushes())
    others = {name: make for name, make in SHARING_STRATEGIES.items() if name != "push_down"}  # a join for each filter
    settings["crowd"] = run_side_by_side(crowd, slow, scale.rounds, others)
    rows: list[ReportRow] = []
    for name, found in settings.items():
        rates = {contender: round(outcome.rate) for contender, outcome in found.items()}
        shown = {f"{contender}_s": rates.get(contender, "not run") for contender in SHARING_STRATEGIES}
        own = rates.pop("state_slice")
        over = {
            "over_best_rival": round(own / max(rates.values()), 3),
            "over_unshared": round(own / rates["unshared"], 3),
        }
        rows.append({"setting": name, **shown, **over})
    report.sections.append(Section("beyond", "Results per second of CPU in settings beyond the paper's", rows))
    unit = f"times the service rate of unshared joins, {scale.read_queries} queries, all results read"
    report.checks.append(check_at_least("crowd_read_over_unshared", rows[-1]["over_unshared"], 3, unit))
