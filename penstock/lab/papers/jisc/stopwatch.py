"""Timing of contenders that do the same work batch by batch.

CPU time of this process, which runs on one core: what others do on the machine does not count. Every batch is timed
in several rounds on fresh contenders, and its best time stands: a disturbance never makes anything faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import process_time

import numpy as np

from penstock.lab.papers.jisc.rivals import Rival
from penstock.lab.papers.jisc.streams import RoundRobin, Ticks

FILL_BATCH = 50_000

Make = Callable[[RoundRobin, Sequence[str]], Rival]


@dataclass(frozen=True)
class Timed:
    """Seconds of each batch, of the calls to migrate, and what came out."""

    batches: tuple[float, ...]
    migrate: float
    results: int
    migrating: int
    """In how many batches the migration was still under way."""

    @property
    def total(self) -> float:
        return self.migrate + sum(self.batches)


def best(rounds: Sequence[Timed]) -> Timed:
    batches: list[float] = np.min([timed.batches for timed in rounds], axis=0).tolist()
    return Timed(tuple(batches), min(timed.migrate for timed in rounds), rounds[0].results, rounds[0].migrating)


def filled(make: Make, streams: RoundRobin) -> Rival:
    """A contender in the old plan with full windows."""
    rival = make(streams, streams.names)
    for ticks in streams.cut(0, streams.window, FILL_BATCH):
        rival.feed(ticks)
    return rival


def timed(rival: Rival, batches: Iterable[Ticks], migrations: dict[int, tuple[str, ...]]) -> Timed:
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
    return Timed(tuple(seconds), migrate, results, migrating)
