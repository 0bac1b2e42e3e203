"""Runs of a workload in the engine, exactly or under a budget, and the load that the engine measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Any

from penstock.engine import Engine
from penstock.lab.papers.jaqpot.streams import PUSHES_PER_SECOND, Workload
from penstock.plan import PlanLoad


@dataclass(frozen=True)
class BudgetRun:
    """One run: results by push, probes, and the time of the analysis."""

    results: tuple[int, ...]
    first_counted: int
    """The first push that counts: windows are full, and states have the size that the budget permits."""
    probes: float
    """Probes per second of event time, from that push on."""
    timer: CallTimer
    """The calls of the analysis: each reads the statistics, and divides the budget if they have changed."""
    cpu: float
    """CPU seconds of all pushes."""
    metrics: Mapping[str, Any]

    @property
    def counted_results(self) -> tuple[int, ...]:
        return self.results[self.first_counted :]

    @property
    def total(self) -> int:
        return sum(self.counted_results)


def run_workload(workload: Workload, mu: float | None, policy: str = "lp", warm_seconds: float = 0.0) -> BudgetRun:
    """Run a workload exactly, or under the budget `mu` from its start. The first `warm_seconds` do not count."""
    engine = workload.build_engine()
    timer = CallTimer()
    if mu is not None:
        engine.budget(mu, policy)
        (overload,) = engine.overloads("q")
        overload.shedding.review = timer.wrap(overload.shedding.review)
        overload.shedding.settle = timer.wrap(overload.shedding.settle, counts=False)
    first = round(warm_seconds * PUSHES_PER_SECOND)
    results, before, begin = [], 0.0, process_time()
    for at, push in enumerate(workload.pushes):
        before = _count_probes(engine) if at == first else before
        results.append(engine.push(push)["q"].num_rows)
    spent = process_time() - begin
    probes = (_count_probes(engine) - before) / (workload.seconds - warm_seconds)
    return BudgetRun(tuple(results), first, probes, timer, spent, engine.metrics("q"))


class CallTimer:
    """Counts the calls of a function and the CPU seconds they take."""

    def __init__(self) -> None:
        self.seconds, self.calls = 0.0, 0

    def wrap(self, function: Callable[[], None], *, counts: bool = True) -> Callable[[], None]:
        """The function, timed; `counts`: whether a call of it is a look."""

        def timed() -> None:
            begin = process_time()
            function()
            self.seconds += process_time() - begin
            self.calls += counts

        return timed


def _count_probes(engine: Engine) -> float:
    metrics: Mapping[str, Any] = engine.metrics("q")
    return float(sum(metrics["probes"].values()))


def measure_load(workload: Workload, warm_seconds: float) -> PlanLoad:
    """The mean load of a workload after `warm_seconds`, as the engine measures it under a budget that never binds."""
    engine = workload.build_engine()
    engine.budget(1e12)
    (overload,) = engine.overloads("q")
    loads: dict[int, PlanLoad] = {}
    for at, push in enumerate(workload.pushes):
        engine.push(push)
        if at >= warm_seconds * PUSHES_PER_SECOND and overload.load is not None:
            loads[id(overload.load)] = overload.load
    measured = list(loads.values())

    def average(tables: Sequence[Mapping[Any, float]]) -> dict[Any, float]:
        return {key: sum(table[key] for table in tables) / len(tables) for key in tables[0]}

    averages = [average([getattr(load, name) for load in measured]) for name in ("rates", "productivity", "states")]
    return PlanLoad(measured[0].tree, *averages)
