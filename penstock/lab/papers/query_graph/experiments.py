"""Lab `graph`: Figures 14 to 16 of the query-graph paper in virtual time, and the cost of the cycle over direct calls.

The figures are drawn from queries in CQL and the engine's own operators. In virtual time an operator costs 20 µs for
each tuple, and for each step that only moves time. So the figures are exact and the same on every machine. ETS arcs
against punctuation are also run with the costs measured in this run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from penstock.graph import Node
from penstock.lab.papers.query_graph import figures
from penstock.lab.papers.query_graph.bursts import report_bursts
from penstock.lab.papers.query_graph.overhead import report_overhead
from penstock.lab.papers.query_graph.queries import (
    ETS_ARCS,
    NESTED_UNIONS,
    NO_SIGNALS,
    PUNCTUATION,
    SIMPLE_UNION,
    QueryTexts,
    Signals,
    build_heartbeats,
    build_measured_cost,
    build_unit_cost,
    compute_burstiness,
    compute_latencies,
    generate_poisson,
    play,
    write_slide_union,
)
from penstock.lab.papers.query_graph.virtual_time import StepCost, VirtualRunner
from penstock.lab.report import Report, ReportRow, Section, check_at_least, check_at_most
from penstock.lab.workloads import Integers
from penstock.progress import show_progress

TUPLE_COST = 20
"""Microseconds of an operator for a tuple."""

_UNIT_COST = build_unit_cost(TUPLE_COST)


@dataclass(frozen=True)
class GraphScale:
    """How much is measured: seconds of virtual time, the values of each parameter, and rounds of timing."""

    seconds: float = 30
    slide_seconds: float = 8
    """Of the runs with SLIDE, in which most operators have steps for each tuple."""
    periods: tuple[int, ...] = (500, 1_000, 10_000, 100_000, 1_000_000)
    bursts: tuple[int, ...] = (1, 3, 10, 30, 100, 300)
    slides: tuple[int, ...] = (1, 10, 50, 100, 200)
    burst_sizes: tuple[int, ...] = (1, 2, 10, 100, 1000)
    pushes: int = 100
    rounds: int = 9


FULL = GraphScale()
QUICK = GraphScale(seconds=6, slide_seconds=3, bursts=(1, 10, 100), slides=(1, 50, 200), pushes=30, rounds=7)


def run(quick: bool = False, scale: GraphScale | None = None) -> Report:
    scale = scale or (QUICK if quick else FULL)
    report = Report("graph", quick)
    parts: dict[str, Callable[[GraphScale, Report], None]] = {
        "bursts through two operators": lambda scale, report: report_bursts(report, scale.burst_sizes, scale.rounds),
        "Figure 14a: signals of time": _report_idle_waiting,
        "Figure 14b: size of bursts": _report_bursts,
        "Figure 15: ETS arcs and punctuation": _report_arcs,
        "Figure 16: SLIDE": _report_slides,
        "scheduling overhead": lambda scale, report: report_overhead(report, scale.pushes * scale.rounds),
    }
    with show_progress("lab graph", len(parts)) as step:
        for label, part in parts.items():
            step(label)
            part(scale, report)
    return report


def _play(
    texts: QueryTexts,
    signals: Signals,
    arrivals: dict[str, Integers],
    strategy: str = "dfs",
    cost: StepCost = _UNIT_COST,
) -> VirtualRunner:
    return play(texts, signals, arrivals, strategy, cost)


def _compute_mean_ms(played: VirtualRunner) -> float:
    return float(compute_latencies(played.results).mean()) / 1000


# ── Figure 14 ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _report_idle_waiting(scale: GraphScale, report: Report) -> None:
    """Figure 14a: a union of streams with 1000 and 0.5 tuples per second."""
    arrivals = {"a": generate_poisson(1000, scale.seconds, 1), "b": generate_poisson(0.5, scale.seconds, 2)}
    rivals = (NO_SIGNALS, *map(build_heartbeats, scale.periods), PUNCTUATION, ETS_ARCS)
    rows: list[ReportRow] = []
    for signals in rivals:
        means = {
            strategy: _compute_mean_ms(_play(SIMPLE_UNION, signals, arrivals, strategy)) for strategy in ("dfs", "bfs")
        }
        rows.append({"signals": signals.name, "dfs_ms": means["dfs"], "bfs_ms": means["bfs"]})
    report.sections.append(Section("idle_waiting", "Figure 14a: mean latency of a union of 1000/s and 0.5/s", rows))
    found = {row["signals"]: row["dfs_ms"] for row in rows}
    best_heartbeat = min(found[build_heartbeats(period).name] for period in scale.periods)
    report.checks += [
        check_at_least("latency_none_over_ets", found["none"] / found["ETS arcs"], 100, "times"),
        check_at_least("latency_best_heartbeat_over_ets", best_heartbeat / found["ETS arcs"], 1, "times"),
    ]
    report.figures["graph-idle-waiting.png"] = figures.draw_bars(
        rows,
        "signals",
        ("dfs_ms", "bfs_ms"),
        "mean latency, ms",
        "Figure 14 (a): latency of a union of a fast and a slow stream",
    )


def _report_bursts(scale: GraphScale, report: Report) -> None:
    """Figure 14b: the same union with ETS arcs; the fast stream arrives in bursts."""
    rows: list[ReportRow] = []
    for burst in scale.bursts:
        arrivals = {"a": generate_poisson(1000, scale.seconds, 1, burst), "b": generate_poisson(0.5, scale.seconds, 2)}
        means = {
            strategy: _compute_mean_ms(_play(SIMPLE_UNION, ETS_ARCS, arrivals, strategy)) for strategy in ("dfs", "bfs")
        }
        rows.append({"burst": burst, "dfs_ms": means["dfs"], "bfs_ms": means["bfs"]})
    report.sections.append(Section("bursts", "Figure 14b: mean latency by size of bursts, ETS arcs", rows))
    worst = rows[-1]
    report.checks.append(check_at_least("bfs_over_dfs_in_bursts", worst["bfs_ms"] / worst["dfs_ms"], 1, "times"))
    report.figures["graph-bursts.png"] = figures.draw_curves(
        rows,
        "burst",
        {"dfs_ms": "depth first", "bfs_ms": "breadth first"},
        ("tuples in a burst", "mean latency, ms"),
        "Figure 14 (b): latency by the size of bursts",
    )


# ── Figure 15 ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _report_arcs(scale: GraphScale, report: Report) -> None:
    """Figure 15: nested unions, with equal costs and with the costs measured on this machine."""
    rates = {"a": 100.0, "b": 1.0, "c": 100.0, "d": 1.0}
    arrivals = {name: generate_poisson(rate, scale.seconds, seed) for seed, (name, rate) in enumerate(rates.items())}
    rows: list[ReportRow] = []
    for costs, cost in (("20 µs each", _UNIT_COST), ("measured", _calibrate_cost(arrivals))):
        means = {
            signals: _compute_mean_ms(_play(NESTED_UNIONS, signals, arrivals, cost=cost)) for signals in _ON_DEMAND
        }
        below = 1 - means[ETS_ARCS] / means[PUNCTUATION]
        rows.append({
            "costs": costs,
            "punctuation_ms": means[PUNCTUATION],
            "ets_arcs_ms": means[ETS_ARCS],
            "below_percent": 100 * below,
        })  # fmt: skip
    report.sections.append(Section("arcs", "Figure 15: mean latency of nested unions", rows))
    report.checks += [
        check_at_least("ets_arcs_below_punctuation", rows[0]["below_percent"], 14, "%"),
        check_at_least("ets_arcs_below_punctuation_measured", rows[1]["below_percent"], 14, "%"),
    ]
    report.figures["graph-arcs.png"] = figures.draw_bars(
        rows,
        "costs",
        ("punctuation_ms", "ets_arcs_ms"),
        "mean latency, ms",
        "Figure 15: ETS arcs against punctuation, by the cost of an operator",
        scale="linear",
    )


_ON_DEMAND = (PUNCTUATION, ETS_ARCS)


def _calibrate_cost(arrivals: dict[str, Integers]) -> StepCost:
    """The median time of a step of each operator, with and without tuples, from a run with each kind of signal."""
    measured: defaultdict[tuple[str, bool], list[int]] = defaultdict(list)
    measure = build_measured_cost()

    def record(node: Node, done: int) -> int:
        measured[node.id, done > 0].append(measure(node, done))
        return _UNIT_COST(node, done)

    for signals in _ON_DEMAND:
        _play(NESTED_UNIONS, signals, arrivals, cost=record)
    costs = {step: round(median(times)) for step, times in measured.items()}
    return lambda node, done: costs[node.id, done > 0]


# ── Figure 16 ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _report_slides(scale: GraphScale, report: Report) -> None:
    """Figure 16: burstiness of results when one input of the union has a result only every SLIDE tuples."""
    arrivals = {name: generate_poisson(1000, scale.slide_seconds, seed) for seed, name in enumerate("ab", 1)}
    rows: list[ReportRow] = []
    for slide in scale.slides:
        found = {
            signals: compute_burstiness(_play(write_slide_union(slide), signals, arrivals).results)
            for signals in (NO_SIGNALS, ETS_ARCS)
        }
        rows.append({"slide": slide, "none": found[NO_SIGNALS], "ets_arcs": found[ETS_ARCS]})
    arriving = compute_burstiness([(int(at), 0) for at in arrivals["a"]])
    report.sections.append(Section("slides", f"Figure 16: burstiness by SLIDE (arrivals: {arriving:.2f})", rows))
    worst = rows[-1]
    report.checks += [
        check_at_least("burstiness_none_over_ets", worst["none"] / worst["ets_arcs"], 2, "times"),
        check_at_most("burstiness_ets_over_arrivals", worst["ets_arcs"] / arriving, 1.25, "times"),
    ]
    report.figures["graph-slides.png"] = figures.draw_curves(
        rows,
        "slide",
        {"none": "no signals", "ets_arcs": "ETS arcs"},
        ("SLIDE, tuples", "(max - min) / mean"),
        "Figure 16: burstiness of the output by SLIDE",
    )
