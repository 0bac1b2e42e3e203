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
from penstock.graph.scheduler import Cycle
from penstock.join.operator import JoinOperator
from penstock.lab.papers.query_graph.graphs import (
    BY_DATA,
    ETS_ARCS,
    NO_SIGNALS,
    PUNCTUATION,
    SCHEMA,
    Signals,
    Workbench,
    burstiness,
    heartbeats,
    latencies,
    measured,
    modelled,
    nested_unions,
    path,
    poisson,
    simple_union,
    slide_union,
)
from penstock.lab.papers.query_graph.virtual_time import Cost, VirtualTime
from penstock.lab.report import Report, Section, at_least, at_most, equals
from penstock.lab.workloads import steady
from penstock.ops.source import SourceOperator
from penstock.progress import steps
from penstock.state.kernels import I64

COST = 20  # microseconds for a tuple

_EACH = modelled(COST)

Row = dict[str, Any]
Build = Callable[[Workbench], Node]


@dataclass(frozen=True)
class Scale:
    """How much is measured: seconds of virtual time, sizes tried, rounds of timing."""

    seconds: float = 30
    periods: tuple[int, ...] = (500, 1_000, 10_000, 100_000, 1_000_000)
    bursts: tuple[int, ...] = (1, 3, 10, 30, 100, 300)
    slides: tuple[int, ...] = (1, 10, 50, 100, 200)
    burst_sizes: tuple[int, ...] = (1, 2, 10, 100, 1000)
    pushes: int = 100
    rounds: int = 9


FULL = Scale()
QUICK = Scale(seconds=6, bursts=(1, 10, 100), slides=(1, 50, 200), pushes=30, rounds=7)


def run(quick: bool = False, scale: Scale | None = None) -> Report:
    scale = scale or (QUICK if quick else FULL)
    report = Report("graph", quick)
    parts = {
        "bursts through two operators": _exact,
        "Figure 14a: signals of time": _idle_waiting,
        "Figure 14b: size of bursts": _bursts,
        "Figure 15: ETS arcs and punctuation": _arcs,
        "Figure 16: SLIDE": _slides,
        "scheduling overhead": _overhead,
    }
    with steps("lab graph", len(parts)) as step:
        for label, part in parts.items():
            step(label)
            part(scale, report)
    return report


def _play(
    build: Build, signals: Signals, arrivals: dict[str, I64], strategy: str = "dfs", cost: Cost = _EACH
) -> VirtualTime:
    bench = Workbench(signals, strategy)
    return bench.play(build(bench), arrivals, cost)


def _mean_ms(played: VirtualTime) -> float:
    return float(latencies(played.out).mean()) / 1000


# ── exact latencies ──────────────────────────────────────────────────────────────────────────────────────────────────


def _exact(scale: Scale, report: Report) -> None:
    """A burst of n through two operators of cost c: (n + 1) c depth first, (1.5 n + 0.5) c breadth first."""
    rows: list[Row] = []
    for size in scale.burst_sizes:
        wanted = {"dfs": 2 * (size + 1), "bfs": 3 * size + 1}
        for strategy, halves in wanted.items():
            burst = {"a": np.zeros(size, np.int64)}
            found = latencies(_play(lambda bench: path(bench, 2), ETS_ARCS, burst, strategy).out)
            rows.append({
                "burst": size,
                "strategy": strategy,
                "mean_us": float(found.mean()),
                "formula_us": halves * COST / 2,
                "exact": bool(2 * int(found.sum()) == halves * COST * size),
            })  # fmt: skip
    report.sections.append(Section("burst_latency", "A burst through two operators, virtual time", rows))
    report.checks.append(equals("burst_latency_exact", sum(row["exact"] for row in rows), len(rows), "cases"))


# ── Figure 14 ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _idle_waiting(scale: Scale, report: Report) -> None:
    """Figure 14a: 1000/s and 0.5/s into a union."""
    arrivals = {"a": poisson(1000, scale.seconds, 1), "b": poisson(0.5, scale.seconds, 2)}
    rivals = (NO_SIGNALS, *map(heartbeats, scale.periods), PUNCTUATION, ETS_ARCS)
    rows: list[Row] = []
    for signals in rivals:
        means = {strategy: _mean_ms(_play(simple_union, signals, arrivals, strategy)) for strategy in ("dfs", "bfs")}
        rows.append({"signals": signals.name, "dfs_ms": means["dfs"], "bfs_ms": means["bfs"]})
    report.sections.append(Section("idle_waiting", "Mean latency of a union of 1000/s and 0.5/s", rows))
    found = {row["signals"]: row["dfs_ms"] for row in rows}
    best_heartbeat = min(found[heartbeats(period).name] for period in scale.periods)
    report.checks += [
        at_least("latency_none_over_ets", found["none"] / found["ETS arcs"], 100, "times"),
        at_least("latency_best_heartbeat_over_ets", best_heartbeat / found["ETS arcs"], 1, "times"),
    ]
    report.figures["graph-idle-waiting.png"] = _bars(rows, "signals", ("dfs_ms", "bfs_ms"), "mean latency, ms")


def _bursts(scale: Scale, report: Report) -> None:
    """Figure 14b: the same union with ETS arcs, the fast stream in bursts."""
    rows: list[Row] = []
    for burst in scale.bursts:
        arrivals = {"a": poisson(1000, scale.seconds, 1, burst), "b": poisson(0.5, scale.seconds, 2)}
        means = {strategy: _mean_ms(_play(simple_union, ETS_ARCS, arrivals, strategy)) for strategy in ("dfs", "bfs")}
        rows.append({"burst": burst, "dfs_ms": means["dfs"], "bfs_ms": means["bfs"]})
    report.sections.append(Section("bursts", "Mean latency against the size of bursts, ETS arcs", rows))
    worst = rows[-1]
    report.checks.append(at_least("bfs_over_dfs_in_bursts", worst["bfs_ms"] / worst["dfs_ms"], 1, "times"))
    report.figures["graph-bursts.png"] = _curves(
        rows, "burst", {"dfs_ms": "depth first", "bfs_ms": "breadth first"}, "tuples in a burst", "mean latency, ms"
    )


# ── Figure 15 ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _arcs(scale: Scale, report: Report) -> None:
    """Figure 15: the nested unions, with every cost the same and with the costs of this machine."""
    rates = {"a": 100.0, "b": 1.0, "c": 100.0, "d": 1.0}
    arrivals = {name: poisson(rate, scale.seconds, seed) for seed, (name, rate) in enumerate(rates.items())}
    rows: list[Row] = []
    for costs, cost in (("20 µs each", _EACH), ("measured", _calibrated(arrivals))):
        means = {signals: _mean_ms(_play(nested_unions, signals, arrivals, cost=cost)) for signals in _BY_DEMAND}
        below = 1 - means[ETS_ARCS] / means[PUNCTUATION]
        rows.append({
            "costs": costs,
            "punctuation_ms": means[PUNCTUATION],
            "ets_arcs_ms": means[ETS_ARCS],
            "below_percent": 100 * below,
        })  # fmt: skip
    report.sections.append(Section("arcs", "Mean latency of the nested unions", rows))
    report.checks += [
        at_least("ets_arcs_below_punctuation", rows[0]["below_percent"], 14, "%"),
        at_least("ets_arcs_below_punctuation_measured", rows[1]["below_percent"], 14, "%"),
    ]
    report.figures["graph-arcs.png"] = _bars(rows, "costs", ("punctuation_ms", "ets_arcs_ms"), "mean latency, ms")


_BY_DEMAND = (PUNCTUATION, ETS_ARCS)


def _calibrated(arrivals: dict[str, I64]) -> Cost:
    """The median time of a step of each operator, with tuples and without, taken from runs of both contenders."""
    took: defaultdict[tuple[str, bool], list[int]] = defaultdict(list)
    clock = measured()

    def note(node: Node, done: int) -> int:
        took[node.id, done > 0].append(clock(node, done))
        return _EACH(node, done)

    for signals in _BY_DEMAND:
        _play(nested_unions, signals, arrivals, cost=note)
    costs = {step: round(median(times)) for step, times in took.items()}
    return lambda node, done: costs[node.id, done > 0]


# ── Figure 16 ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _slides(scale: Scale, report: Report) -> None:
    """Figure 16: results per 0.02 s when one input of the union reports only every SLIDE tuples."""
    arrivals = {"a": poisson(1000, scale.seconds, 1), "b": poisson(1000, scale.seconds, 2)}
    rows: list[Row] = []
    for slide in scale.slides:
        found = {
            signals: burstiness(_play(partial(slide_union, slide=slide), signals, arrivals).out)
            for signals in (NO_SIGNALS, ETS_ARCS)
        }
        rows.append({"slide": slide, "none": found[NO_SIGNALS], "ets_arcs": found[ETS_ARCS]})
    arriving = burstiness([(int(at), 0) for at in arrivals["a"]])
    report.sections.append(Section("slides", f"Burstiness against SLIDE (that of the arrivals: {arriving:.2f})", rows))
    worst = rows[-1]
    report.checks += [
        at_least("burstiness_none_over_ets", worst["none"] / worst["ets_arcs"], 2, "times"),
        at_most("burstiness_ets_over_arrivals", worst["ets_arcs"] / arriving, 1.25, "times"),
    ]
    report.figures["graph-slides.png"] = _curves(
        rows, "slide", {"none": "no signals", "ets_arcs": "ETS arcs"}, "SLIDE, tuples", "(max - min) / mean"
    )


# ── overhead ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _overhead(scale: Scale, report: Report) -> None:
    """Pushes of 4096 tuples a stream: run by the cycle, and the same operators called one after the other.

    The join is a query of the engine; the union of two selections, over rows of 10 columns, is about the lightest work
    a graph can have.
    """
    contenders = {"join": _joining, "union": _uniting}
    rows: list[Row] = []
    for name, make in contenders.items():
        for strategy in ("dfs", "bfs", "rr"):
            direct, more = _timed_pair(make(), make(), strategy, scale.pushes * scale.rounds)
            rows.append({
                "operators": name,
                "strategy": strategy,
                "direct_us": direct * 1e6,
                "graph_us": (direct + more) * 1e6,
                "over_percent": 100 * more / direct,
            })  # fmt: skip
        most = max(row["over_percent"] for row in rows if row["operators"] == name)
        report.checks.append(at_most(f"scheduling_overhead_{name}", most, 5, "%"))
    title = f"Scheduling: batches of {PUSH} tuples on every arc, median of processor time"
    report.sections.append(Section("overhead", title, rows))


@dataclass(frozen=True)
class Contender:
    """A graph, how the n-th push is fed to it, and how its results are taken: how many there were."""

    graph: Graph
    feed: Callable[[int], None]
    take: Callable[[], int]


PUSH = 4096
TURN = 4 * PUSH  # all that can wait, so that a push is one turn of every operator on both sides
WIDE = pa.schema([*SCHEMA, *((f"payload{number}", pa.int64()) for number in range(8))])


def _uniting() -> Contender:
    bench = Workbench(BY_DATA, schema=WIDE)
    last = simple_union(bench)
    payload = np.random.default_rng(1).random(PUSH)
    columns = {field.name: pa.array(payload).cast(field.type, safe=False) for field in WIDE}

    def feed(push: int) -> None:
        times = np.arange(push * PUSH, (push + 1) * PUSH)
        for source in bench.sources.values():
            source.feed(times, {**columns, "ts": pa.array(times)})

    sink = last.outlet.open()
    return Contender(bench.graph, feed, lambda: sum(len(batch) for batch in sink.take(sink.waiting())))


def _joining() -> Contender:
    streams = steady(2, 10_000)
    engine = streams.engine()
    graph = engine._graph
    join = list(graph)[-1].operator
    assert isinstance(join, JoinOperator)

    def feed(push: int) -> None:
        stretch = streams.between(push * PUSH, (push + 1) * PUSH)
        for name, table in stretch.items():
            columns = {column: table.column(column).combine_chunks() for column in table.column_names}
            source = graph[f"source {name}"].operator
            assert isinstance(source, SourceOperator)
            source.feed(columns["ts"].to_numpy(), columns)

    return Contender(graph, feed, lambda: sum(len(harvest) for harvest in join.harvested()))


def _timed_pair(by_cycle: Contender, direct: Contender, strategy: str, pushes: int) -> tuple[float, float]:
    """Seconds of processor time per push called directly, and how much more by the cycle on the same push.

    The two take turns push by push, so that both see the same machine.
    """
    by_cycle.graph.schedule(strategy)
    operators = [node.operator for node in direct.graph]

    def call() -> None:
        for operator in operators:
            operator.run(TURN)

    runs = ((by_cycle, Cycle(by_cycle.graph, TURN).run), (direct, call))
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


def _curves(rows: Sequence[Row], across: str, curves: dict[str, str], xlabel: str, ylabel: str) -> bytes:
    drawing, panel = _panel(xlabel, ylabel)
    for name, label in curves.items():
        panel.plot([row[across] for row in rows], [row[name] for row in rows], "o-", label=label)
    panel.set(xscale="log", yscale="log")
    panel.legend()
    return _png(drawing)


def _bars(rows: Sequence[Row], across: str, names: Sequence[str], ylabel: str) -> bytes:
    drawing, panel = _panel("", ylabel)
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        places = np.arange(len(rows)) + number * width
        panel.bar(places, [row[name] for row in rows], width, label=name.removesuffix("_ms").replace("_", " "))
    panel.set_xticks(np.arange(len(rows)) + 0.4 - width / 2, [row[across] for row in rows], rotation=30, ha="right")
    panel.set_yscale("log")
    panel.legend()
    return _png(drawing)


def _panel(xlabel: str, ylabel: str) -> tuple[Figure, Any]:
    drawing = Figure(figsize=(6.4, 4), layout="constrained")
    FigureCanvasAgg(drawing)
    panel = drawing.subplots()
    panel.set(xlabel=xlabel, ylabel=ylabel)
    panel.grid(alpha=0.3, which="both")
    return drawing, panel


def _png(drawing: Figure) -> bytes:
    image = io.BytesIO()
    drawing.savefig(image, format="png", dpi=130)
    return image.getvalue()
