"""The workload of the JIT paper (section VI): a clique join, in which every pair of streams joins on its own column.

Tables II and III have the bushy and left-deep plans, and the ranges of window, rate, number of sources and domain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.engine import Engine

Shape = Literal["bushy", "left-deep"]

SECOND = 1000
"""Ticks of the time column."""
PUSHES_PER_WINDOW = 10

PLANS: dict[Shape, dict[int, str]] = {
    "bushy": {
        4: "((A B) (C D))",
        5: "(((A B) (C D)) E)",
        6: "(((A B) (C D)) (E F))",
        7: "(((A B) (C D)) ((E F) G))",
        8: "(((A B) (C D)) ((E F) (G H)))",
    },
    "left-deep": {3: "((A B) C)", 4: "(((A B) C) D)", 5: "((((A B) C) D) E)", 6: "(((((A B) C) D) E) F)"},
}


@dataclass(frozen=True)
class Clique:
    """One point of the experiments: `sources` streams of `rate` tuples per second, all with windows of `minutes`.

    The values of a column are uniform in 1..dmax. In left-deep plans those of the last stream are in 1..100·dmax, as
    in the paper (`widened`). With the paper's parameters a clique has almost no results: see `expected_results`. A
    share `hot` of the tuples has the value 1 in every column.
    """

    shape: Shape
    minutes: float
    rate: float
    sources: int
    dmax: int
    hours: float = 5
    widened: int = 100
    seed: int = 1
    hot: float = 0.0

    @property
    def plan(self) -> str:
        return PLANS[self.shape][self.sources]

    @property
    def names(self) -> str:
        return "ABCDEFGH"[: self.sources]

    @property
    def _pairs(self) -> dict[str, tuple[str, str]]:
        """The column that each pair of streams shares."""
        return {f"x{number}": pair for number, pair in enumerate(combinations(self.names, 2), 1)}

    def _list_columns(self, name: str) -> tuple[str, ...]:
        return tuple(column for column, pair in self._pairs.items() if name in pair)

    @property
    def cql(self) -> str:
        items = ", ".join(f"{name}.ts AS {name.lower()}" for name in self.names)
        sources = ", ".join(f"{name} [RANGE {self._window}]" for name in self.names)
        equal = " AND ".join(f"{a}.{column} = {b}.{column}" for column, (a, b) in self._pairs.items())
        return f"SELECT {items} FROM {sources} WHERE {equal}"

    @property
    def expected_results(self) -> float:
        """The expected number of results if windows are full from the start.

        It is the number of combinations with the newest tuple, times the probability that every pair matches.
        """
        probabilities = [1 / self._find_max_value(b) for _, b in self._pairs.values()]
        combinations_each = (self.rate * self.minutes * 60) ** (self.sources - 1)
        arrivals = self.sources * self.rate * self.hours * 3600
        return arrivals * combinations_each * math.prod(probabilities)

    def _find_max_value(self, name: str) -> int:
        """The largest value of the columns of a stream. In a pair, the later stream has the larger one."""
        wide = self.shape == "left-deep" and name == self.names[-1]
        return self.dmax * (self.widened if wide else 1)

    @property
    def _window(self) -> int:
        return round(self.minutes * 60 * SECOND)

    def build_engine(self, state: str) -> Engine:
        """A new engine with the streams and the query `q`."""
        engine = Engine(state=state)
        for name in self.names:
            engine.stream(name, dict.fromkeys(("ts", *self._list_columns(name)), "bigint"), time="ts")
        engine.query("q", self.cql, plan=self.plan)
        return engine

    def generate_pushes(self) -> list[dict[str, pa.Table]]:
        """The whole history in pushes of a tenth of the window, so that a state has few rows beyond its window."""
        span = round(self.hours * 3600 * SECOND)
        edges = np.arange(0, span + 1, self._window // PUSHES_PER_WINDOW)
        tables = {name: self._generate_table(order, name, span) for order, name in enumerate(self.names)}
        cuts = {name: np.searchsorted(table.column("ts").to_numpy(), edges) for name, table in tables.items()}
        return [
            {name: table.slice(cuts[name][at], cuts[name][at + 1] - cuts[name][at]) for name, table in tables.items()}
            for at in range(edges.size - 1)
        ]

    def _generate_table(self, order: int, name: str, span: int) -> pa.Table:
        rng = np.random.default_rng((self.seed, order))
        rows = round(self.rate * span / SECOND)
        top = self._find_max_value(name)
        columns = {"ts": np.sort(rng.integers(0, span, rows))}
        columns |= {column: rng.integers(1, top + 1, rows) for column in self._list_columns(name)}
        if self.hot:
            chosen = rng.random(rows) < self.hot
            columns |= {column: np.where(chosen, 1, columns[column]) for column in self._list_columns(name)}
        return pa.table(columns)


DEFAULTS: dict[Shape, Clique] = {
    "bushy": Clique("bushy", minutes=20, rate=1, sources=6, dmax=200),
    "left-deep": Clique("left-deep", minutes=10, rate=1, sources=4, dmax=50),
}


WITH_RESULTS = (
    *(Clique("bushy", minutes=2, rate=1, sources=4, dmax=dmax, hours=0.25) for dmax in (6, 8, 12, 16)),
    Clique("bushy", minutes=2, rate=1, sources=5, dmax=6, hours=0.25),
    Clique("bushy", minutes=2, rate=1, sources=6, dmax=5, hours=0.25),
    *(Clique("left-deep", minutes=2, rate=1, sources=3, dmax=dmax, hours=0.25, widened=1) for dmax in (8, 20)),
    Clique("left-deep", minutes=10, rate=1, sources=3, dmax=50, hours=1, widened=1),
    *(Clique("left-deep", minutes=2, rate=1, sources=4, dmax=dmax, hours=0.25, widened=1) for dmax in (6, 8, 12)),
)
"""Not in the paper: points with many results, for which most suppressed rows are resumed later."""

HOT = (
    Clique("left-deep", minutes=2, rate=50, sources=3, dmax=10_000, hours=0.2, widened=1, hot=0.01),
    Clique("left-deep", minutes=2, rate=15, sources=4, dmax=10_000, hours=0.2, widened=1, hot=0.01),
    Clique("bushy", minutes=2, rate=15, sources=4, dmax=10_000, hours=0.2, hot=0.01),
)
"""Not in the paper: one tuple in a hundred is hot, so that the fan-out of a few recent tuples says little."""


@dataclass(frozen=True)
class Sweep:
    """A figure of the paper: one parameter varies over its range, the others have their defaults."""

    figure: int
    shape: Shape
    parameter: Literal["minutes", "rate", "sources", "dmax"]
    values: tuple[float, ...]

    @property
    def label(self) -> str:
        names = {"minutes": "window size w, minutes", "rate": "stream rate λ, tuples/s", "sources": "sources N"}
        return names.get(self.parameter, "max data value dmax")

    def list_points(self) -> list[Clique]:
        """The points of the sweep, one for each value."""
        default = DEFAULTS[self.shape]
        return [replace(default, **{self.parameter: value}) for value in self.values]  # type: ignore[arg-type]


SWEEPS = (
    Sweep(10, "bushy", "minutes", (10, 15, 20, 25, 30)),
    Sweep(11, "bushy", "rate", (0.4, 0.7, 1, 1.3, 1.6)),
    Sweep(12, "bushy", "sources", (4, 5, 6, 7, 8)),
    Sweep(13, "bushy", "dmax", (100, 150, 200, 250, 300)),
    Sweep(14, "left-deep", "minutes", (5, 7.5, 10, 12.5, 15)),
    Sweep(15, "left-deep", "rate", (0.4, 0.7, 1, 1.3, 1.6)),
    Sweep(16, "left-deep", "sources", (3, 4, 5, 6)),
    Sweep(17, "left-deep", "dmax", (30, 40, 50, 60, 70)),
)
