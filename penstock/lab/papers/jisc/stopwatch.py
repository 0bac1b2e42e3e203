"""Timing of a migration strategy batch by batch, in CPU seconds of this process.

Every batch is timed in several rounds on new strategies, and its best round counts (see `penstock.lab.timing`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import process_time

import numpy as np

from penstock.lab.papers.jisc.rivals import MigrationStrategy
from penstock.lab.papers.jisc.streams import RoundRobinStreams, TickBatch

FILL_BATCH = 50_000

BuildMigration = Callable[[RoundRobinStreams, Sequence[str]], MigrationStrategy]


@dataclass(frozen=True)
class RunTimes:
    """CPU seconds of each batch and of the calls to migrate, and the number of results."""

    batches: tuple[float, ...]
    migrate: float
    results: int
    migrating: int
    """The number of batches after which a migration was not finished."""

    @property
    def total(self) -> float:
        return self.migrate + sum(self.batches)


def take_best(rounds: Sequence[RunTimes]) -> RunTimes:
    batches: list[float] = np.min([timed.batches for timed in rounds], axis=0).tolist()
    return RunTimes(tuple(batches), min(timed.migrate for timed in rounds), rounds[0].results, rounds[0].migrating)


def build_filled(build: BuildMigration, streams: RoundRobinStreams) -> MigrationStrategy:
    """A strategy with the old plan and full windows."""
    strategy = build(streams, streams.names)
    for ticks in streams.cut_batches(0, streams.window, FILL_BATCH):
        strategy.feed(ticks)
    return strategy


def time_batches(
    strategy: MigrationStrategy, batches: Iterable[TickBatch], migrations: dict[int, tuple[str, ...]]
) -> RunTimes:
    """Feed batches. `migrations` has the new order of streams for the batches before which the plan changes."""
    seconds: list[float] = []
    migrate, results, migrating = 0.0, 0, 0
    for number, ticks in enumerate(batches):
        begin = process_time()
        if number in migrations:
            strategy.migrate(migrations[number])
            migrate += process_time() - begin
            begin = process_time()
        results += strategy.feed(ticks)
        seconds.append(process_time() - begin)
        migrating += strategy.migrating
    return RunTimes(tuple(seconds), migrate, results, migrating)
