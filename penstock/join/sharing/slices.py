"""The slices of a shared join: at which ages they end, and what they hold (State-Slice).

Mem-Opt ends a slice at every window, so that each tuple is kept for exactly as long as a query needs it. CPU-Opt merges
slices whose separation costs more than it saves, by the paper's cost model and the measured rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from penstock.join.leaf_store import LeafStore
from penstock.join.sharing.shared_needs import SharedNeeds
from penstock.join.tree import JoinTree
from penstock.ops import OperatorId
from penstock.plan import Rates, SharedWindows, choose_cpu_opt_chain
from penstock.state import ALWAYS

if TYPE_CHECKING:
    from penstock.join.sharing.shared_join import SharedJoin

SLICE_OVERHEAD = 0.15
"""The cost of a slice for each tuple that arrives, in comparisons (C_sys), as measured by `penstock lab slice`."""

_MAX_MERGED_WINDOWS = 2000
"""The most windows for which the best chain is searched: the search is quadratic in their number."""

Slicing = Literal["mem-opt", "cpu-opt"]


@dataclass(frozen=True)
class Slice:
    """The part of the windows from age `low` to `high`: the queries whose window ends here, tuples held, results."""

    low: int
    high: int
    readers: tuple[OperatorId, ...]
    rows: Mapping[str, int]
    results: int


def choose_slice_ends(slicing: Slicing, needs: SharedNeeds, tree: JoinTree) -> tuple[int, ...]:
    """The ages at which slices end."""
    measured = measure_windows(needs, tree) if slicing == "cpu-opt" else None
    if measured is None:
        return tuple(needs.list_window_ends())
    return tuple(map(int, choose_cpu_opt_chain(*measured, SLICE_OVERHEAD, "lookup")))


def measure_windows(needs: SharedNeeds, tree: JoinTree) -> tuple[SharedWindows, Rates] | None:
    """The windows and rates, per tick, for the cost model of slices; None where nothing can be merged."""
    ends = needs.list_window_ends()
    timed = [tree.stores[alias] for alias in sorted(needs.find_longest_windows())]
    if not 2 <= len(ends) <= _MAX_MERGED_WINDOWS or len(timed) < 2:
        return None
    newest = max(store.rows.newest_birth for store in timed)
    young = []
    for store in timed:
        ids = store.rows.list_ids()
        young.append(ids[store.rows.read_births(ids) > subtract_time(newest, ends[0])])
    rates = [ids.size / ends[0] for ids in young]
    interests = [store.interest for store in timed if store.interest is not None]
    if not interests or not all(rates):
        return None
    reaches = [leaf.list_windows()[leaf.read(ids)] for leaf, ids in zip(interests, young, strict=True)]
    wanted = [min(float(np.mean(reach >= end)) for reach in reaches) for end in ends]
    met = sum(store.tuples_read * len(other) for store, other in ((timed[0], timed[1]), (timed[1], timed[0])))
    joins = sum(node.built for node in tree.walk_joins()) / max(1, met)
    windows = SharedWindows(tuple(map(float, ends)), tuple(np.minimum.accumulate(wanted)))
    return windows, Rates(rates[0], rates[1], joins)


def list_slices(shared: SharedJoin, done: int) -> list[Slice]:
    """The slices of the windows, youngest first: the queries that read them, their tuples, the results found."""
    stores = [shared.tree.stores[alias] for alias, _ in shared.matches.widest_windows]
    slices, low = [], 0
    for high, results in shared.counts.list_totals():
        readers = tuple(member.id for member in shared.members if member.need.common_lifetime == high)
        rows = {
            store.alias: _count_between(store, subtract_time(done, high), subtract_time(done, low)) for store in stores
        }
        slices.append(Slice(low, high, readers, rows, results))
        low = high
    return slices


def _count_between(store: LeafStore, after: int, until: int) -> int:
    """How many living tuples were born after a time and not after another."""
    born, dies = store.rows.read_lifetimes(store.rows.list_ids())
    return int(np.count_nonzero((born > after) & (born <= until) & (dies > until)))


def subtract_time(time: int, by: int) -> int:
    """An earlier time, not before ALWAYS."""
    return max(time - by, int(ALWAYS))
