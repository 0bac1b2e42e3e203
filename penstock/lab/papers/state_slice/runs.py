"""Runs of the sharing strategies side by side, in CPU seconds of this process; see `penstock.lab.timing`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from penstock.lab.papers.state_slice.rivals import SHARING_STRATEGIES, SharingStrategy, StateSize
from penstock.lab.papers.state_slice.streams import SECOND, SliceQuery, count_least_rows
from penstock.lab.timing import TurnTimer
from penstock.lab.workloads import PushTables


@dataclass(frozen=True)
class StrategyOutcome:
    """A strategy on some pushes: CPU seconds, results of all queries, and the mean state when windows are full."""

    seconds: float
    results: int
    state: StateSize

    @property
    def rate(self) -> float:
        """Results per second of CPU: the paper's service rate."""
        return self.results / self.seconds


BuildSharing = Callable[[Sequence[SliceQuery]], SharingStrategy]


def run_side_by_side(
    queries: Sequence[SliceQuery],
    pushes: Sequence[PushTables],
    rounds: int,
    strategies: Mapping[str, BuildSharing] = SHARING_STRATEGIES,
) -> dict[str, StrategyOutcome]:
    """Run the strategies on the same pushes. The first round is counted, all rounds are timed."""
    names = list(strategies)
    full = _find_first_full_push(queries, pushes)
    timer = TurnTimer(names, rounds, len(pushes))
    results = dict.fromkeys(names, 0)
    states: dict[str, list[StateSize]] = {name: [] for name in names}
    for number in range(rounds):
        running = {name: build(queries) for name, build in strategies.items()}
        for at, push in enumerate(pushes):
            for name in timer.order(at):
                tables = timer.run(name, number, at, partial(running[name].push, push))
                if number == 0:
                    results[name] += sum(table.num_rows for table in tables)
                    if at >= full:
                        states[name].append(running[name].measure_state())
    return {name: StrategyOutcome(timer.total(name), results[name], _average_states(states[name])) for name in names}


def _find_first_full_push(queries: Sequence[SliceQuery], pushes: Sequence[PushTables]) -> int:
    """The first push at which all windows are full, or the last push. State is measured from it on."""
    return min(max(query.window for query in queries) // SECOND, len(pushes) - 1)


def _average_states(states: Sequence[StateSize]) -> StateSize:
    rows, bytes_, allocated = np.mean([(s.rows, s.row_bytes, s.allocated_bytes) for s in states], axis=0)
    return StateSize(round(rows), float(bytes_), round(allocated))


def compute_mean_minimum(queries: Sequence[SliceQuery], pushes: Sequence[PushTables]) -> float:
    """The fewest rows that an exact plan can have, over the pushes at which `run_side_by_side` measures state."""
    ends = [min(push[name].column("ts")[-1].as_py() for name in "AB") for push in pushes]
    return float(
        np.mean(
            [
                count_least_rows(pushes[: at + 1], queries, ends[at])
                for at in range(_find_first_full_push(queries, pushes), len(pushes))
            ]
        )
    )
