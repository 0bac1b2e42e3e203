"""The latency of a burst in two operators of the engine, measured by a function that is subscribed to the query.

A derived stream selects, and a query that reads it selects again. In virtual time a tuple costs `TUPLE_COST` in each of
the two; what carries it between them costs nothing. On the clock the latency is the time from the begin of the push to
the call of the function.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np
import pyarrow as pa

from penstock.engine import Engine
from penstock.graph import Node
from penstock.lab.report import Report, ReportRow, Section, check_at_least, check_equals

TUPLE_COST = 20
"""Virtual microseconds of a tuple in an operator."""
_FREE = ("source ", "stream ")


def report_bursts(report: Report, sizes: tuple[int, ...], rounds: int) -> None:
    """(n + 1) c in DFS, (1.5 n + 0.5) c in BFS, exactly in virtual time; their ratio on the clock."""
    rows: list[ReportRow] = []
    for size in sizes:
        for strategy, halves in {"dfs": 2 * (size + 1), "bfs": 3 * size + 1}.items():
            left = play_burst(size, strategy)
            rows.append({
                "burst": size,
                "strategy": strategy,
                "mean_us": sum(left) / size,
                "formula_us": halves * TUPLE_COST / 2,
                "exact": len(left) == size and 2 * sum(left) == halves * TUPLE_COST * size,
            })  # fmt: skip
    report.sections.append(Section("burst_latency", "Latency of a burst in two operators, virtual time", rows))
    report.checks.append(check_equals("burst_latency_exact", sum(row["exact"] for row in rows), len(rows), "cases"))
    _report_clock(report, max(sizes), rounds)


def _report_clock(report: Report, size: int, rounds: int) -> None:
    """Rounds alternate, so that both strategies meet the same load of the machine."""
    times: dict[str, list[float]] = {"dfs": [], "bfs": []}
    engines = {strategy: _build_engine(strategy) for strategy in times}
    for number in range(rounds):
        for strategy, engine in engines.items():
            times[strategy].append(_time_burst(engine, size, number))
    means = {strategy: median(found) for strategy, found in times.items()}
    ratio = median(bfs / dfs for dfs, bfs in zip(times["dfs"], times["bfs"], strict=True))
    rows = [{"burst": size, "dfs_ms": 1e3 * means["dfs"], "bfs_ms": 1e3 * means["bfs"], "bfs_over_dfs": ratio}]
    report.sections.append(Section("burst_clock", f"The same on the clock, median of {rounds} bursts", rows))
    report.checks.append(check_at_least("bfs_over_dfs_on_the_clock", ratio, 1, "times"))


def _build_engine(strategy: str) -> Engine:
    engine = Engine(batch=1, schedule=strategy)
    engine.stream("a", {"ts": "bigint", "v": "double"}, time="ts")
    engine.derive("selected", "SELECT v FROM a [NOW] WHERE v >= 0")
    engine.query("out", "SELECT v FROM selected [NOW] WHERE v < 1")
    return engine


def _push_burst(engine: Engine, size: int, begin: int, function: Callable[[pa.Table], object]) -> None:
    """Push tuples of successive instants; time is promised, so that all of them become certain in this push."""
    rows = {"ts": np.arange(begin, begin + size), "v": np.linspace(0, 0.9, size)}
    with engine.subscribe("out", function):
        engine.push({"a": pa.table(rows)}, {"a": begin + size})


def play_burst(size: int, strategy: str) -> list[int]:
    """When each tuple of a burst at 0 leaves, in virtual time."""
    engine, now, left = _build_engine(strategy), 0, list[int]()

    def advance_clock(node: Node, done: int) -> None:
        nonlocal now
        now += 0 if node.id.startswith(_FREE) else done * TUPLE_COST

    engine.scheduler.on_step = advance_clock
    _push_burst(engine, size, 0, lambda rows: left.extend([now] * rows.num_rows))
    return left


def _time_burst(engine: Engine, size: int, number: int) -> float:
    """The mean time at which a tuple leaves, in seconds after the begin of the push."""
    left: list[float] = []
    begin = perf_counter()
    _push_burst(engine, size, number * size, lambda rows: left.extend([perf_counter() - begin] * rows.num_rows))
    return sum(left) / size
