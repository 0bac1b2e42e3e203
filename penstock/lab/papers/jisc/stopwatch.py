"""Timing of contenders that do the same work batch by batch.

CPU time of this process, which runs on one core: what others do on the machine does not count. Every batch is timed
in several rounds on fresh contenders, and its best time stands: a disturbance never makes anything faster.
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
    """Seconds of each batch, of the calls to migrate, and what came out."""

    batches: tuple[float, ...]
    migrate: float
    results: int
    migrating: int
    """In how many batches the migration was still under way."""

    @property
    def total(self) -> float:
        return self.migrate + sum(self.batches)


def take_best(rounds: Sequence[RunTimes]) -> RunTimes:
    batches: list[float] = np.min([timed.batches for timed in rounds], axis=0).tolist()
    return RunTimes(tuple(batches), min(timed.migrate for timed in rounds), rounds[0].results, rounds[0].migrating)


def build_filled(make: BuildMigration, streams: RoundRobinStreams) -> MigrationStrategy:
    """A contender in the old plan with full windows."""
    rival = make(streams, streams.names)
    for ticks in streams.cut_batches(0, streams.window, FILL_BATCH):
        rival.feed(ticks)
    return rival


def time_batches(
    rival: MigrationStrategy, batches: Iterable[TickBatch], migrations: dict[int, tuple[str, ...]]
) -> RunTimes:
    """Feed batches; before some of them, by number, the plan changes."""
    seconds: list[float] = []
    migrate, results, migrating = 0.0, 0, 0
    for number, ticks in enumerate(batches):
        begin = process_time()
        if number in migrations:
            rival.migrate(migrations[number])
            migrate += process_time() - begin
            begin = process_time()
        results += rival.feed(ticks)
        seconds.append(process_time() - begin)
        migrating += rival.migrating
    return RunTimes(tuple(seconds), migrate, results, migrating)
