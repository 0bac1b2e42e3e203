"""The workloads of the JAQPOT paper's experiments: equi-joins of four streams, and five groups of sensors.

The rates and windows of the paper (300 to 1,200 tuples per second, 200 to 5,000 tuples) are scaled down to tens of
tuples per second and windows of about a hundred tuples, so that ten minutes of event time run in seconds. The
selectivities are those of the paper. Arrivals are Poisson. The selectivity of a join is one over the size of the domain
of its column, so a change of the domain changes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from penstock.engine import Engine
from penstock.lab.papers.jaqpot.sensors import SensorLab, clean_readings, split_groups
from penstock.lab.workloads import SECOND, PushTables

PUSHES_PER_SECOND = 4
PLANS = {"linear": "(((A B) C) D)", "bushy": "((A B) (C D))", "sensor": "(((A B) (C D)) E)"}
SELECTIVITIES = {"SEL1": (0.01, 0.01, 0.05), "SEL2": (0.03, 0.03, 0.05), "SEL3": (0.03, 0.03, 0.1)}
RATES = {"A": 20.0, "B": 12.0, "C": 16.0, "D": 10.0}
WINDOWS = {"A": 5.0, "B": 8.0, "C": 6.0, "D": 10.0}
"""All hold about a hundred tuples."""
UNEQUAL_WINDOWS = {**WINDOWS, "D": 1.0}
"""That of D holds a tenth, so the directions of its joins differ in worth: the paper's hold 200 to 5,000 tuples."""


@dataclass(frozen=True)
class ChainWorkload:
    """The streams A, B, C and D in a chain of three joins. A phase has seconds and a name of selectivities."""

    shape: str
    phases: tuple[tuple[float, str], ...]
    freshness: float = 1.5
    seed: int = 1
    unequal: bool = False

    @property
    def plan(self) -> str:
        return PLANS[self.shape]

    @property
    def windows(self) -> Mapping[str, float]:
        """The seconds of each window."""
        return UNEQUAL_WINDOWS if self.unequal else WINDOWS

    @property
    def seconds(self) -> float:
        return sum(length for length, _ in self.phases)

    @property
    def cql(self) -> str:
        sources = ", ".join(f"{name} [RANGE {self.windows[name]:g} SECONDS]" for name in RATES)
        fresh = ", ".join(f"{name} {self.freshness * self.windows[name]:g} SECONDS" for name in RATES)
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
    """Five groups of motes. Readings join on the temperature in twentieths of a degree.

    Times are divided by `speed`, so that each group has about 35 readings per second.
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
        columns = ", ".join(f"{name}.moteid AS {name.lower()}" for name in "ABCDE")
        return f"SELECT {columns} FROM {sources} WHERE {equal}"

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
