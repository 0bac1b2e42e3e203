"""The streams and queries of the State-Slice experiments: Poisson arrivals on A and B, joined on a key.

Two tuples have the same key with probability S_⋈, and a share S_σ of the tuples of A has `v` below S_σ. Times are in
milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.engine import Engine
from penstock.lab.workloads import PushTables

SECOND = 1000
"""Milliseconds of the time column."""


@dataclass(frozen=True)
class SliceQuery:
    """A query over both streams: its window in milliseconds, and the share of the tuples of A that pass its filter."""

    window: int
    share: float = 1.0

    @property
    def text(self) -> str:
        return build_select(self.window, "" if self.share >= 1 else f" AND a.v < {self.share}")


def build_select(window: int, where: str = "") -> str:
    """The join over a window, with further conditions; it selects all columns."""
    columns = "a.ts AS a_ts, a.k AS k, a.v AS v, b.ts AS b_ts, b.v AS b_v"
    return f"SELECT {columns} FROM A [RANGE {window}] a, B [RANGE {window}] b WHERE a.k = b.k{where}"


def build_engine(*, share: bool = True, queries: Sequence[SliceQuery] = ()) -> Engine:
    """An engine with both streams. The queries have the names q0, q1 and so on."""
    engine = Engine(share=share, max_queries=100_000)
    for name in "AB":
        engine.stream(name, {"ts": "bigint", "k": "bigint", "v": "double"}, time="ts")
    for place, query in enumerate(queries):
        engine.query(f"q{place}", query.text)
    return engine


@dataclass(frozen=True)
class PoissonStreams:
    """Both streams at a rate in tuples per second. `joins` is S_⋈, the share of pairs that join."""

    rate: float
    seconds: int
    joins: float
    seed: int = 7

    def generate_pushes(self) -> Iterator[PushTables]:
        """Pushes of one second each."""
        rng = np.random.default_rng(self.seed)
        odds = compute_key_odds(self.joins)
        for second in range(self.seconds):
            yield {name: self._generate_second(rng, second, odds) for name in "AB"}

    def _generate_second(self, rng: np.random.Generator, second: int, odds: NDArray[np.float64]) -> pa.Table:
        """A Poisson number of tuples at uniform times; the last is at the end of the second, as in the other stream."""
        times = np.sort(rng.integers(second * SECOND, (second + 1) * SECOND, max(1, rng.poisson(self.rate))))
        times[-1] = (second + 1) * SECOND - 1
        keys = rng.choice(odds.size, times.size, p=odds)
        return pa.table({"ts": times, "k": keys.astype(np.int64), "v": rng.random(times.size)})


def compute_key_odds(joins: float) -> NDArray[np.float64]:
    """Probabilities of keys such that two are equal with probability `joins`: all the same, but the first is larger."""
    count = ceil(1 / joins)
    if count == 1:
        return np.ones(1)
    first = (1 + sqrt((count * joins - 1) * (count - 1))) / count
    odds: NDArray[np.float64] = np.full(count, (1 - first) / (count - 1))
    odds[0] = first
    odds /= odds.sum()
    return odds


def count_least_rows(pushes: Sequence[PushTables], queries: Sequence[SliceQuery], now: int) -> int:
    """The rows that every exact plan must have at a time: those that a query can still join with a later tuple."""
    longest = max(query.window for query in queries)
    born = {name: np.concatenate([push[name].column("ts").to_numpy() for push in pushes]) for name in "AB"}
    values = np.concatenate([push["A"].column("v").to_numpy() for push in pushes])
    reach = np.zeros(values.size, np.int64)
    for query in queries:
        reach = np.where((values < query.share) | (query.share >= 1), np.maximum(reach, query.window), reach)
    return int((born["A"] + reach > now).sum() + (born["B"] + longest > now).sum())
