"""Runs of the State-Slice lab: contenders side by side, many queries, queries that come and go.

CPU time of this process. Contenders take turns push by push, in an order that changes, and of each push the best of
some rounds stands: what else happens on the machine hits all of them, and never makes anything faster.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.engine import Engine
from penstock.lab.papers.state_slice.rivals import SHARING_STRATEGIES, SharingStrategy, StateSize, measure_engine_state
from penstock.lab.papers.state_slice.streams import (
    SECOND,
    PoissonStreams,
    PushTables,
    SliceQuery,
    build_engine,
    count_least_rows,
)

STATUS_FILE = Path("/proc/self/status")


@dataclass(frozen=True)
class StrategyOutcome:
    """A contender on some pushes: seconds, what it gave to all queries together, and its mean state once full."""

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
    contenders: dict[str, BuildSharing] | None = None,
) -> dict[str, StrategyOutcome]:
    """All contenders on the same pushes."""
    contenders = contenders or dict(SHARING_STRATEGIES)
    names = list(contenders)
    full = _find_first_full_push(queries, pushes)
    seconds = {name: np.zeros((rounds, len(pushes))) for name in names}
    results = dict.fromkeys(names, 0)
    states: dict[str, list[StateSize]] = {name: [] for name in names}
    for number in range(rounds):
        running = {name: make(queries) for name, make in contenders.items()}
        for at, push in enumerate(pushes):
            for name in names[at % len(names) :] + names[: at % len(names)]:
                begin = process_time()
                tables = running[name].push(push)
                seconds[name][number, at] = process_time() - begin
                if number == 0:
                    results[name] += sum(table.num_rows for table in tables)
                    if at >= full:
                        states[name].append(running[name].measure_state())
    return {
        name: StrategyOutcome(float(seconds[name].min(axis=0).sum()), results[name], _average_states(states[name]))
        for name in names
    }


def _find_first_full_push(queries: Sequence[SliceQuery], pushes: Sequence[PushTables]) -> int:
    """From which push on state is looked at: when all windows are full, or at the last."""
    return min(max(query.window for query in queries) // SECOND, len(pushes) - 1)


def _average_states(states: Sequence[StateSize]) -> StateSize:
    rows, bytes_, allocated = np.mean([(s.rows, s.row_bytes, s.allocated_bytes) for s in states], axis=0)
    return StateSize(round(rows), float(bytes_), round(allocated))


def compute_mean_minimum(queries: Sequence[SliceQuery], pushes: Sequence[PushTables]) -> float:
    """The fewest rows any exact plan can hold, over the same pushes as the states of `side_by_side`."""
    ends = [min(push[name].column("ts")[-1].as_py() for name in "AB") for push in pushes]
    return float(
        np.mean(
            [
                count_least_rows(pushes[: at + 1], queries, ends[at])
                for at in range(_find_first_full_push(queries, pushes), len(pushes))
            ]
        )
    )


# ── many queries ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class QueryMix:
    """So many queries that differ in window, with `filters` filters among them; the first is the largest of all."""

    count: int
    longest: int
    filters: int

    def build_queries(self) -> list[SliceQuery]:
        step = max(1, self.longest // (2 * self.count))
        return [
            SliceQuery(self.longest - place * step, round(1 - place % self.filters / self.filters, 4))
            for place in range(self.count)
        ]


@dataclass(frozen=True)
class ScalingOutcome:
    """A crowd in one engine beside the first of its queries alone: `seconds` nobody looks, `looked` at a sample."""

    seconds: float
    single_seconds: float
    sample_seconds: float
    register_seconds: float
    register_mib: float
    state: StateSize
    single_state: StateSize
    wrong: int
    """Queries of the sample that did not answer what they answer alone."""


def measure_scaling(
    queries: Sequence[SliceQuery], pushes: Sequence[PushTables], sample: Sequence[int], rounds: int
) -> ScalingOutcome:
    """The pushes come again and again, later each time; seconds are those of their second half, windows being full."""
    begin, size = process_time(), _read_resident_mib()
    crowd = build_engine(queries=queries)
    registered, grown = process_time() - begin, _read_resident_mib() - size
    alone = build_engine(queries=queries[:1])
    half = len(pushes) // 2
    seconds = np.zeros((2, rounds, len(pushes)))
    for number in range(rounds):
        for at, push in enumerate(_shift_pushes(pushes, number)):
            for place in (0, 1) if at % 2 else (1, 0):
                begin = process_time()
                (crowd, alone)[place].push(push)
                seconds[place, number, at] = process_time() - begin
    spent = seconds.min(axis=1)[:, half:].sum(axis=1)
    states = measure_engine_state(crowd), measure_engine_state(alone)
    looked, wrong = _check_sample(
        crowd, queries, _shift_pushes(pushes, rounds - 1), _shift_pushes(pushes, rounds), sample
    )
    return ScalingOutcome(float(spent[0]), float(spent[1]), looked, registered, grown, *states, wrong)


def _check_sample(
    crowd: Engine,
    queries: Sequence[SliceQuery],
    seen: Sequence[PushTables],
    pushes: Sequence[PushTables],
    sample: Sequence[int],
) -> tuple[float, int]:
    """Seconds of the second half of pushes with a sample looked at, and how many of it differ from the query alone.

    `seen` is what the crowd saw before.
    """
    alone = {place: build_engine(queries=[queries[place]]) for place in sample}
    answers: dict[int, tuple[list[pa.Table], list[pa.Table]]] = {place: ([], []) for place in sample}
    for single in alone.values():
        for push in seen:
            single.push(push)
    half, seconds = len(pushes) // 2, 0.0
    for at, push in enumerate(pushes):
        begin = process_time()
        out = crowd.push(push)
        tables = [out[f"q{place}"] for place in sample]
        seconds += process_time() - begin if at >= half else 0.0
        for place, table in zip(sample, tables, strict=True):
            answers[place][0].append(table)
            answers[place][1].append(alone[place].push(push)["q0"])
    return seconds, sum(not _has_same_rows(*map(pa.concat_tables, both)) for both in answers.values())


def _shift_pushes(pushes: Sequence[PushTables], times: int) -> list[PushTables]:
    """The same tuples, so many times the length of the whole later."""
    shift = times * len(pushes) * SECOND
    return [
        {
            name: table.set_column(0, "ts", pa.array(table.column("ts").to_numpy() + shift))
            for name, table in push.items()
        }
        for push in pushes
    ]


def _has_same_rows(one: pa.Table, other: pa.Table) -> bool:
    order = [(name, "ascending") for name in one.column_names]
    return bool(one.sort_by(order).equals(other.sort_by(order)))


def _read_resident_mib() -> float:
    """The resident size of this process, where the system tells it."""
    if not STATUS_FILE.exists():
        return 0.0
    gc.collect()
    line = next(line for line in STATUS_FILE.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


# ── queries that come and go ─────────────────────────────────────────────────────────────────────────────────────────

CHANGES: tuple[tuple[str, Callable[[Engine, Sequence[SliceQuery]], None]], ...] = (
    ("add, window and filter known", lambda eng, queries: eng.query("new", queries[1].text)),
    ("drop it", lambda eng, _: eng.drop("new")),
    ("add, a window between", lambda eng, queries: eng.query("new", SliceQuery(queries[1].window - 7).text)),
    ("drop it", lambda eng, _: eng.drop("new")),
    ("add, a filter of its own", lambda eng, queries: eng.query("new", SliceQuery(queries[1].window, 0.123).text)),
    ("drop it", lambda eng, _: eng.drop("new")),
    ("add, the largest window", lambda eng, queries: eng.query("new", SliceQuery(queries[0].window + SECOND).text)),
    ("drop it", lambda eng, _: eng.drop("new")),
)
"""What happens to an engine under load, one thing every other push."""


@dataclass(frozen=True)
class ChangeTimes:
    """Seconds by round: of quiet pushes, of those with a change before them, and of the calls that made the changes."""

    quiet: NDArray[np.float64]
    changed: NDArray[np.float64]
    calls: NDArray[np.float64]

    def compute_ratios(self) -> NDArray[np.float64]:
        """For each round and change: its push against the median quiet push of the round."""
        ratios: NDArray[np.float64] = self.changed / np.median(self.quiet, axis=1, keepdims=True)
        return ratios

    def compute_best(self) -> NDArray[np.float64]:
        """The same of the best round of each push."""
        best: NDArray[np.float64] = self.changed.min(axis=0) / np.median(self.quiet.min(axis=0))
        return best

    def compute_best_calls(self) -> NDArray[np.float64]:
        """The calls, of the best round of each, against the same median."""
        best: NDArray[np.float64] = self.calls.min(axis=0) / np.median(self.quiet.min(axis=0))
        return best

    def find_slowest_quiet(self) -> float:
        return float(self.quiet.min(axis=0).max() / np.median(self.quiet.min(axis=0)))


def measure_changes(queries: Sequence[SliceQuery], streams: PoissonStreams, rounds: int) -> ChangeTimes:
    """Every push's first query is looked at. The windows are full when the changes begin."""
    pushes = list(streams.generate_pushes())
    first = len(pushes) - 2 * len(CHANGES)
    quiet: list[list[float]] = []
    changed: list[list[float]] = []
    calls: list[list[float]] = []
    for _ in range(rounds):
        running = build_engine(queries=queries)
        quiet.append([])
        changed.append([])
        calls.append([])
        for at, push in enumerate(pushes):
            begin = process_time()
            if at >= first and not (at - first) % 2:
                CHANGES[(at - first) // 2][1](running, queries)
                calls[-1].append(process_time() - begin)
            begin = process_time()
            running.push(push)["q0"]
            if at >= first:
                (quiet if (at - first) % 2 else changed)[-1].append(process_time() - begin)
    return ChangeTimes(np.array(quiet), np.array(changed), np.array(calls))
