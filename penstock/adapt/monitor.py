"""Measurements of a running join: rates, the part of pairs that agree, sizes, and the load of the engine.

A `JoinSample` is taken between two pushes and is cheap: counts, and the codes of each window's newest tuples. The rest
is arithmetic over frozen values in another thread: `observe` compares the codes of every two streams and blends the
result with the observation before, which counts a quarter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import inf, sqrt

import numpy as np

from penstock.adapt.join_budget import ticks_per_second
from penstock.adapt.protocols import ObservedBudgets, Q
from penstock.join import JoinNode, JoinOperator, LeafStore, measure_windows
from penstock.plan import JoinGraph, PlanShape, Rates, SharedWindows, SliceChain, Statistics
from penstock.state import I32

MAX_COMPARED = 1024
"""How many tuples of a window are compared."""
_DECAY = 0.25
"""The factor by which an observation reduces the weight of earlier ones."""
_CHANGE_RATIO, _CHANCE_DEVIATIONS = 1.0, 8.0
"""Earlier observations are discarded if they differ by this ratio and by this many deviations."""
_DEFAULT_HORIZON = 10.0

PairCounts = Mapping[frozenset[str], tuple[float, float]]
"""For two aliases: pairs of their rows that agreed, and pairs that were compared."""


@dataclass(frozen=True)
class PushStats:
    """The pushes since the last sample: how many, their seconds of the clock and of event time."""

    pushes: int
    seconds: float
    event_seconds: float
    allowed_seconds: float | None = None
    """The seconds of the clock available for them; None if that is the event time they cover."""

    def available_seconds(self, speed: float) -> float:
        """The seconds of the clock available for them; `speed`: how fast event time passes."""
        return self.event_seconds / speed if self.allowed_seconds is None else self.allowed_seconds


@dataclass(frozen=True)
class SliceSample:
    """The present ends of slices, and the inputs of their cost model, in seconds."""

    chain: SliceChain
    windows: SharedWindows
    rates: Rates


@dataclass(frozen=True)
class JoinSample:
    """A join between two pushes. `names` has the aliases of `query`, one of the queries that share the join."""

    join: str
    query: str
    names: Mapping[str, str]
    shapes: tuple[str, ...]
    """The shapes of all joins of the query, in the order of its plan text."""
    join_index: int
    """The index of this join among them."""
    time: float
    """Seconds of event time."""
    horizon: float
    """The shortest window, in seconds."""
    graph: JoinGraph
    tree: PlanShape
    state: str
    codes: Mapping[str, Mapping[int, I32]]
    rates: Mapping[str, float]
    rows: Mapping[str, float]
    """The rows of each window at the present rate."""
    state_rows: int
    push_stats: PushStats
    join_count: int
    """How many joins share the time of a push."""
    sheddable: bool
    """Whether all queries that share the join have FRESHNESS and can have a budget of their own."""
    has_own_budget: bool
    """Whether the query has a budget of its own."""
    demand_ratio: float | None
    """Under a budget: the probes that all rows would need, divided by the probes allowed."""
    pairs: PairCounts = field(default_factory=dict)
    """The result of comparing the codes, if that is done; see `compare_codes`."""
    slices: SliceSample | None = None
    """The slices of the queries that share the join; None if there is nothing to merge."""


def sample_join(
    join: JoinOperator, running: Q, budgets: ObservedBudgets[Q], since: float, push_stats: PushStats, joins: int
) -> JoinSample:
    """Sample a join; `since` is the event time of the last sample, in seconds."""
    plan = join.tree.plan
    second = ticks_per_second(plan)
    now = join.done / second
    shapes, (place, *_) = running.list_shapes(join)
    stores = join.tree.stores
    lifetimes = {alias: _find_lifetime(store) / second for alias, store in stores.items()}
    rates = {
        alias: _measure_rate(store, second, max(since, now - lifetimes[alias]), now) for alias, store in stores.items()
    }
    limits = [over for over in budgets.join_budgets(running) if over.join is join and over.load is not None]
    return JoinSample(
        join=join.id,
        query=running.name,
        names=running.own_aliases(join),
        shapes=shapes,
        join_index=place,
        time=now,
        horizon=compute_horizon(join),
        graph=JoinGraph(tuple(stores), plan.classes, (), tuple(plan.residuals)),
        tree=plan.tree,
        state=join.state,
        codes={alias: _read_newest_codes(store) for alias, store in stores.items()},
        rates=rates,
        rows={
            alias: rates[alias] * lifetimes[alias] if lifetimes[alias] < inf else float(len(store))
            for alias, store in stores.items()
        },
        state_rows=sum(
            len(node.state) for node in join.tree.walk_joins() if isinstance(node, JoinNode) and node.state is not None
        ),
        push_stats=push_stats,
        join_count=joins,
        sheddable=budgets.can_bind(running),
        has_own_budget=budgets.has_own_budget(running),
        demand_ratio=next(
            (over.load.saturation / max(over.shedding.mu, 1e-9) for over in limits if over.load is not None), None
        ),
        slices=_sample_slices(join, second),
    )


def _sample_slices(join: JoinOperator, second: int) -> SliceSample | None:
    found = measure_windows(join.shared_join.needs, join.tree)
    if found is None:
        return None
    windows, rates = found
    ends = tuple(end / second for end in windows.ends)
    per_second = replace(rates, a=rates.a * second, b=rates.b * second)
    return SliceSample(
        tuple(end / second for end in join.shared_join.slice_ends), replace(windows, ends=ends), per_second
    )


def compute_horizon(join: JoinOperator) -> float:
    """The shortest RANGE window of a join, in seconds of event time."""
    plan = join.tree.plan
    second = ticks_per_second(plan)
    windows = (leaf.source.window for leaf in plan.leaves)
    spans = [window.duration / second for window in windows if window.duration]
    return max(1.0, min(spans)) if spans else _DEFAULT_HORIZON


def _find_lifetime(store: LeafStore) -> float:
    """How many ticks a tuple is kept; infinite if that depends on later tuples."""
    length = store.plan.source.window.lifetime
    return inf if length is None else float(length)


def _measure_rate(store: LeafStore, second: int, since: float, now: float) -> float:
    """Tuples kept per second since a time."""
    if store.plan.source.is_table or now <= since:
        return 0.0
    born, _ = store.rows.read_lifetimes(store.rows.list_ids())
    return float(np.count_nonzero(born > since * second)) / (now - since)


def _read_newest_codes(store: LeafStore) -> dict[int, I32]:
    """The codes of the newest tuples of a stream, or of evenly spaced rows of a table."""
    rows = store.rows
    if store.plan.source.is_table:
        ids = np.unique(np.linspace(rows.base, max(rows.end - 1, rows.base), MAX_COMPARED).astype(np.int64))[
            : len(rows)
        ]
    else:
        ids = np.arange(max(rows.base, rows.end - MAX_COMPARED), rows.end)
    return {id_: rows.codes(id_, ids) for id_ in sorted(store.plan.classes)}


@dataclass(frozen=True)
class Observation:
    """A sample with the averages that decisions use."""

    sample: JoinSample
    pairs: PairCounts

    @property
    def statistics(self) -> Statistics:
        """Statistics for the cost model. Pairs that never agreed count as half an agreement."""
        sample = self.sample
        rows = {alias: max(rows, 1e-6) for alias, rows in sample.rows.items()}
        parts = {pair: max(agreed, 0.5) / max(compared, 1.0) for pair, (agreed, compared) in self.pairs.items()}
        return Statistics(sample.rates, rows, {}, parts)


def compare_codes(sample: JoinSample) -> JoinSample:
    """The sample with its codes compared and removed: codes are valid only inside their engine."""
    pairs = {}
    for one, other in combinations(sample.graph.aliases, 2):
        shared = sorted(sample.codes[one].keys() & sample.codes[other].keys())
        if shared:
            sides = [[sample.codes[alias][id_] for id_ in shared] for alias in (one, other)]
            pairs[frozenset((one, other))] = _count_agreeing(*sides), float(sides[0][0].size) * sides[1][0].size
    return replace(sample, codes={}, pairs=pairs)


def observe(sample: JoinSample, earlier: Observation | None) -> Observation:
    """The observation of a sample, blended with the observation before."""
    before = {} if earlier is None else earlier.pairs
    if sample.codes:
        sample = compare_codes(sample)
    return Observation(sample, {pair: _blend(before.get(pair, (0.0, 0.0)), now) for pair, now in sample.pairs.items()})


def _blend(before: tuple[float, float], now: tuple[float, float]) -> tuple[float, float]:
    """Agreeing and compared pairs, blended with earlier counts, which are discarded after a clear change.

    Without that, a part that falls from a hundredth to zero would only fall to a quarter with every sample.
    """
    agreed, compared = now
    expected = before[0] / max(before[1], 1.0) * compared
    apart, chance = abs(agreed - expected), _CHANCE_DEVIATIONS * sqrt(max(agreed, expected))
    if apart > max(_CHANGE_RATIO * min(agreed, expected), chance):
        return now
    return _DECAY * before[0] + agreed, _DECAY * before[1] + compared


def _count_agreeing(left: list[I32], right: list[I32]) -> float:
    """How many pairs of rows agree in every column of codes."""
    both = np.stack([np.concatenate(columns) for columns in zip(left, right, strict=True)])
    _, keys = np.unique(both, axis=1, return_inverse=True) if len(both) > 1 else np.unique(both, return_inverse=True)
    split, most = left[0].size, int(keys.max(initial=-1)) + 1
    counts = np.bincount(keys.ravel()[:split], minlength=most), np.bincount(keys.ravel()[split:], minlength=most)
    return float(np.dot(*counts))
