"""The query graph: Figures 14 to 16 of its paper in virtual time, and what the graph costs over direct calls.

In virtual time every operator costs 20 µs for a tuple, or for a step that only carries time; so the figures are exact
and the same on every machine. ETS arcs against punctuation are also played with the costs measured in this run.
"""

from __future__ import annotations

import io
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from penstock.graph.graph import Graph, Node
from penstock.graph.scheduler import GraphScheduler
from penstock.join.operator import JoinOperator
from penstock.lab.papers.query_graph.graphs import (
    BY_DATA,
    ETS_ARCS,
    NO_SIGNALS,
    PUNCTUATION,
    SCHEMA,
    GraphBuilder,
    Signals,
    build_heartbeats,
    build_measured_cost,
    build_nested_unions,
    build_path,
    build_simple_union,
    build_slide_union,
    build_unit_cost,
    compute_burstiness,
    compute_latencies,
    generate_poisson,
)
from penstock.lab.papers.query_graph.virtual_time import StepCost, VirtualRunner
from penstock.lab.report import Report, Section, check_at_least, check_at_most, check_equals
from penstock.lab.workloads import build_steady
from penstock.ops.source import SourceOperator
from penstock.progress import show_progress
from penstock.state.kernels import I64

TUPLE_COST = 20  # microseconds for a tuple

_UNIT_COST = build_unit_cost(TUPLE_COST)

ReportRow = dict[str, Any]
BuildGraph = Callable[[GraphBuilder], Node]


@dataclass(frozen=True)
class GraphScale:
    """How much is measured: seconds of virtual time, sizes tried, rounds of timing."""

    seconds: float = 30
    periods: tuple[int, ...] = (500, 1_000, 10_000, 100_000, 1_000_000)
    bursts: tuple[int, ...] = (1, 3, 10, 30, 100, 300)
    slides: tuple[int, ...] = (1, 10, 50, 100, 200)
    burst_sizes: tuple[int, ...] = (1, 2, 10, 100, 1000)
    pushes: int = 100
    rounds: int = 9


FULL = GraphScale()
QUICK = GraphScale(seconds=6, bursts=(1, 10, 100), slides=(1, 50, 200), pushes=30, rounds=7)


def run(quick: bool = False, scale: GraphScale | None = None) -> Report:
    scale = scale or (QUICK if quick else FULL)
    report = Report("graph", quick)
    parts = {
        "bursts through two operators": _report_burst_latency,
        "Figure 14a: signals of time": _report_idle_waiting,
        "Figure 14b: size of bursts": _report_bursts,
        "Figure 15: ETS arcs and punctuation": _report_arcs,
        "Figure 16: SLIDE": _report_slides,
        "scheduling overhead": _report_overhead,
    }
    with show_progress("lab graph", len(parts)) as step:
        for label, part in parts.items():
            step(label)
            part(scale, report)
    return report


def _play(
    build: BuildGraph, signals: Signals, arrivals: dict[str, I64], strategy: str = "dfs", cost: StepCost = _UNIT_COST
) -> VirtualRunner:
    bench = GraphBuilder(signals, strategy)
    return bench.play(build(bench), arrivals, cost)


def _compute_mean_ms(played: VirtualRunner) -> float:
    return float(compute_latencies(played.results).mean()) / 1000


# ── exact latencies ──────────────────────────────────────────────────────────────────────────────────────────────────


def _report_burst_latency(scale: GraphScale, report: Report) -> None:
    """A burst of n through two operators of cost c: (n + 1) c depth first, (1.5 n + 0.5) c breadth first."""
    rows: list[ReportRow] = []
    for size in scale.burst_sizes:
        wanted = {"dfs": 2 * (size + 1), "bfs": 3 * size + 1}
        for strategy, halves in wanted.items():
            burst = {"a": np.zeros(size, np.int64)}
            found = compute_latencies(_play(lambda bench: build_path(bench, 2), ETS_ARCS, burst, strategy).results)
            rows.append({
                "burst": size,
                "strategy": strategy,
                "mean_us": float(found.mean()),
                "formula_us": halves * TUPLE_COST / 2,
                "exact": bool(2 * int(found.sum()) == halves * TUPLE_COST * size),
            })  # fmt: skip
    report.sections.append(Section("burst_latency", "A burst through two operators, virtual time", rows))
    report.checks.append(check_equals("burst_latency_exact", sum(row["exact"] for row in rows), len(rows), "cases"))


# ── Figure 14 ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _report_idle_waiting(scale: GraphScale, report: Report) -> None:
    """Figure 14a: 1000/s and 0.5/s into a union."""
    arrivals = {"a": generate_poisson(1000, scale.seconds, 1), "b": generate_poisson(0.5, scale.seconds, 2)}
    rivals = (NO_SIGNALS, *map(build_heartbeats, scale.periods), PUNCTUATION, ETS_ARCS)
    rows: list[ReportRow] = []
    for signals in rivals:
        means = {
            strategy: _compute_mean_ms(_play(build_simple_union, signals, arrivals, strategy))
            for strategy in ("dfs", "bfs")
        }
        rows.append({"signals": signals.name, "dfs_ms": means["dfs"], "bfs_ms": means["bfs"]})
    report.sections.append(Section("idle_waiting", "Mean latency of a union of 1000/s and 0.5/s", rows))
    found = {row["signals"]: row["dfs_ms"] for row in rows}
    best_heartbeat = min(found[build_heartbeats(period).name] for period in scale.periods)
    report.checks += [
        check_at_least("latency_none_over_ets", found["none"] / found["ETS arcs"], 100, "times"),
        check_at_least("latency_best_heartbeat_over_ets", best_heartbeat / found["ETS arcs"], 1, "times"),
    ]
    report.figures["graph-idle-waiting.png"] = _draw_bars(rows, "signals", ("dfs_ms", "bfs_ms"), "mean latency, ms")


def _report_bursts(scale: GraphScale, report: Report) -> None:
    """Figure 14b: the same union with ETS arcs, the fast stream in bursts."""
    rows: list[ReportRow] = []
    for burst in scale.bursts:
        arrivals = {"a": generate_poisson(1000, scale.seconds, 1, burst), "b": generate_poisson(0.5, scale.seconds, 2)}
        means = {
            strategy: _compute_mean_ms(_play(build_simple_union, ETS_ARCS, arrivals, strategy))
            for strategy in ("dfs", "bfs")
        }
        rows.append({"burst": burst, "dfs_ms": means["dfs"], "bfs_ms": means["bfs"]})
    report.sections.append(Section("bursts", "Mean latency against the size of bursts, ETS arcs", rows))
    worst = rows[-1]
    report.checks.append(check_at_least("bfs_over_dfs_in_bursts", worst["bfs_ms"] / worst["dfs_ms"], 1, "times"))
    report.figures["graph-bursts.png"] = _draw_curves(
        rows, "burst", {"dfs_ms": "depth first", "bfs_ms": "breadth first"}, "tuples in a burst", "mean latency, ms"
    )


# ── Figure 15 ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _report_arcs(scale: GraphScale, report: Report) -> None:
    """Figure 15: the nested unions, with every cost the same and with the costs of this machine."""
    rates = {"a": 100.0, "b": 1.0, "c": 100.0, "d": 1.0}
    arrivals = {name: generate_poisson(rate, scale.seconds, seed) for seed, (name, rate) in enumerate(rates.items())}
    rows: list[ReportRow] = []
    for costs, cost in (("20 µs each", _UNIT_COST), ("measured", _calibrate_cost(arrivals))):
        means = {
            signals: _compute_mean_ms(_play(build_nested_unions, signals, arrivals, cost=cost))
            for signals in _ON_DEMAND
        }
        below = 1 - means[ETS_ARCS] / means[PUNCTUATION]
        rows.append({
            "costs": costs,
            "punctuation_ms": means[PUNCTUATION],
            "ets_arcs_ms": means[ETS_ARCS],
            "below_percent": 100 * below,
        })  # fmt: skip
    report.sections.append(Section("arcs", "Mean latency of the nested unions", rows))
    report.checks += [
        check_at_least("ets_arcs_below_punctuation", rows[0]["below_percent"], 14, "%"),
        check_at_least("ets_arcs_below_punctuation_measured", rows[1]["below_percent"], 14, "%"),
    ]
    report.figures["graph-arcs.png"] = _draw_bars(rows, "costs", ("punctuation_ms", "ets_arcs_ms"), "mean latency, ms")


_ON_DEMAND = (PUNCTUATION, ETS_ARCS)


def _calibrate_cost(arrivals: dict[str, I64]) -> StepCost:
    """The median time of a step of each operator, with tuples and without, taken from runs of both contenders."""
    took: defaultdict[tuple[str, bool], list[int]] = defaultdict(list)
    clock = build_measured_cost()

    def note(node: Node, done: int) -> int:
        took[node.id, done > 0].append(clock(node, done))
        return _UNIT_COST(node, done)

    for signals in _ON_DEMAND:
        _play(build_nested_unions, signals, arrivals, cost=note)
    costs = {step: round(median(times)) for step, times in took.items()}
    return lambda node, done: costs[node.id, done > 0]


# ── Figure 16 ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _report_slides(scale: GraphScale, report: Report) -> None:
    """Figure 16: results per 0.02 s when one input of the union reports only every SLIDE tuples."""
    arrivals = {"a": generate_poisson(1000, scale.seconds, 1), "b": generate_poisson(1000, scale.seconds, 2)}
    rows: list[ReportRow] = []
    for slide in scale.slides:
        found = {
            signals: compute_burstiness(_play(partial(build_slide_union, slide=slide), signals, arrivals).results)
            for signals in (NO_SIGNALS, ETS_ARCS)
        }
        rows.append({"slide": slide, "none": found[NO_SIGNALS], "ets_arcs": found[ETS_ARCS]})
    arriving = compute_burstiness([(int(at), 0) for at in arrivals["a"]])
    report.sections.append(Section("slides", f"Burstiness against SLIDE (that of the arrivals: {arriving:.2f})", rows))
    worst = rows[-1]
    report.checks += [
        check_at_least("burstiness_none_over_ets", worst["none"] / worst["ets_arcs"], 2, "times"),
        check_at_most("burstiness_ets_over_arrivals", worst["ets_arcs"] / arriving, 1.25, "times"),
    ]
    report.figures["graph-slides.png"] = _draw_curves(
        rows, "slide", {"none": "no signals", "ets_arcs": "ETS arcs"}, "SLIDE, tuples", "(max - min) / mean"
    )


# ── overhead ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _report_overhead(scale: GraphScale, report: Report) -> None:
    """Pushes of 4096 tuples a stream: run by the cycle, and the same operators called one after the other.

    The join is a query of the engine; the union of two selections, over rows of 10 columns, is about the lightest work
    a graph can have.
    """
    contenders = {"join": _build_join, "union": _build_union}
    rows: list[ReportRow] = []
    for name, make in contenders.items():
        for strategy in ("dfs", "bfs", "rr"):
            direct, more = _time_pair(make(), make(), strategy, scale.pushes * scale.rounds)
            rows.append({
                "operators": name,
                "strategy": strategy,
                "direct_us": direct * 1e6,
                "graph_us": (direct + more) * 1e6,
                "over_percent": 100 * more / direct,
            })  # fmt: skip
        most = max(row["over_percent"] for row in rows if row["operators"] == name)
        report.checks.append(check_at_most(f"scheduling_overhead_{name}", most, 5, "%"))
    title = f"Scheduling: batches of {PUSH_ROWS} tuples on every arc, median of processor time"
    report.sections.append(Section("overhead", title, rows))


@dataclass(frozen=True)
class TimedGraph:
    """A graph, how the n-th push is fed to it, and how its results are taken: how many there were."""

    graph: Graph
    feed: Callable[[int], None]
    take: Callable[[], int]


PUSH_ROWS = 4096
TURN_ROWS = 4 * PUSH_ROWS  # all that can wait, so that a push is one turn of every operator on both sides
WIDE_SCHEMA = pa.schema([*SCHEMA, *((f"payload{number}", pa.int64()) for number in range(8))])


def _build_union() -> TimedGraph:
    bench = GraphBuilder(BY_DATA, schema=WIDE_SCHEMA)
    last = build_simple_union(bench)
    payload = np.random.default_rng(1).random(PUSH_ROWS)
    columns = {field.name: pa.array(payload).cast(field.type, safe=False) for field in WIDE_SCHEMA}

    def feed(push: int) -> None:
        times = np.arange(push * PUSH_ROWS, (push + 1) * PUSH_ROWS)
        for source in bench.sources.values():
            source.feed(times, {**columns, "ts": pa.array(times)})

    sink = last.outlet.open()
    return TimedGraph(bench.graph, feed, lambda: sum(len(batch) for batch in sink.take(sink.waiting())))


def _build_join() -> TimedGraph:
    streams = build_steady(2, 10_000)
    engine = streams.build_engine()
    graph = engine._graph
    join = list(graph)[-1].operator
    assert isinstance(join, JoinOperator)

    def feed(push: int) -> None:
        stretch = streams.generate_between(push * PUSH_ROWS, (push + 1) * PUSH_ROWS)
        for name, table in stretch.items():
            columns = {column: table.column(column).combine_chunks() for column in table.column_names}
            source = graph[f"source {name}"].operator
            assert isinstance(source, SourceOperator)
            source.feed(columns["ts"].to_numpy(), columns)

    return TimedGraph(graph, feed, lambda: sum(len(harvest) for harvest in join.output.take_matches()))


def _time_pair(by_cycle: TimedGraph, direct: TimedGraph, strategy: str, pushes: int) -> tuple[float, float]:
    """Seconds of processor time per push called directly, and how much more by the cycle on the same push.

    The two take turns push by push, so that both see the same machine.
    """
    by_cycle.graph.schedule(strategy)
    operators = [node.operator for node in direct.graph]

    def call() -> None:
        for operator in operators:
            operator.run(TURN_ROWS)

    runs = ((by_cycle, GraphScheduler(by_cycle.graph, TURN_ROWS).run), (direct, call))
    seconds: tuple[list[float], list[float]] = ([], [])
    results = [0, 0]
    for push in range(pushes):
        for place in (push % 2, 1 - push % 2):
            contender, run_push = runs[place]
            contender.feed(push)
            begin = time.thread_time()
            run_push()
            seconds[place].append(time.thread_time() - begin)
            results[place] += contender.take()
    assert results[0] == results[1] > 0
    return median(seconds[1]), median(cycle - called for cycle, called in zip(*seconds, strict=True))


# ── figures ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _draw_curves(rows: Sequence[ReportRow], across: str, curves: dict[str, str], xlabel: str, ylabel: str) -> bytes:
    drawing, panel = _create_panel(xlabel, ylabel)
    for name, label in curves.items():
        panel.plot([row[across] for row in rows], [row[name] for row in rows], "o-", label=label)
    panel.set(xscale="log", yscale="log")
    panel.legend()
    return _encode_png(drawing)


def _draw_bars(rows: Sequence[ReportRow], across: str, names: Sequence[str], ylabel: str) -> bytes:
    drawing, panel = _create_panel("", ylabel)
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        places = np.arange(len(rows)) + number * width
        panel.bar(places, [row[name] for row in rows], width, label=name.removesuffix("_ms").replace("_", " "))
    panel.set_xticks(np.arange(len(rows)) + 0.4 - width / 2, [row[across] for row in rows], rotation=30, ha="right")
    panel.set_yscale("log")
    panel.legend()
    return _encode_png(drawing)


def _create_panel(xlabel: str, ylabel: str) -> tuple[Figure, Any]:
    drawing = Figure(figsize=(6.4, 4), layout="constrained")
    FigureCanvasAgg(drawing)
    panel = drawing.subplots()
    panel.set(xlabel=xlabel, ylabel=ylabel)
    panel.grid(alpha=0.3, which="both")
    return drawing, panel


def _encode_png(drawing: Figure) -> bytes:
    image = io.BytesIO()
    drawing.savefig(image, format="png", dpi=130)
    return image.getvalue()
