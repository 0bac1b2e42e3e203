"""The cost of scheduling: the same operators run by the cycle, and called one after the other.

The join is a query of the engine. The union of two selections, over rows of 10 columns, is about the least work that
a graph can have. Pushes have 4096 tuples for each stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import thread_time

import numpy as np
import pyarrow as pa

from penstock.engine import Engine
from penstock.errors import InternalError
from penstock.graph import Graph, GraphScheduler
from penstock.join import JoinOperator
from penstock.lab.papers.query_graph.queries import SIMPLE_UNION
from penstock.lab.report import Report, ReportRow, Section, check_at_most
from penstock.lab.timing import TurnTimer
from penstock.lab.workloads import build_steady
from penstock.ops import SourceOperator

PUSH_ROWS = 4096
TURN_ROWS = 4 * PUSH_ROWS
"""More than the tuples that can wait: each operator has one turn in a push, by the cycle and by direct calls."""
PAYLOAD = {f"payload{number}": "bigint" for number in range(8)}


def report_overhead(report: Report, pushes: int) -> None:
    """The time of a push by the cycle over that of direct calls, for each strategy."""
    rows: list[ReportRow] = []
    for name, build in {"join": _build_join, "union": _build_union}.items():
        for strategy in ("dfs", "bfs", "rr"):
            direct, more = _time_pair(build(), build(), strategy, pushes)
            rows.append({
                "operators": name,
                "strategy": strategy,
                "direct_us": direct * 1e6,
                "graph_us": (direct + more) * 1e6,
                "over_percent": 100 * more / direct,
            })  # fmt: skip
        most = max(row["over_percent"] for row in rows if row["operators"] == name)
        report.checks.append(check_at_most(f"scheduling_overhead_{name}", most, 5, "%"))
    title = f"Scheduling: batches of {PUSH_ROWS} tuples on every arc, median CPU time"
    report.sections.append(Section("overhead", title, rows))


@dataclass(frozen=True)
class TimedGraph:
    """A graph, a function that feeds it the n-th push, and one that takes its results and returns their number."""

    graph: Graph
    feed: Callable[[int], None]
    take: Callable[[], int]


def _build_union() -> TimedGraph:
    engine = Engine(warn=False)
    for name in "ab":
        engine.stream(name, {"ts": "bigint", "v": "double", **PAYLOAD}, time="ts")
    shown = ", ".join(["v", *PAYLOAD])
    engine.derive("out", SIMPLE_UNION.query.replace("SELECT v ", f"SELECT {shown} "))
    values = np.random.default_rng(1).random(PUSH_ROWS)
    columns = {"v": pa.array(values), **{name: pa.array(values.astype(np.int64)) for name in PAYLOAD}}
    graph = engine.graph
    sources = [node.operator for node in graph if isinstance(node.operator, SourceOperator)]

    def feed(push: int) -> None:
        times = np.arange(push * PUSH_ROWS, (push + 1) * PUSH_ROWS)
        for source in sources:
            source.feed(times, {**columns, "ts": pa.array(times)})

    *_, last = graph
    sink = last.outlet.open()

    return TimedGraph(graph, feed, lambda: sum(len(batch) for batch in sink.take(sink.waiting())))


def _build_join() -> TimedGraph:
    streams = build_steady(2, 10_000)
    graph = streams.build_engine().graph
    operators = [node.operator for node in graph]
    sources = {operator.stream.name: operator for operator in operators if isinstance(operator, SourceOperator)}
    (join,) = (operator for operator in operators if isinstance(operator, JoinOperator))

    def feed(push: int) -> None:
        tables = streams.generate_between(push * PUSH_ROWS, (push + 1) * PUSH_ROWS)
        for name, table in tables.items():
            columns = {column: table.column(column).combine_chunks() for column in table.column_names}
            sources[name].feed(columns["ts"].to_numpy(), columns)

    return TimedGraph(graph, feed, lambda: sum(len(matches) for matches in join.output.take_matches()))


def _time_pair(by_cycle: TimedGraph, direct: TimedGraph, strategy: str, pushes: int) -> tuple[float, float]:
    """The median CPU seconds of a push by direct calls, and the median of what the cycle adds on the same push."""
    by_cycle.graph.schedule(strategy)
    operators = [node.operator for node in direct.graph]

    def call_operators() -> None:
        for operator in operators:
            operator.run(TURN_ROWS)

    graphs = {"cycle": by_cycle, "direct": direct}
    runs: dict[str, Callable[[], object]] = {
        "cycle": GraphScheduler(by_cycle.graph, TURN_ROWS).run,
        "direct": call_operators,
    }
    timer = TurnTimer(list(graphs), 1, pushes, thread_time)
    results = dict.fromkeys(graphs, 0)
    for push in range(pushes):
        for name in timer.order(push):
            graphs[name].feed(push)
            timer.run(name, 0, push, runs[name])
            results[name] += graphs[name].take()
    if not results["cycle"] == results["direct"] > 0:
        raise InternalError("LAB_RESULTS_DIFFER", f"the cycle and direct calls must have the same results: {results}")
    cycle, called = timer.best("cycle"), timer.best("direct")
    return float(median(called)), float(median(cycle - called))
