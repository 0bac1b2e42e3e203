"""The workloads of the JAQPOT paper's experiments: equi-joins of four streams, and five groups of sensors.

The paper's rates and windows (300 to 1,200 tuples a second, 200 to 5,000 tuples) are scaled to tens of tuples a second
and windows of about a hundred, so that ten minutes of event time run in seconds; its selectivities are kept. Arrivals
are Poisson. A join's selectivity is one over the size of its column's domain, and changes when the domain does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine import Engine
from penstock.lab.papers.jaqpot.sensors import SensorLab, clean_readings, split_groups
from penstock.plan.input_paths import PlanLoad

SECOND = 1_000_000
PUSHES_PER_SECOND = 4
PLANS = {"linear": "(((A B) C) D)", "bushy": "((A B) (C D))", "sensor": "(((A B) (C D)) E)"}
SELECTIVITIES = {"SEL1": (0.01, 0.01, 0.05), "SEL2": (0.03, 0.03, 0.05), "SEL3": (0.03, 0.03, 0.1)}
RATES = {"A": 20.0, "B": 12.0, "C": 16.0, "D": 10.0}
WINDOWS = {"A": 5.0, "B": 8.0, "C": 6.0, "D": 10.0}

PushTables = dict[str, pa.Table]


@dataclass(frozen=True)
class ChainWorkload:
    """A, B, C, D in a chain of three joins; `phases` are (seconds, name of the selectivities)."""

    shape: str
    phases: tuple[tuple[float, str], ...]
    freshness: float = 1.5
    seed: int = 1

    @property
    def plan(self) -> str:
        return PLANS[self.shape]

    @property
    def seconds(self) -> float:
        return sum(length for length, _ in self.phases)

    @property
    def cql(self) -> str:
        sources = ", ".join(f"{name} [RANGE {WINDOWS[name]:g} SECONDS]" for name in RATES)
        fresh = ", ".join(f"{name} {self.freshness * WINDOWS[name]:g} SECONDS" for name in RATES)
        return (
            f"SELECT A.id AS a, B.id AS b, C.id AS c, D.id AS d FROM {sources} "
            f"WHERE A.x = B.x AND B.y = C.y AND C.z = D.z FRESHNESS {fresh}"
        )

    def build_engine(self) -> Engine:
        engine = Engine(state="eager")
        for name in RATES:
            engine.stream(name, {"ts": "timestamp", **dict.fromkeys(("id", "x", "y", "z"), "bigint")}, time="ts")
        engine.query("q", self.cql, plan=self.plan)
        return engine

    @cached_property
    def pushes(self) -> list[PushTables]:
        rng = np.random.default_rng(self.seed)
        return [
            push
            for length, name, start in self._list_phases()
            for push in self._generate_phase(rng, length, name, start)
        ]

    def _list_phases(self) -> Iterator[tuple[float, str, float]]:
        start = 0.0
        for length, name in self.phases:
            yield length, name, start
            start += length

    def _generate_phase(self, rng: np.random.Generator, length: float, name: str, start: float) -> Iterator[PushTables]:
        domains = [round(1 / selectivity) for selectivity in SELECTIVITIES[name]]
        for step in range(round(length * PUSHES_PER_SECOND)):
            begin = start + step / PUSHES_PER_SECOND
            yield {alias: self._generate_tuples(rng, rate, begin, domains) for alias, rate in RATES.items()}

    def _generate_tuples(self, rng: np.random.Generator, rate: float, begin: float, domains: list[int]) -> pa.Table:
        rows = int(rng.poisson(rate / PUSHES_PER_SECOND))
        first = int(begin * SECOND)
        times = np.sort(rng.integers(first, first + SECOND // PUSHES_PER_SECOND, rows))
        keys = {column: rng.integers(0, size, rows) for column, size in zip("xyz", domains, strict=True)}
        return pa.table({"ts": pa.array(times, pa.timestamp("us")), "id": rng.integers(0, 1 << 40, rows), **keys})


@dataclass(frozen=True)
class SensorWorkload:
    """Five groups of motes; readings join on the temperature in twentieths of a degree.

    Time runs `speed` times as fast as in the lab, so that about 35 readings a second come from each group.
    """

    hours: float
    speed: float = 100.0
    rows: int = 200
    seed: int = 1

    plan = PLANS["sensor"]

    @property
    def seconds(self) -> float:
        return self.hours * 3600 / self.speed

    @property
    def cql(self) -> str:
        sources = ", ".join(f"{name} [ROWS {self.rows}]" for name in "ABCDE")
        equal = " AND ".join(f"A.k = {name}.k" for name in "BCDE")
        shown = ", ".join(f"{name}.moteid AS {name.lower()}" for name in "ABCDE")
        return f"SELECT {shown} FROM {sources} WHERE {equal}"

    def build_engine(self) -> Engine:
        engine = Engine(state="eager")
        for name in "ABCDE":
            engine.stream(name, {"ts": "timestamp", "moteid": "bigint", "k": "bigint"}, time="ts")
        engine.query("q", self.cql, plan=self.plan)
        return engine

    @cached_property
    def pushes(self) -> list[PushTables]:
        readings = split_groups(clean_readings(SensorLab(seed=self.seed).generate_readings(self.hours * 3600)), "ABCDE")
        tables = {name: self._build_stream(part) for name, part in readings.items()}
        first = min(int(table.column("ts").cast("int64")[0].as_py()) for table in tables.values())
        edges = first + np.arange(0, round(self.seconds * PUSHES_PER_SECOND) + 1) * SECOND // PUSHES_PER_SECOND
        cuts = {
            name: np.searchsorted(table.column("ts").cast("int64").to_numpy(), edges) for name, table in tables.items()
        }
        return [
            {name: table.slice(cuts[name][at], cuts[name][at + 1] - cuts[name][at]) for name, table in tables.items()}
            for at in range(edges.size - 1)
        ]

    def _build_stream(self, readings: pa.Table) -> pa.Table:
        times = (readings.column("ts").cast("int64").to_numpy() / self.speed).astype(np.int64)
        keys = np.floor(20 * readings.column("temperature").to_numpy()).astype(np.int64)
        return pa.table({"ts": pa.array(times, pa.timestamp("us")), "moteid": readings.column("moteid"), "k": keys})


Workload = ChainWorkload | SensorWorkload


@dataclass(frozen=True)
class BudgetRun:
    """One run: results by push, what was probed, and what the analysis took."""

    results: tuple[int, ...]
    first_counted: int
    """The push from which on it counts: windows are full, and states hold what the budget makes of them."""
    probes: float
    """Per second of event time, from that push on."""
    timer: CallTimer
    """Over the looks at statistics, each with a division of the budget if they have moved."""
    cpu: float
    """The processor's seconds of all pushes."""
    metrics: Mapping[str, object]

    @property
    def counted_results(self) -> tuple[int, ...]:
        return self.results[self.first_counted :]

    @property
    def total(self) -> int:
        return sum(self.counted_results)


def run_workload(workload: Workload, mu: float | None, policy: str = "lp", warm_seconds: float = 0.0) -> BudgetRun:
    """Run a workload exactly, or under a budget from its start; it counts after `warm` seconds."""
    engine = workload.build_engine()
    watch = CallTimer()
    if mu is not None:
        engine.budget(mu, policy)
        (overload,) = engine.overloads("q")
        overload.shedding.review = watch.wrap(overload.shedding.review)
    first = round(warm_seconds * PUSHES_PER_SECOND)
    results, before, begin = [], 0.0, process_time()
    for at, push in enumerate(workload.pushes):
        before = _count_probes(engine) if at == first else before
        results.append(engine.push(push)["q"].num_rows)
    spent = process_time() - begin
    probes = (_count_probes(engine) - before) / (workload.seconds - warm_seconds)
    return BudgetRun(tuple(results), first, probes, watch, spent, engine.metrics("q"))


class CallTimer:
    """Counts the calls of what it is put around, and the processor's seconds they take."""

    def __init__(self) -> None:
        self.seconds, self.calls = 0.0, 0

    def wrap(self, function: Callable[[], None]) -> Callable[[], None]:
        def watched() -> None:
            begin = process_time()
            function()
            self.seconds += process_time() - begin
            self.calls += 1

        return watched


def _count_probes(engine: Engine) -> float:
    probes = engine.metrics("q")["probes"]
    assert isinstance(probes, dict)
    return float(sum(probes.values()))


def measure_load(workload: Workload, warm_seconds: float) -> PlanLoad:
    """The load of a workload after `warm` seconds, on average, as the engine measures it under an ample budget."""
    engine = workload.build_engine()
    engine.budget(1e12)
    (overload,) = engine.overloads("q")
    loads: dict[int, PlanLoad] = {}
    for at, push in enumerate(workload.pushes):
        engine.push(push)
        if at >= warm_seconds * PUSHES_PER_SECOND and overload.load is not None:
            loads[id(overload.load)] = overload.load
    some = list(loads.values())

    def average(tables: Sequence[Mapping[Any, float]]) -> dict[Any, float]:
        return {key: sum(table[key] for table in tables) / len(tables) for key in tables[0]}

    averages = [average([getattr(load, name) for load in some]) for name in ("rates", "productivity", "states")]
    return PlanLoad(some[0].tree, *averages)
